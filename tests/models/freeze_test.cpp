// Parameters that a run doesn't train: the same bits under every engine and policy, the plan's
// bytes, their values untouched, and a resume that keeps to them.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/device.h"
#include "core/io/safetensors.h"
#include "dist/launch.h"
#include "dist/plan.h"
#include "models/run/commands.h"
#include "models/run/initial_weights.h"
#include "models/run/plan.h"
#include "models/run/receipt.h"
#include "tests/core/temporary_folder.h"
#include "tests/errors.h"
#include "tests/golden/families.h"

namespace sg::models {
namespace {

using dist::EngineKind;
using test::contents_of;

const std::string weights = SG_SOURCE_DIR "/tests/golden/hugging_face/gpt2";
constexpr int ranks = 2;

struct Policy {
  const char* recompute;
  bool on_host;
};

struct Freeze : testing::Test {
  const test::TemporaryFolder scratch;
  const Family family = test::gpt2_family();

  TrainOptions options(EngineKind engine, const std::string& patterns) const {
    TrainOptions o;
    o.data.path = scratch / "ids.bin";
    o.data.val_fraction = 0;
    o.engine.engine = engine;
    o.engine.accumulation = dist::Accumulation::local_first;
    o.engine.freeze = patterns;
    o.engine.first_bucket_bytes = o.engine.bucket_bytes = 8 << 10;
    o.batch.micro = 2, o.steps = 2, o.quiet = true, o.show_mfu = false;
    o.init_from = weights, o.receipt = scratch / "receipt";
    return o;
  }
  Json receipt_of(const TrainOptions& o) const {
    std::string ids;
    for (int i = 0; i < 400; ++i)
      ids += {static_cast<char>(i * i % 31), 0};
    test::put(o.data.path, ids);
    dist::CommOptions group;
    group.ranks = ranks, group.device.threads = 1;
    dist::run_threads(group, [&](dist::Comm& comm) { train(family, o, comm); });
    return Json::parse(contents_of(o.receipt));
  }
  dist::EnginePlan plan_of(const TrainOptions& o, int rank) const {
    PlanOptions dry;
    dry.size = InitialWeights::open(family, weights)->size();
    dry.size.dropout = 0;
    dry.engine = o.engine, dry.batch.micro = o.batch.micro;
    dry.group.ranks = ranks, dry.group.threads = 1;
    return dist::plan_rank(dry_model(family, dry), dry.engine, dry.group, rank);
  }
  void expect_planned(const Json& receipt, const TrainOptions& o) const {
    for (int rank = 0; rank < ranks; ++rank) {
      const dist::EnginePlan plan = plan_of(o, rank);
      const Json& memory = receipt.at("memory").at(std::to_string(rank));
      for (int i = 0; i < category_count; ++i) {
        const auto category = static_cast<Category>(i);
        EXPECT_EQ(memory.at(name_of(category)).get<uint64_t>(), plan.memory.peak(category))
            << rank << " " << name_of(category);
      }
      EXPECT_EQ(memory.at("total").get<uint64_t>(), plan.memory.total_peak()) << rank;
    }
  }
};

TEST_F(Freeze, EveryEngineAndPolicyHasTheSameBitsAndThePlansBytes) {
  for (const char* patterns : {"block0.*", "embeddings.*,block[01].mlp.*", "*norm*,head.*"}) {
    const Json reference = receipt_of(options(EngineKind::ddp, patterns));
    for (const EngineKind engine :
         {EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3})
      for (const auto& [recompute, on_host] :
           {Policy{"none", false}, {"selective", false}, {"full", false}, {"full", true}}) {
        SCOPED_TRACE(testing::Message()
                     << patterns << " " << dist::name_of(engine) << " " << recompute << on_host);
        TrainOptions o = options(engine, patterns);
        o.engine.recompute = parse_recompute(recompute);
        o.engine.cpu_checkpointing = on_host;
        const Json receipt = receipt_of(o);
        EXPECT_EQ(receipt["loss_bits"], reference["loss_bits"]);
        EXPECT_EQ(receipt["params_sha256"], reference["params_sha256"]);
        EXPECT_EQ(receipt["numerics"]["frozen"], patterns);
        expect_planned(receipt, o);
      }
  }
}

TEST_F(Freeze, FrozenValuesStayAndTheOthersMove) {
  TrainOptions o = options(EngineKind::zero3, "block0.*,embeddings.positions.*");
  o.out = scratch / "run";
  receipt_of(o);
  const auto before = InitialWeights::open(family, weights),
             after = InitialWeights::open(family, o.out);
  for (const TensorInfo& p : before->parameters()) {
    const Tensor x = empty(p.shape), y = empty(p.shape);
    before->read(p.name, x);
    after->read(p.name, y);
    const bool frozen = p.name.starts_with("block0.") || p.name.starts_with("embeddings.pos");
    EXPECT_EQ(x.to_vector<float>() == y.to_vector<float>(), frozen) << p.name;
  }
}

TEST_F(Freeze, AResumeKeepsWhatIsFrozenAndAnotherRunMayBeginFromIt) {
  TrainOptions o = options(EngineKind::ddp, "block0.*");
  o.out = scratch / "run";
  receipt_of(o);
  TrainOptions other = options(EngineKind::zero2, "block1.*");
  other.out = o.out, other.resume = "", other.steps = 3;
  const std::string message = test::error_of(ErrorKind::bad_input, [&] { receipt_of(other); });
  EXPECT_NE(message.find("was saved with frozen block0.*, this run has block1.*"),
            std::string::npos)
      << message;
  TrainOptions next = options(EngineKind::zero2, "block1.*");
  next.init_from = o.out, next.out = scratch / "next";
  const Json receipt = receipt_of(next);
  EXPECT_EQ(receipt["numerics"]["initial"], InitialWeights::open(family, o.out)->hash());
}

TEST_F(Freeze, APatternThatNamesNothingIsAUsageErrorOnEveryRank) {
  const std::string message =
      test::error_of(ErrorKind::usage, [&] { receipt_of(options(EngineKind::zero3, "blok*")); });
  EXPECT_NE(message.find("\"blok*\" names no parameter of this model; there are such as "
                         "embeddings.tokens.weight, block0.norm1.weight"),
            std::string::npos)
      << message;
}

}  // namespace
}  // namespace sg::models
