// params_sha256 is of the masters: the same for every engine and every number of ranks that holds
// them, in every precision; frozen parameters count, a tied one once.
#include <gtest/gtest.h>

#include <map>

#include "core/io/hash.h"
#include "core/ops.h"
#include "dist/launch.h"
#include "models/gpt2/gpt2.h"
#include "models/run/receipt.h"

namespace sg::models {
namespace {

const Gpt2Options size{.layers = 2, .heads = 2, .width = 32, .context = 8, .vocab = 96};

struct Hashes {
  std::string masters,
      by_hand;  // by_hand: of the masters as a checkpoint of one rank's would have them, in order
};

Hashes train(dist::EngineKind engine, DType precision, int ranks) {
  Hashes hashes;
  dist::run_threads(ranks, [&](dist::Comm& comm) {
    Gpt2 model(size);
    model.initialize(3);
    model.parameters()[1].set_requires_grad(false);  // among the others, not last
    dist::Options options{
        .engine = engine, .lr = 1e-3, .micro_steps = 4 / ranks, .precision = precision};
    options.elastic_determinism = true;
    options.first_bucket_bytes = options.bucket_bytes = 4 << 10;
    auto trained = dist::initialize(model.units(), options, comm);
    for (int j = 0; j < 2 * options.micro_steps; ++j) {
      const int number = (j % options.micro_steps) * ranks + comm.rank();
      const Tensor ids = full({1, 8}, 1 + number, DType::i32);
      trained->backward(trained->forward([&] { return model.loss(ids, ids); }));
      trained->step();
    }
    const std::string hash = hash_masters(*trained, model.units());
    if (comm.rank() != 0)
      return;
    hashes.masters = hash;
    if (ranks > 1)
      return;
    std::map<std::string, std::map<int64_t, Tensor>> values;  // runs by where they begin
    for (const dist::StateEntry& entry : trained->state())
      if (entry.kind == "master" || entry.kind == "frozen")
        values[entry.parameter][entry.begin] = entry.values;
    Sha256 sha;
    for (const Variable& p : model.parameters())
      for (const auto& [begin, run] : values.at(p.name()))
        hash_as_f32(sha, run);
    hashes.by_hand = sha.hex();
  });
  return hashes;
}

TEST(HashMasters, IsTheSameForEveryEngineAndPartition) {
  std::map<std::string, DType> seen;
  for (const DType precision : {DType::f32, DType::bf16, DType::f16}) {
    const Hashes one = train(dist::EngineKind::ddp, precision, 1);
    EXPECT_EQ(one.masters, one.by_hand) << name_of(precision);
    EXPECT_TRUE(seen.emplace(one.masters, precision).second);
    for (const auto engine : {dist::EngineKind::dp,
                              dist::EngineKind::ddp,
                              dist::EngineKind::zero1,
                              dist::EngineKind::zero2,
                              dist::EngineKind::zero3})
      EXPECT_EQ(train(engine, precision, 2).masters, one.masters)
          << dist::name_of(engine) << " " << name_of(precision);
  }
}

}  // namespace
}  // namespace sg::models
