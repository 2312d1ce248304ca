// Weights from transformers' folders and back: the same logits, the same bits
// (tests/golden/make_hugging_face.py made the folders).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "core/device.h"
#include "core/io/safetensors.h"
#include "core/ops.h"
#include "models/run/commands.h"
#include "models/run/initial_weights.h"
#include "tests/core/temporary_folder.h"
#include "tests/golden/families.h"

namespace sg::models {
namespace {

namespace fs = std::filesystem;

const std::string golden = SG_SOURCE_DIR "/tests/golden/hugging_face/";

struct Row {
  const char* name;
  Family (*family)();
};
void PrintTo(const Row& row, std::ostream* out) {
  *out << row.name;
}

using Tensors = std::map<std::string, Tensor>;

void read_file(const std::string& path, Tensors& tensors) {
  const SafetensorsReader reader(path);
  for (const auto& entry : reader.entries())
    tensors.emplace(entry.name, reader.read(entry));
}

// Of all files of a folder.
Tensors tensors_of(const std::string& folder) {
  Tensors tensors;
  for (const auto& file : fs::directory_iterator(folder))
    if (file.path().extension() == ".safetensors")
      read_file(file.path().string(), tensors);
  return tensors;
}

struct HuggingFace : testing::TestWithParam<Row> {
  const std::string folder = golden + GetParam().name;
  const Family family = GetParam().family();
  const test::TemporaryFolder scratch;

  // What `import` and then `export` make of a folder.
  std::string exported(const std::string& from, DType dtype, int64_t shard_bytes) const {
    const std::string run = scratch / "run", out = scratch / "out";
    import_model(family, {.from = from, .to = run});
    export_model(family, {.from = run, .to = out, .dtype = dtype, .shard_bytes = shard_bytes});
    return out;
  }

  void expect_logits(const std::string& from, const char* wanted_name) const {
    Tensors values;
    read_file(folder + ".logits.safetensors", values);
    const auto weights = InitialWeights::open(family, from);
    const auto model = family.build(weights->size(), 1);
    for (const Variable& p : model->parameters())
      weights->read(p.name(), p.tensor());
    model->eval();
    const NoGrad guard;
    const std::vector<float> wanted = values.at(wanted_name).to_vector<float>();
    const auto ours = model->logits(values.at("tokens")).tensor().to_vector<float>();
    ASSERT_EQ(ours.size(), wanted.size());
    float away = 0, largest = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      away = std::max(away, std::abs(ours[i] - wanted[i]));
      largest = std::max(largest, std::abs(wanted[i]));
    }
    EXPECT_LE(away, 1e-5 * largest);
  }
};

TEST_P(HuggingFace, ImportedWeightsGiveTransformersLogits) {
  expect_logits(folder, "logits");
}

TEST_P(HuggingFace, ExportThroughTransformersAndBackGivesItsLogits) {
  expect_logits(folder + ".again", "logits_again");
}

void expect_same(const Tensors& ours, const Tensors& theirs) {
  EXPECT_EQ(ours.size(), theirs.size());
  for (const auto& [name, tensor] : theirs) {
    ASSERT_TRUE(ours.contains(name)) << name;
    const Tensor& other = ours.at(name);
    EXPECT_EQ(other.dtype(), tensor.dtype()) << name;
    ASSERT_EQ(other.shape(), tensor.shape()) << name;
    EXPECT_EQ(cast(other, DType::f32).to_vector<float>(),
              cast(tensor, DType::f32).to_vector<float>())
        << name;
  }
}

TEST_P(HuggingFace, ExportHasTransformersTensorsBitForBit) {
  const std::string out = exported(folder, DType::f32, 9000);
  EXPECT_TRUE(fs::exists(out + "/model.safetensors.index.json"));
  expect_same(tensors_of(out), tensors_of(folder));
}

TEST_P(HuggingFace, RoundedExportHasTransformersTensorsBitForBit) {
  const std::string again = folder + ".again";
  const std::string out = exported(again, DType::bf16, 1 << 30);
  EXPECT_TRUE(fs::exists(out + "/model.safetensors"));
  expect_same(tensors_of(out), tensors_of(again));
}

TEST_P(HuggingFace, ExportedConfigSaysWhatTransformersSays) {
  const std::string out = exported(folder, DType::f32, 1 << 30);
  const auto parse = [](const std::string& path) {
    return nlohmann::json::parse(test::contents_of(path));
  };
  const auto ours = parse(out + "/config.json"), theirs = parse(folder + "/config.json");
  for (const auto& [key, value] : ours.items()) {
    ASSERT_TRUE(theirs.contains(key)) << key;
    EXPECT_EQ(value, theirs[key]) << key;
  }
}

TEST(Golden, AUsersProgramLoadsAGpt2WithItsValuesOrNotAtAll) {
  for (const char* name : {"gpt2", "gpt2_untied"}) {
    const auto model = load_gpt2(golden + name);
    const auto weights = InitialWeights::open(test::gpt2_family(), golden + name);
    for (const Variable& p : model->parameters()) {
      const Tensor wanted = empty(p.shape());
      weights->read(p.name(), wanted);
      EXPECT_EQ(p.tensor().to_vector<float>(), wanted.to_vector<float>()) << p.name();
    }
  }
  EXPECT_THROW(load_gpt2(golden + "none"), Error);
  const DeviceGuard guard(meta());
  EXPECT_THROW(load_gpt2(golden + "gpt2"), Error);
}

INSTANTIATE_TEST_SUITE_P(Golden,
                         HuggingFace,
                         testing::Values(Row{"gpt2", test::gpt2_family},
                                         Row{"gpt2_untied", test::gpt2_family}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace sg::models
