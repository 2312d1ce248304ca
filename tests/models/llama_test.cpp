// Llama under every engine and policy of recompute: ddp's bits, and the plan's bytes.
#include "models/llama/llama.h"

#include <gtest/gtest.h>

#include "dist/launch.h"
#include "models/family.h"
#include "models/run/plan.h"
#include "models/run/trainer.h"

namespace sg::models {
namespace {

using dist::EngineKind;

constexpr int ranks = 2;
constexpr EngineKind engines[] = {
    EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};
constexpr const char* policies[] = {"none", "full", "every:2", "selective"};

Family family_of(const LlamaOptions& sizes) {
  Family family;
  family.name = "llama";
  family.resolve = [](SizeOptions&, int64_t) {};
  family.build = [sizes](const SizeOptions&, uint64_t seed) -> std::unique_ptr<LanguageModel> {
    LlamaOptions options = sizes;
    options.seed = seed;
    return std::make_unique<Llama>(options);
  };
  return family;
}

// All that a block may have; rotary positions as Llama 3 stretches them.
LlamaOptions everything() {
  LlamaOptions o{.layers = 3,
                 .heads = 4,
                 .width = 32,
                 .hidden = 48,
                 .context = 16,
                 .vocab = 256,
                 .kv_heads = 2};
  o.rope = {.scaling = RopeScaling::llama3, .factor = 8, .original_context = 128};
  o.qkv_bias = o.out_bias = o.mlp_bias = o.qk_norm = o.tied = true;
  o.window = 5;
  return o;
}

struct Case {
  EngineKind engine;
  std::string policy;
};

std::string text_of(const Case& c) {
  return fmt::format("{} {}", dist::name_of(c.engine), c.policy);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const EngineKind engine : engines) {
    for (const char* policy : policies)
      all.push_back({engine, policy});
  }
  return all;
}

TrainOptions training_of(const Case& c, const LlamaOptions& sizes) {
  TrainOptions options;
  options.size.layers = sizes.layers, options.size.heads = sizes.heads;
  options.size.width = sizes.width, options.size.context = sizes.context;
  options.size.vocab = sizes.vocab;
  options.engine.engine = c.engine;
  options.engine.recompute = parse_recompute(c.policy);
  options.engine.bucket_bytes = 6000;
  options.batch.micro = 2;
  options.batch.train = 2 * ranks;
  options.steps = 2;
  options.show_mfu = false;
  options.quiet = true;
  return options;
}

Json receipt_of(const Case& c, const LlamaOptions& sizes) {
  std::string text;
  for (int i = 0; i < 4000; ++i)
    text += static_cast<char>('a' + i * i % 23);
  const Dataset data = TextDataset::of(text, "test", ByteTokenizer{}, 0);
  Json receipt;
  dist::CommOptions comm_options;
  comm_options.ranks = ranks;
  for (int rank = 0; rank < ranks; ++rank)
    configure(cpu(rank), {.threads = 1});
  dist::run_threads(comm_options, [&](dist::Comm& comm) {
    Trainer trainer(family_of(sizes), training_of(c, sizes), data, comm);
    trainer.run();
    const Json mine = trainer.receipt();
    if (comm.rank() == 0)
      receipt = mine;
  });
  return receipt;
}

TEST(Llama, EveryEngineAndPolicyHasDdpsBitsAndThePlansBytes) {
  const LlamaOptions sizes = everything();
  const Json plain = receipt_of({EngineKind::ddp, "none"}, sizes);
  for (const Case& c : cases()) {
    SCOPED_TRACE(text_of(c));
    const Json receipt = receipt_of(c, sizes);
    EXPECT_EQ(receipt.at("loss_bits"), plain.at("loss_bits"));
    EXPECT_EQ(receipt.at("params_sha256"), plain.at("params_sha256"));

    const TrainOptions training = training_of(c, sizes);
    PlanOptions options;
    options.size = training.size;
    options.group.ranks = ranks;
    options.group.threads = 1;
    options.engine = training.engine;
    options.batch.micro = training.batch.micro;
    for (int rank = 0; rank < ranks; ++rank) {
      const Json& memory = receipt.at("memory").at(std::to_string(rank));
      const dist::EnginePlan plan = dist::plan_rank(
          dry_model(family_of(sizes), options), options.engine, options.group, rank);
      for (int i = 0; i < category_count; ++i) {
        const auto category = static_cast<Category>(i);
        EXPECT_EQ(memory.at(name_of(category)).get<uint64_t>(), plan.memory.peak(category))
            << "rank " << rank << ": " << name_of(category);
      }
      EXPECT_EQ(memory.at("total").get<uint64_t>(), plan.memory.total_peak());
    }
  }
}

TEST(Llama, SizesThatCannotBeAreRefused) {
  LlamaOptions none = everything(), odd = everything(), backwards = everything();
  none.hidden = 0;
  odd.kv_heads = 3;
  backwards.window = -1;
  for (const LlamaOptions& options : {none, odd, backwards})
    EXPECT_THROW(Llama{options}, Error);
  EXPECT_THROW(llama_preset("9b"), Error);
}

}  // namespace
}  // namespace sg::models
