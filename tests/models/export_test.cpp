// `export`: what it writes is the trained model, bit for bit.
#include <gtest/gtest.h>

#include <filesystem>

#include "core/io/hash.h"
#include "core/io/input_file.h"
#include "core/io/safetensors.h"
#include "core/ops.h"
#include "dist/launch.h"
#include "models/gpt2/gpt2.h"
#include "models/run/commands.h"
#include "models/run/receipt.h"
#include "tests/core/temporary_folder.h"
#include "tests/errors.h"

namespace sg::models {
namespace {

using test::TemporaryFolder;

Gpt2Options sizes(const SizeOptions& o) {
  return {.layers = 2, .heads = 2, .width = 16, .context = 16, .vocab = *o.vocab, .tied = o.tied};
}

const Family family{"gpt2",
                    "nano",
                    [](SizeOptions& o, int64_t vocab) {
                      o.layers = o.heads = 2, o.width = o.context = 16;
                      o.vocab = o.vocab.value_or(vocab);
                    },
                    {},
                    [](const SizeOptions& o, uint64_t seed) {
                      auto model = std::make_unique<Gpt2>(sizes(o));
                      model->initialize(seed);
                      return model;
                    }};

struct Export : testing::Test {
  void SetUp() override {
    std::string text;
    for (int i = 0; i < 400; ++i)
      text += "the wall has " + std::to_string(i % 17) + " bottles. ";
    test::put(folder / "text", text);
  }
  // The receipt's params_sha256 of a run that has saved into folder/run.
  std::string train_in(const std::string& run,
                       dist::EngineKind engine,
                       DType precision,
                       bool tied) const {
    TrainOptions options;
    options.size.tied = tied;
    options.data.path = folder / "text";
    options.data.val_fraction = 0;
    options.engine.engine = engine;
    options.engine.precision = precision;
    options.engine.first_bucket_bytes = options.engine.bucket_bytes = 8 << 10;
    options.batch.micro = 2, options.steps = 3, options.quiet = true;
    options.out = folder / run, options.receipt = folder / "receipt";
    dist::run_threads(2, [&](dist::Comm& comm) { models::train(family, options, comm); });
    return Json::parse(test::contents_of(options.receipt)).at("params_sha256");
  }
  TemporaryFolder folder;
};

struct Case {
  dist::EngineKind engine;
  DType precision;
  bool tied;
};

TEST_F(Export, HasTheParametersOfTheRunBitForBitInRegistrationOrder) {
  for (const Case& c : {Case{dist::EngineKind::zero3, DType::f32, true},
                        Case{dist::EngineKind::ddp, DType::f32, false},
                        Case{dist::EngineKind::zero2, DType::bf16, true},
                        Case{dist::EngineKind::zero1, DType::f16, false}}) {
    SCOPED_TRACE(testing::Message() << dist::name_of(c.engine) << " " << name_of(c.precision));
    const std::string run = dist::name_of(c.engine) + std::string(name_of(c.precision));
    const std::string trained = train_in(run, c.engine, c.precision, c.tied),
                      file = folder / (run + ".safetensors");
    export_model(family, {.from = folder / run, .to = file});
    const SafetensorsReader reader(file);
    SizeOptions size;
    size.vocab = reader.entries().front().shape[0], size.tied = c.tied;
    const Gpt2 model(sizes(size));
    nn::StateDict state = model.state();
    Sha256 hash;
    for (const auto& entry : reader.entries()) {
      EXPECT_EQ(entry.dtype, DType::f32);
      ASSERT_TRUE(state.contains(entry.name)) << entry.name;
      EXPECT_EQ(entry.shape, state.at(entry.name).shape());
      hash_as_f32(hash, reader.read(entry));
    }
    EXPECT_EQ(reader.entries().size(), state.size()) << "a tied one once, and all of them";
    EXPECT_EQ(hash.hex(), trained) << "the receipt's hash is of the masters";
  }
}

TEST_F(Export, RoundsMastersToNearestEvenAndReplacesTheFile) {
  train_in("run", dist::EngineKind::zero3, DType::f32, true);
  const std::string file = folder / "model.safetensors", other = folder / "other.safetensors";
  export_model(family, {.from = folder / "run", .to = file});
  for (const DType dtype : {DType::bf16, DType::f16}) {
    export_model(family, {.from = folder / "run", .to = other, .dtype = dtype});
    const SafetensorsReader exact(file), rounded(other);
    for (const auto& entry : exact.entries()) {
      const Tensor expected = cast(cast(exact.read(entry), dtype), DType::f32);
      const Tensor found = cast(rounded.read(*rounded.find(entry.name)), DType::f32);
      EXPECT_EQ(found.to_vector<float>(), expected.to_vector<float>()) << entry.name;
    }
  }
  EXPECT_EQ(folder.names(),
            (std::vector<std::string>{
                "model.safetensors", "other.safetensors", "receipt", "run", "text"}));
}

TEST_F(Export, RefusesWhatIsntACheckpointAndLeavesNoFile) {
  train_in("run", dist::EngineKind::ddp, DType::f32, true);
  const std::string file = folder / "model.safetensors";
  test::error_of(ErrorKind::bad_input,
                 [&] { export_model(family, {.from = folder / "none", .to = file}); });
  test::error_of(ErrorKind::io, [&] {
    export_model(family, {.from = folder / "run", .to = folder / "no/model.safetensors"});
  });
  Family other = family;
  other.name = "llama";
  test::error_of(ErrorKind::bad_input,
                 [&] { export_model(other, {.from = folder / "run", .to = file}); });
  const std::string shard = folder / "run/step-000003/shard-00001-of-00002.safetensors";
  std::string damaged = test::contents_of(shard);
  damaged.back() = static_cast<char>(damaged.back() ^ 1);
  test::put(shard, damaged);
  EXPECT_NE(test::error_of(ErrorKind::bad_input,
                           [&] { export_model(family, {.from = folder / "run", .to = file}); })
                .find(shard),
            std::string::npos);
  EXPECT_FALSE(std::filesystem::exists(file));
}

}  // namespace
}  // namespace sg::models
