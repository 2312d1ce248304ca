// What a real run of ten million parameters holds and moves, against the tables of the numerics and
// against its plan.
#include "models/run/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>

#include "core/error.h"
#include "dist/launch.h"
#include "models/gpt2/gpt2.h"
#include "models/run/trainer.h"
#include "tests/dist/tables.h"

namespace sg::models {
namespace {

using dist::Accumulation;
using dist::EngineKind;

struct Case {
  EngineKind engine;
  int ranks;
  int micro_steps;
  DType precision;
  Accumulation order;
  dist::Algorithm reduction = dist::Algorithm::ordered;
};

void PrintTo(const Case& c, std::ostream* out) {
  *out << dist::name_of(c.engine) << "_" << c.ranks << "_ranks_" << c.micro_steps << "_micro_steps_"
       << name_of(c.precision) << "_" << dist::name_of(c.order) << "_"
       << dist::name_of(c.reduction);
}

// Every engine with two ranks and one micro-step in both precisions; elsewhere every pair of
// values.
std::vector<Case> cases() {
  std::vector<Case> all;
  const auto local = Accumulation::local_first, ranks = Accumulation::ranks_first;
  const EngineKind engines[] = {
      EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};
  for (const EngineKind engine : engines) {
    for (const DType precision : {DType::f32, DType::bf16})
      all.push_back({engine, 2, 1, precision, local});
    all.push_back({engine, 3, 4, DType::bf16, ranks});
    all.push_back({engine, 4, 4, DType::f32, local});
  }
  for (const EngineKind engine : {EngineKind::ddp, EngineKind::zero2})
    all.push_back({engine, 3, 1, DType::f32, local});
  for (const EngineKind engine : {EngineKind::dp, EngineKind::zero1, EngineKind::zero3})
    all.push_back({engine, 4, 1, DType::bf16, ranks});
  for (const EngineKind engine : {EngineKind::zero2, EngineKind::zero3})
    all.push_back({engine, 2, 4, DType::f32, ranks});
  all.push_back({EngineKind::zero1, 3, 1, DType::f32, local, dist::Algorithm::ring});
  return all;
}

// 10.5 million parameters, most of them in matrices that are larger than a bucket, the embedding
// tied.
Family small_family() {
  Family family;
  family.name = "gpt2";
  family.resolve = [](SizeOptions& o, int64_t) {
    o.layers = 2, o.heads = 4, o.width = 512, o.context = 16, o.vocab = 8192;
  };
  family.build = [](const SizeOptions& o, uint64_t seed) -> std::unique_ptr<LanguageModel> {
    return std::make_unique<Gpt2>(Gpt2Options{.layers = *o.layers,
                                              .heads = *o.heads,
                                              .width = *o.width,
                                              .context = *o.context,
                                              .vocab = *o.vocab,
                                              .seed = seed});
  };
  return family;
}

TrainOptions training_of(const Case& c) {
  TrainOptions options;
  small_family().resolve(options.size, 0);
  options.engine.engine = c.engine;
  options.engine.precision = c.precision;
  options.engine.accumulation = c.order;
  options.engine.reduction = c.reduction;
  options.engine.bucket_bytes = int64_t{3} << 20;
  options.batch.micro = 2;
  options.batch.train = options.batch.micro * c.ranks * c.micro_steps;
  options.steps = c.micro_steps == 1 ? 2 : 1;
  options.show_mfu = false;
  options.quiet = true;
  return options;
}

PlanOptions plan_of(const Case& c) {
  const TrainOptions training = training_of(c);
  PlanOptions options;
  options.size = training.size;
  options.group.ranks = c.ranks;
  options.engine = training.engine;
  options.engine.micro_steps = c.micro_steps;
  options.batch.micro = training.batch.micro;
  options.group.threads = 1;
  return options;
}

// The receipt of a real run.
Json run(const Case& c) {
  const Family family = small_family();
  const TrainOptions options = training_of(c);
  const Dataset data = TextDataset::of(std::string(4000, 'x'), "test", ByteTokenizer{}, 0);
  Json receipt;
  dist::CommOptions comm_options;
  comm_options.ranks = c.ranks;
  for (int rank = 0; rank < c.ranks; ++rank)
    configure(cpu(rank), {.threads = 1});
  dist::run_threads(comm_options, [&](dist::Comm& comm) {
    Trainer trainer(family, options, data, comm);
    trainer.run();
    const Json mine = trainer.receipt();
    if (comm.rank() == 0)
      receipt = mine;
  });
  return receipt;
}

// operation → {calls, sent, received, padding}, of a step.
std::map<std::string, std::vector<uint64_t>> step_traffic(const Json& traffic, uint64_t steps) {
  std::map<std::string, std::vector<uint64_t>> result;
  for (const auto& [operation, phases] : traffic.items()) {
    if (!phases.contains("step"))
      continue;
    for (const char* figure : {"calls", "sent", "received", "padding"})
      result[operation].push_back(phases.at("step").at(figure).get<uint64_t>() / steps);
  }
  return result;
}

uint64_t figure(const Json& memory, Category category) {
  return memory.at(name_of(category));
}

struct MeasuredBooks : testing::TestWithParam<Case> {};

TEST_P(MeasuredBooks, EqualTheTablesAndThePlan) {
  const Case c = GetParam();
  const Json receipt = run(c);
  ASSERT_GE(receipt.at("parameters").get<uint64_t>(), 10'000'000u);
  const PlanOptions options = plan_of(c);
  const DeviceGuard guard(meta(1));
  const auto model = small_family().build(options.size, 1);
  dist::Options engine = options.engine;
  const auto sizes = dist::testing::sizes_of(model->units(), engine, c.ranks);
  const uint64_t steps = receipt.at("steps");
  for (int rank = 0; rank < c.ranks; ++rank) {
    SCOPED_TRACE(testing::Message() << "rank " << rank);
    const Json& memory = receipt.at("memory").at(std::to_string(rank));
    const auto traffic = step_traffic(receipt.at("traffic").at(std::to_string(rank)), steps);

    const auto states = dist::testing::expected_states(engine, sizes, rank);
    EXPECT_EQ(figure(memory, Category::parameters), states.parameters);
    EXPECT_EQ(figure(memory, Category::gradients), states.gradients);
    EXPECT_EQ(figure(memory, Category::optimizer), states.optimizer);
    EXPECT_EQ(figure(memory, Category::accumulation), states.accumulation);
    const auto moved = dist::testing::expected_traffic(engine, sizes, c.ranks, rank);
    uint64_t sent = 0, received = 0;
    for (const auto& [operation, figures] : traffic)
      sent += figures[1], received += figures[2];
    if (c.reduction == dist::Algorithm::ordered) {  // the table's
      EXPECT_EQ(sent, moved.sent);
      EXPECT_EQ(received, moved.received);
    }

    const dist::EnginePlan plan =
        dist::plan_rank(dry_model(small_family(), options), engine, options.group, rank);
    for (int i = 0; i < category_count; ++i) {
      const auto category = static_cast<Category>(i);
      EXPECT_EQ(figure(memory, category), plan.memory.peak(category)) << name_of(category);
    }
    EXPECT_EQ(memory.at("total").get<uint64_t>(), plan.memory.total_peak());
    EXPECT_EQ(memory.at("setup").get<uint64_t>(), plan.memory.setup_peak());
    EXPECT_EQ(traffic, step_traffic(traffic_of(plan.traffic), 1));
  }
}

// A run of any engine, sharded in any way, against what `plan` says that the rank with most takes.
struct AnyRun {
  TrainOptions training;
  int ranks = 1;
};

AnyRun drawn(std::mt19937& random) {
  const auto from = [&](int64_t low, int64_t high) {
    return std::uniform_int_distribution<int64_t>(low, high)(random);
  };
  AnyRun run;
  TrainOptions& o = run.training;
  run.ranks = static_cast<int>(from(2, 5));
  o.size.heads = from(1, 2);
  o.size.layers = from(1, 3), o.size.width = 4 * from(2, 10), o.size.context = from(1, 40),
  o.size.vocab = from(5, 400);
  o.engine.engine = static_cast<EngineKind>(
      from(static_cast<int>(EngineKind::dp), static_cast<int>(EngineKind::zero3)));
  o.engine.partition = from(0, 1) ? dist::PartitionKind::contiguous : dist::PartitionKind::bucket;
  o.engine.accumulation = from(0, 1) ? Accumulation::local_first : Accumulation::ranks_first;
  o.engine.reduction = from(0, 2) ? dist::Algorithm::ordered : dist::Algorithm::ring;
  o.engine.precision = from(0, 1) ? DType::f32 : DType::bf16;
  o.engine.bucket_bytes = int64_t{100} << from(0, 9);
  o.engine.overlap = from(0, 1) != 0;
  o.batch.micro = from(1, 2);
  o.batch.train = o.batch.micro * run.ranks * from(1, 2);
  o.steps = 2;
  o.schedule.warmup = 0;
  o.show_mfu = false, o.quiet = true;
  return run;
}

Family any_family() {
  Family family = small_family();
  family.resolve = [](SizeOptions&, int64_t) {};
  return family;
}

void expect_planned(const AnyRun& run) {
  Json receipt;
  PlanOptions options;
  const int64_t vocabulary = *run.training.size.vocab;
  struct Ids : Dataset {
    Ids(int64_t vocabulary, std::vector<int32_t> ids)
        : Dataset("ids", IdTokenizer(vocabulary), tokens_in_memory(std::move(ids)), 0) {}
  };
  const Ids data(vocabulary, std::vector<int32_t>(3000, static_cast<int32_t>(vocabulary - 1)));
  for (int rank = 0; rank < run.ranks; ++rank)
    configure(cpu(rank), {.threads = 1});
  dist::run_threads(run.ranks, [&](dist::Comm& comm) {
    Trainer trainer(any_family(), run.training, data, comm);
    trainer.run();
    const Json mine = trainer.receipt();
    if (comm.rank() != 0)
      return;
    receipt = mine.at("memory");
    options = trainer.dry_run();
  });
  const dist::MemoryPeaks most =
      dist::plan_engine(dry_model(any_family(), options), options.engine, options.group).most;
  const auto measured = [&](const std::string& figure_name) {
    uint64_t largest = 0;
    for (const auto& [rank, memory] : receipt.items())
      largest = std::max(largest, memory.at(figure_name).get<uint64_t>());
    return largest;
  };
  EXPECT_EQ(most.total, measured("total"));
  EXPECT_EQ(most.setup, measured("setup"));
  for (int i = 0; i < category_count; ++i) {
    const auto category = static_cast<Category>(i);
    EXPECT_EQ(most.of(category), measured(name_of(category))) << name_of(category);
  }
}

// Neither the first nor the last rank holds the most here.
TEST(PlanOfAll, ContiguousShardsOfATinyModel) {
  std::mt19937 random(1);
  AnyRun run = drawn(random);
  TrainOptions& o = run.training;
  run.ranks = 4;
  o.size.layers = o.size.heads = 1, o.size.width = 24, o.size.context = 33, o.size.vocab = 300;
  o.engine = {.engine = EngineKind::zero1,
              .partition = dist::PartitionKind::contiguous,
              .bucket_bytes = 100};
  o.batch.micro = 1, o.batch.train = 4;
  for (const int64_t first_bucket : {int64_t{1} << 20, int64_t{100}}) {
    o.engine.first_bucket_bytes = first_bucket;
    expect_planned(run);
  }
}

TEST(PlanOfAll, IsTheMostThatAnyRankTakes) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const AnyRun run = drawn(random);
    SCOPED_TRACE(testing::Message() << "seed " << seed << ": " << run.ranks << " ranks, "
                                    << dist::name_of(run.training.engine.engine) << ", "
                                    << dist::name_of(run.training.engine.partition)
                                    << ", buckets of " << run.training.engine.bucket_bytes);
    expect_planned(run);
  }
}

INSTANTIATE_TEST_SUITE_P(Plan,
                         MeasuredBooks,
                         testing::ValuesIn(cases()),
                         testing::PrintToStringParamName());

}  // namespace
}  // namespace sg::models
