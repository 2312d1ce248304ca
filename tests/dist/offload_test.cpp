// ZeRO-Offload: ddp's bits, and the books of the numerics' table on the device and on its host.
#include <gtest/gtest.h>

#include "core/copies.h"
#include "core/device.h"
#include "dist/plan.h"
#include "tests/dist/tiny_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

constexpr EngineKind zero[] = {EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};

Options options_of(EngineKind kind, DType precision, int micro_steps, Accumulation accumulation) {
  Options options{.engine = kind, .lr = 0.01, .micro_steps = micro_steps};
  options.accumulation = accumulation;
  options.precision = precision;
  options.clip = 1;
  options.loss_scale.initial_power = 8;
  options.first_bucket_bytes = options.bucket_bytes = 4096;
  return options;
}

struct Offloaded {
  EngineKind engine;
  int ranks;
  DType precision;
  int micro_steps;
  Accumulation accumulation;
  friend std::ostream& operator<<(std::ostream& out, const Offloaded& r) {
    return out << name_of(r.engine) << ", " << r.ranks << " ranks, " << name_of(r.precision)
               << ", k = " << r.micro_steps << ", " << name_of(r.accumulation);
  }
};

std::vector<Offloaded> runs() {
  std::vector<Offloaded> all;
  for (const EngineKind engine : zero)
    for (const int ranks : {1, 2, 4})
      for (const DType precision : {DType::f32, DType::bf16, DType::f16})
        for (const int k : {1, 4})
          for (const Accumulation order : {Accumulation::local_first, Accumulation::ranks_first})
            if (k > 1 || order == Accumulation::ranks_first)
              all.push_back({engine, ranks, precision, k, order});
  return all;
}

Training training_of(const Offloaded& r, EngineKind engine) {
  Training training{.options = options_of(engine, r.precision, r.micro_steps, r.accumulation),
                    .ranks = r.ranks};
  training.steps = 3;
  training.dropout = 0.1f;
  return training;
}

TEST(Offload, OfTheOptimizerHasDdpsBits) {
  std::map<std::string, Outcome> plain;
  for (const Offloaded& r : runs()) {
    const std::string key = fmt::format(
        "{} {} {} {}", r.ranks, name_of(r.precision), r.micro_steps, name_of(r.accumulation));
    if (!plain.contains(key))
      plain[key] = train(training_of(r, EngineKind::ddp));
    Training offloaded = training_of(r, r.engine);
    offloaded.options.offload_optimizer = OffloadDevice::cpu;
    EXPECT_TRUE(train(offloaded) == plain[key]) << r;
  }
}

TEST(Offload, LazyStreamsShowNoMissingWait) {
  for (const EngineKind engine : zero) {
    const Offloaded r{engine, 2, DType::bf16, 2, Accumulation::ranks_first};
    const Outcome plain = train(training_of(r, EngineKind::ddp));
    Training offloaded = training_of(r, engine);
    offloaded.options.offload_optimizer = OffloadDevice::cpu;
    for (uint64_t seed = 0; seed < 4; ++seed) {
      set_lazy_streams(true, seed);
      const Outcome lazy = train(offloaded);
      set_lazy_streams(false);
      EXPECT_TRUE(lazy == plain) << r << ", seed " << seed;
    }
  }
}

// The numerics' table: S elements of this rank's, φ of all.
TEST(Offload, BooksAreTheTables) {
  for (const Offloaded& r : runs()) {
    if (r.ranks != 2 || r.accumulation != Accumulation::ranks_first)
      continue;
    Options options = options_of(r.engine, r.precision, r.micro_steps, r.accumulation);
    options.offload_optimizer = OffloadDevice::cpu;
    const DryGroup group{.ranks = 2, .threads = 1};
    const auto make = [] {
      const auto model = std::make_shared<TinyModel>(true);
      return DryModel{
          model->units(), [=](Engine& engine) {
            const Tensor tokens = random_ids(0, 24), targets = random_ids(1, 24);
            engine.backward(engine.forward([&] { return model->loss(tokens, targets); }));
            engine.step();
          }};
    };
    const EnginePlan plan = plan_rank(make, options, group, 0);
    Options on_device = options;
    on_device.offload_optimizer = OffloadDevice::none;
    const EnginePlan whole = plan_rank(make, on_device, group, 0);
    const uint64_t parameter = size_of(r.precision), moments = 8;
    const uint64_t shard =
        whole.memory.peak(Category::optimizer) / (moments + (is_16bit(r.precision) ? 4 : 0));
    EXPECT_EQ(plan.host.peak(Category::optimizer), (moments + 4) * shard) << r;
    EXPECT_EQ(plan.host.peak(Category::gradients), parameter * shard) << r;
    EXPECT_EQ(plan.host.peak(Category::accumulation), r.micro_steps > 1 ? 4 * shard : 0) << r;
    EXPECT_EQ(plan.memory.peak(Category::optimizer), 0u) << r;
    EXPECT_EQ(plan.memory.peak(Category::accumulation), 0u) << r;
    EXPECT_EQ(plan.memory.peak(Category::parameters), whole.memory.peak(Category::parameters)) << r;
    const uint64_t own = r.engine == EngineKind::zero1 ? 0 : parameter * shard;
    EXPECT_EQ(plan.memory.peak(Category::gradients), whole.memory.peak(Category::gradients) - own)
        << r;
  }
}

// What the host has of all ranks, and what crosses: G·S down each micro-step, P·S up.
TEST(Offload, MeasuredIsPlannedAndNothingIsLeft) {
  for (const EngineKind engine : zero) {
    const Offloaded r{engine, 1, DType::bf16, 2, Accumulation::ranks_first};
    Training training = training_of(r, engine);
    training.dropout = 0;
    training.options.offload_optimizer = OffloadDevice::cpu;
    pool(host).reset_peaks();
    const uint64_t before = pool(host).ledger().total();
    const Copies copied = copies(cpu(0));
    train(training);
    const Ledger measured = pool(host).ledger();
    EXPECT_EQ(measured.total(), before) << r;
    const Copies moved = copies(cpu(0)) - copied;
    const uint64_t shard = measured.peak(Category::gradients) / 2;
    EXPECT_EQ(moved.to_host, 2 * shard * 2 * training.steps) << r;
    EXPECT_EQ(moved.from_host, 2 * shard * training.steps) << r;
  }
}

TEST(Offload, OfAnEngineThatUpdatesOnEveryRankIsRefused) {
  run_threads(1, [](Comm& comm) {
    const TinyModel model(true);
    Options options{.engine = EngineKind::ddp};
    options.offload_optimizer = OffloadDevice::cpu;
    const std::string message =
        test::error_of(ErrorKind::usage, [&] { initialize(model.units(), options, comm); });
    EXPECT_NE(message.find("only zero1, zero2, zero3 do"), std::string::npos) << message;
  });
}

TEST(Offload, AFullHostIsNamed) {
  pool(host).set_capacity(pool(host).ledger().total() + 1000);
  run_threads(1, [](Comm& comm) {
    const TinyModel model(true);
    Options options{.engine = EngineKind::zero2};
    options.offload_optimizer = OffloadDevice::cpu;
    const std::string message =
        test::error_of(ErrorKind::out_of_memory, [&] { initialize(model.units(), options, comm); });
    EXPECT_NE(message.find("host"), std::string::npos) << message;
  });
  pool(host).set_capacity(Pool::unlimited);
}

}  // namespace
}  // namespace sg::dist::testing
