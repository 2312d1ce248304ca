// Policies of recompute over a model's blocks: what each keeps, to the byte, and the bits of none.
#include <gtest/gtest.h>

#include <bit>
#include <mutex>
#include <string>
#include <vector>

#include "core/copies.h"
#include "core/ops.h"
#include "dist/engine.h"
#include "dist/launch.h"
#include "models/gpt2/gpt2.h"
#include "nn/micro_step.h"
#include "tests/errors.h"

namespace sg::models {
namespace {

using dist::EngineKind;

constexpr int64_t rows = 3, length = 8, width = 16, heads = 2;

Gpt2Options model_of(int64_t layers, float dropout = 0) {
  return {.layers = layers,
          .heads = heads,
          .width = width,
          .context = length,
          .vocab = 31,
          .dropout = dropout};
}

Tensor ids(uint64_t number) {
  const CategoryScope scope(Category::data);
  return cast(random_uniform({rows, length}, {.seed = 3, .op = number}, 0, 31), DType::i32);
}

// ---- memory

struct Kept {
  int64_t device = 0, host = 0;
};

// Activations that a model of so many blocks holds between forward and backward.
Kept kept(int64_t layers, DType precision, const std::string& policy, bool on_host = false) {
  Kept bytes;
  dist::run_threads({}, [&](dist::Comm& comm) {
    Gpt2 model(model_of(layers));
    const dist::Options options{.engine = EngineKind::none,
                                .precision = precision,
                                .recompute = parse_recompute(policy),
                                .cpu_checkpointing = on_host};
    auto engine = dist::initialize(model.units(), options, comm);
    const auto held = [](Device device) {
      return static_cast<int64_t>(pool(device).ledger().held(Category::activations));
    };
    const Kept before{held(comm.device()), held(host)};
    const Variable loss = engine->forward([&] { return model.loss(ids(0), ids(1)); });
    bytes = {held(comm.device()) - before.device, held(host) - before.host};
    engine->backward(loss);
    engine->step();
  });
  return bytes;
}

// Numerics, "Kept by a block": bytes × b·s·h in 16 bit, and beside them the statistics of two norms
// and of attention, f32 each.
TEST(RecomputePolicy, ABlockKeepsWhatTheFormulaSays) {
  constexpr int64_t bsh = rows * length * width;
  constexpr int64_t statistics = 4 * (2 * 2 * rows * length + rows * length * heads);
  struct Row {
    std::string policy;
    int64_t blocks, bytes;  // × b·s·h: so many blocks more keep so much more
    bool statistics;
  };
  const Row table[] = {{"none", 1, 32, true},
                       {"selective", 1, 20, true},
                       {"full", 1, 2, false},
                       {"every:1", 1, 2, false},
                       {"every:2", 2, 2, false},
                       {"every:3", 3, 2, false}};
  for (const DType precision : {DType::f32, DType::bf16, DType::f16}) {
    const int64_t wide = precision == DType::f32 ? 2 : 1;
    for (const Row& row : table) {
      const Kept many = kept(6 + row.blocks, precision, row.policy);
      const int64_t more = many.device - kept(6, precision, row.policy).device;
      const int64_t beside = row.statistics ? statistics * row.blocks : 0;
      EXPECT_EQ(more, wide * row.bytes * bsh + beside) << row.policy << " " << name_of(precision);
    }
  }
}

TEST(RecomputePolicy, CpuCheckpointingKeepsARegionsInputOnTheHost) {
  constexpr int64_t sum = 2 * rows * length * width;
  for (const std::string policy : {"full", "every:2"}) {
    const int64_t blocks = policy == "full" ? 1 : 2;
    const Kept few = kept(4, DType::bf16, policy, true);
    const Kept many = kept(4 + blocks, DType::bf16, policy, true);
    EXPECT_EQ(many.device, few.device) << policy;
    EXPECT_EQ(many.host - few.host, sum) << policy;
    EXPECT_EQ(few.host, 4 / blocks * sum) << policy;
  }
  EXPECT_EQ(pool(host).ledger().held(Category::activations), 0u) << "what ended gave it back";
}

TEST(RecomputePolicy, CopiesAreBookedEachWay) {
  const Copies before = copies(cpu());
  kept(4, DType::bf16, "full", true);
  const Copies after = copies(cpu());
  constexpr uint64_t sums = 4 * 2 * rows * length * width;
  EXPECT_EQ(after.to_host - before.to_host, sums);
  EXPECT_EQ(after.from_host - before.from_host, sums);
}

// ---- bits

struct Training {
  EngineKind engine = EngineKind::ddp;
  int ranks = 1;
  DType precision = DType::f32;
  int micro_steps = 1;
  std::string policy = "none";
  bool on_host = false;
};

std::string name_of(const Training& r) {
  return fmt::format("{} {} {} k={} {}{}",
                     dist::name_of(r.engine),
                     r.ranks,
                     sg::name_of(r.precision),
                     r.micro_steps,
                     r.policy,
                     r.on_host ? " on the host" : "");
}

// Losses and masters after two steps with dropout.
std::vector<float> train(const Training& r) {
  std::vector<float> losses;
  std::map<std::string, std::vector<float>> masters;
  std::mutex mutex;
  dist::CommOptions comm_options;
  comm_options.ranks = r.ranks;
  dist::run_threads(comm_options, [&](dist::Comm& comm) {
    Gpt2 model(model_of(3, 0.2f));
    const dist::Options options{.engine = r.engine,
                                .lr = 0.01,
                                .micro_steps = r.micro_steps,
                                .accumulation = dist::Accumulation::local_first,
                                .clip = 0.5,
                                .precision = r.precision,
                                .first_bucket_bytes = 2000,
                                .bucket_bytes = 6000,
                                .recompute = parse_recompute(r.policy),
                                .cpu_checkpointing = r.on_host};
    auto engine = dist::initialize(model.units(), options, comm);
    for (uint64_t step = 0; step < 2; ++step) {
      for (int j = 0; j < r.micro_steps; ++j) {
        const auto number = static_cast<uint64_t>(j * comm.size() + comm.rank());
        Variable loss;
        {
          const nn::MicroStepScope scope(7, step, number * rows);
          const uint64_t batch = 2 * (number + 100 * step);
          loss = engine->forward([&] { return model.loss(ids(batch), ids(batch + 1)); });
        }
        engine->backward(loss);
        const dist::StepResult result = engine->step();
        if (result.complete && comm.rank() == 0)
          losses.push_back(result.loss);
      }
    }
    const std::lock_guard lock(mutex);
    for (const dist::StateEntry& entry : engine->state()) {
      auto& all = masters[entry.kind + entry.parameter];
      all.resize(static_cast<size_t>(numel(entry.shape)));
      const auto values = cast(entry.values, DType::f32).to_vector<float>();
      std::copy(values.begin(), values.end(), all.begin() + entry.begin);
    }
  });
  for (const auto& [name, values] : masters)
    losses.insert(losses.end(), values.begin(), values.end());
  return losses;
}

constexpr EngineKind engines[] = {
    EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};

constexpr const char* policies[] = {"every:2", "full", "selective"};

void expect_ddps_bits(DType precision, int ranks, int k) {
  const std::vector<float> plain = train({EngineKind::ddp, ranks, precision, k, "none"});
  for (size_t e = 0; e < std::size(engines); ++e) {
    for (size_t p = 0; p < std::size(policies); ++p) {
      const size_t turn = e + static_cast<size_t>(ranks) + static_cast<size_t>(precision);
      if (ranks != 2 && turn % 3 != p)
        continue;
      const Training run{engines[e], ranks, precision, k, policies[p]};
      EXPECT_TRUE(train(run) == plain) << name_of(run);
    }
  }
}

// All of them on two ranks; on one and four every engine with some policy, and every policy.
TEST(RecomputePolicy, EveryPolicyHasPlainDdpsBitsUnderEveryEngine) {
  for (const DType precision : {DType::f32, DType::bf16, DType::f16}) {
    for (const int ranks : {1, 2, 4}) {
      for (const int k : {1, 4})
        expect_ddps_bits(precision, ranks, k);
    }
  }
}

TEST(RecomputePolicy, CpuCheckpointingHasPlainDdpsBits) {
  for (const DType precision : {DType::f32, DType::bf16, DType::f16}) {
    const std::vector<float> plain = train({EngineKind::ddp, 2, precision, 4, "none"});
    for (const auto engine : engines) {
      for (const char* policy : {"every:2", "full"}) {
        const Training run{engine, 2, precision, 4, policy, true};
        EXPECT_TRUE(train(run) == plain) << name_of(run);
      }
    }
  }
}

// Copies run only when something waits for them: a missing wait shows as stale data.
TEST(RecomputePolicy, LazyStreamsShowNoMissingWaitForCopies) {
  const std::vector<float> plain = train({EngineKind::ddp, 2, DType::f32, 1, "none"});
  for (uint64_t seed = 0; seed < 4; ++seed) {
    set_lazy_streams(true, seed);
    const std::vector<float> lazy = train({EngineKind::zero3, 2, DType::f32, 1, "full", true});
    set_lazy_streams(false);
    EXPECT_TRUE(lazy == plain) << "seed " << seed;
  }
}

// ---- what it refuses

TEST(RecomputePolicy, CpuCheckpointingNeedsRegions) {
  for (const char* policy : {"none", "selective"}) {
    const std::string message =
        test::error_of(ErrorKind::usage, [&] { kept(1, DType::f32, policy, true); });
    EXPECT_NE(message.find("cpu checkpointing moves what recomputed regions keep"),
              std::string::npos)
        << message;
  }
}

TEST(RecomputePolicy, AnUnknownPolicyListsTheKnownOnes) {
  for (const char* text : {"every", "every:", "every:0", "every:-1", "every:2x", "Full", ""}) {
    const std::string message = test::error_of(ErrorKind::usage, [&] { parse_recompute(text); });
    EXPECT_EQ(message,
              fmt::format("recompute: \"{}\" is none of none, every:N with N at least 1, full, "
                          "selective",
                          text));
  }
  for (const char* text : {"none", "every:1", "every:12", "full", "selective"})
    EXPECT_EQ(to_string(parse_recompute(text)), text);
}

TEST(RecomputePolicy, AModelWithoutBlocksIsRefused) {
  dist::run_threads({}, [&](dist::Comm& comm) {
    nn::Linear model({.in = 4, .out = 4});
    model.initialize(1);
    const dist::Options options{.engine = EngineKind::none, .recompute = parse_recompute("full")};
    const std::string message =
        test::error_of(ErrorKind::usage, [&] { dist::initialize(model.units(), options, comm); });
    EXPECT_NE(message.find("recompute full: none of the model's 1 units is a block"),
              std::string::npos)
        << message;
  });
}

// A second engine that is refused takes nothing from the first.
TEST(RecomputePolicy, ARefusalLeavesTheEngineBeforeItInPlace) {
  dist::run_threads({}, [&](dist::Comm& comm) {
    Gpt2 model(model_of(1));
    auto engine = dist::initialize(model.units(), {.engine = EngineKind::none}, comm);
    const dist::Options refused{.engine = EngineKind::none, .cpu_checkpointing = true};
    test::error_of(ErrorKind::usage, [&] { dist::initialize(model.units(), refused, comm); });
    engine->backward(engine->forward([&] { return model.loss(ids(0), ids(1)); }));
    engine->step();
    EXPECT_EQ(engine->steps(), 1u);
  });
}

}  // namespace
}  // namespace sg::models
