// Models that are larger than a device: built on meta, given memory shard by shard.
#include <gtest/gtest.h>

#include <bit>
#include <mutex>
#include <optional>

#include "core/device.h"
#include "core/ops.h"
#include "dist/engine.h"
#include "dist/launch.h"
#include "models/gpt2/gpt2.h"
#include "models/run/receipt.h"
#include "tests/errors.h"

namespace sg::models {
namespace {

const Gpt2Options size{.layers = 16, .heads = 2, .width = 64, .context = 4, .vocab = 64};

struct Trained {
  std::vector<uint32_t> loss_bits;
  std::string hash;
  std::vector<uint64_t> peaks;  // by rank
  friend bool operator==(const Trained& a, const Trained& b) {
    return a.loss_bits == b.loss_bits && a.hash == b.hash;
  }
};

Trained train(const dist::Options& options, bool on_meta, uint64_t capacity = Pool::unlimited) {
  Trained run;
  std::mutex mutex;
  for (int rank = 0; rank < 4; ++rank)
    configure(cpu(rank), {.capacity = capacity, .threads = 1});
  dist::run_threads(4, [&](dist::Comm& comm) {
    std::optional<DeviceGuard> guard;
    if (on_meta)
      guard.emplace(unplaced);
    Gpt2 model(size);
    model.initialize(7);
    guard.reset();
    auto engine = dist::initialize(model.units(), options, comm);
    const Tensor ids = full({1, 4}, 1 + comm.rank(), DType::i32);
    for (int step = 0; step < 3; ++step) {
      engine->backward(engine->forward([&] { return model.loss(ids, ids); }));
      const dist::StepResult result = engine->step();
      if (comm.rank() == 0)
        run.loss_bits.push_back(std::bit_cast<uint32_t>(result.loss));
    }
    engine->synchronize();
    const std::string hash = hash_masters(*engine, model.units());
    std::lock_guard lock(mutex);
    run.hash = hash;
    run.peaks.push_back(pool(comm.device()).ledger().total_peak());
  });
  return run;
}

dist::Options options_of(dist::EngineKind engine) {
  dist::Options options{
      .engine = engine, .lr = 0.05, .first_bucket_bytes = 16 << 10, .bucket_bytes = 16 << 10};
  options.optimizer.type = "sgd";
  options.prefetch_elements = 0;
  return options;
}

TEST(ShardedBuild, HasTheValuesOfABuildOnADevice) {
  for (const auto engine : {dist::EngineKind::dp,
                            dist::EngineKind::ddp,
                            dist::EngineKind::zero1,
                            dist::EngineKind::zero2,
                            dist::EngineKind::zero3}) {
    dist::Options options = options_of(engine);
    options.precision = engine == dist::EngineKind::dp ? DType::f32 : DType::bf16;
    EXPECT_TRUE(train(options, true) == train(options, false)) << dist::name_of(engine);
  }
}

// The model alone fills the device; gradients and optimizer state, twice as much again, are shards
// beside its shards.
TEST(ShardedBuild, TrainsAModelLargerThanTheDevice) {
  const auto bytes = [] {
    const DeviceGuard guard(meta());
    return static_cast<uint64_t>(Gpt2(size).parameter_count()) * sizeof(float);
  }();
  const Trained reference = train(options_of(dist::EngineKind::ddp), false);
  const Trained sharded = train(options_of(dist::EngineKind::zero3), true, bytes - 1);
  EXPECT_TRUE(sharded == reference);
  for (const uint64_t peak : sharded.peaks)
    EXPECT_LT(peak, bytes);
  test::error_of(ErrorKind::out_of_memory,
                 [&] { train(options_of(dist::EngineKind::zero3), false, bytes - 1); });
  for (int rank = 0; rank < 4; ++rank)
    configure(cpu(rank), {.threads = 1});
}

}  // namespace
}  // namespace sg::models
