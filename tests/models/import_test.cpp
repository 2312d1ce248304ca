// Weights of Hugging Face's folders: what doesn't fit is refused with both sides named, what fits
// trains under every engine, and no more than one tensor is ever there beside the shards.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/device.h"
#include "core/io/safetensors.h"
#include "core/ops.h"
#include "dist/engine.h"
#include "dist/launch.h"
#include "models/run/commands.h"
#include "models/run/initial_weights.h"
#include "models/run/load.h"
#include "models/run/receipt.h"
#include "tests/core/temporary_folder.h"
#include "tests/errors.h"
#include "tests/golden/families.h"

namespace sg::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::contents_of;
using test::put;

const std::string golden = SG_SOURCE_DIR "/tests/golden/hugging_face/gpt2";
const std::string index_name = "/model.safetensors.index.json";
constexpr int64_t parameters = 7216;             // of that model
constexpr uint64_t largest_bytes = 4 * 64 * 16;  // of its largest tensor, f32

struct Import : testing::Test {
  const test::TemporaryFolder scratch;
  const std::string from = scratch / "from", to = scratch / "to";
  const Family family = test::gpt2_family();

  void SetUp() override { fs::copy(golden, from); }

  void edit(const std::string& file, const std::function<void(json&)>& change) const {
    json value = json::parse(contents_of(from + file));
    change(value);
    put(from + file, value.dump());
  }
  std::string refused(ErrorKind kind = ErrorKind::bad_input) const {
    const std::string message =
        test::error_of(kind, [&] { import_model(family, {.from = from, .to = to}); });
    EXPECT_TRUE(dist::list_checkpoints(to).empty());
    return message;
  }
  // The weights, changed, in one file.
  using Tensors = std::map<std::string, Tensor>;
  void rewrite(const std::function<void(Tensors&)>& change) const {
    Tensors tensors;
    for (const auto& file : fs::directory_iterator(from)) {
      if (file.path().extension() != ".safetensors")
        continue;
      const SafetensorsReader reader(file.path().string());
      for (const auto& entry : reader.entries())
        tensors.emplace(entry.name, reader.read(entry));
    }
    for (const auto& name : {"1", "2", "3"})
      fs::remove(from + "/model-0000" + name + "-of-00003.safetensors");
    fs::remove(from + index_name);
    change(tensors);
    std::vector<TensorInfo> infos;
    for (const auto& [name, tensor] : tensors)
      infos.push_back({name, tensor.dtype(), tensor.shape()});
    AtomicFileWriter file(from + "/model.safetensors");
    SafetensorsWriter writer(file, infos);
    for (const auto& [name, tensor] : tensors)
      writer.write(tensor);
    file.commit();
  }
};

void expect_in(const std::string& part, const std::string& message) {
  EXPECT_NE(message.find(part), std::string::npos) << message;
}

TEST_F(Import, MissingUnusedAndMisshapenTensorsAreListedWithWhatCouldBeRead) {
  rewrite([](Tensors& tensors) {
    tensors.erase("transformer.h.0.ln_1.bias");
    tensors["transformer.h.9.ln_1.bias"] = zeros({16});
    tensors["transformer.h.1.attn.c_proj.weight"] = zeros({16, 15});
    tensors["transformer.ln_f.weight"] = zeros({16}, DType::i32);
  });
  const std::string message = refused();
  expect_in(fmt::format("{} of its {} parameters could be read", parameters - 288, parameters),
            message);
  expect_in("missing in the files (1): transformer.h.0.ln_1.bias (16)", message);
  expect_in("in the files, but unused (1): transformer.h.9.ln_1.bias (16)", message);
  expect_in("transformer.h.1.attn.c_proj.weight is f32 (16, 15), (16, 16) is needed", message);
  expect_in("transformer.ln_f.weight is i32 (16), (16) is needed", message);
}

TEST_F(Import, NamesWithoutThePrefixMasksAndATiedHeadArePassedOver) {
  rewrite([](Tensors& tensors) {
    Tensors old;
    for (const auto& [name, tensor] : tensors)
      old[name.substr(std::string("transformer.").size())] = tensor;
    old["h.0.attn.bias"] = zeros({1, 1, 8, 8});
    old["h.0.attn.masked_bias"] = zeros({});
    old["lm_head.weight"] = old.at("wte.weight");
    tensors = old;
  });
  import_model(family, {.from = from, .to = to});
  EXPECT_EQ(InitialWeights::open(family, to)->hash(), InitialWeights::open(family, golden)->hash());
}

TEST_F(Import, EveryFloatTypeIsReadAndMisalignedDataToo) {
  const std::string plain = InitialWeights::open(family, from)->hash();
  rewrite([](Tensors& tensors) {
    tensors["transformer.h.0.attn.bias"] = zeros({1}, DType::u8);  // the rest begins at odd bytes
    for (auto& [name, tensor] : tensors)
      if (name.find("ln_") != std::string::npos)
        tensor = cast(tensor, name.ends_with("bias") ? DType::f16 : DType::bf16);
  });
  const auto weights = InitialWeights::open(family, from);
  const Tensor norm = empty({16}), exact = empty({16});
  InitialWeights::open(family, golden)->read("head.norm.weight", exact);
  weights->read("head.norm.weight", norm);
  EXPECT_EQ(norm.to_vector<float>(), cast(cast(exact, DType::bf16), DType::f32).to_vector<float>());
  EXPECT_NE(weights->hash(), plain);
}

TEST_F(Import, ANumberThatIsntFiniteIsNamed) {
  rewrite([](Tensors& tensors) { tensors["transformer.wpe.weight"] = full({8, 16}, NAN); });
  expect_in("embeddings.positions.weight isn't finite: element 0", refused(ErrorKind::numeric));
}

struct Bad {
  const char* name;
  std::function<void(const Import&)> damage;
  const char* message;
};
void PrintTo(const Bad& bad, std::ostream* out) {
  *out << bad.name;
}

// An index whose weight_map this changes.
std::function<void(const Import&)> map(std::function<void(json&)> change) {
  return [change](const Import& import) {
    import.edit(index_name, [&](json& index) { change(index["weight_map"]); });
};
}
std::function<void(const Import&)> config(const char* key, json value) {
  return [key, value](const Import& import) {
    import.edit("/config.json", [&](json& config) { config[key] = value; });
};
}

const Bad bad_folders[] = {
    {"NoFolder", [](const Import& i) { fs::remove_all(i.from); }, "there is no config.json"},
    {"NoWeights",
     [](const Import& i) { fs::remove(i.from + index_name); },
     "there is no model.safetensors and no model.safetensors.index.json"},
    {"BothKinds",
     [](const Import& i) { put(i.from + "/model.safetensors", "x"); },
     "are both there"},
    {"IndexIsNoJson", [](const Import& i) { put(i.from + index_name, "{"); }, "not JSON"},
    {"IndexIsAnArray", [](const Import& i) { put(i.from + index_name, "[]"); }, "a weight_map"},
    {"IndexWithoutMap",
     [](const Import& i) { put(i.from + index_name, "{\"metadata\":{}}"); },
     "a weight_map"},
    {"TensorTwiceInTheIndex",
     [](const Import& i) {
       put(i.from + index_name, R"({"weight_map":{"a":"x.safetensors","a":"x.safetensors"}})");
     },
     "weight_map.a is there twice"},
    {"FileIsANumber",
     map([](json& m) { m["transformer.wte.weight"] = 1; }),
     "a .safetensors file beside it is needed, not 1"},
    {"FileElsewhere",
     map([](json& m) { m["transformer.wte.weight"] = "../one.safetensors"; }),
     "beside it is needed"},
    {"FileOfAnotherKind",
     map([](json& m) { m["transformer.wte.weight"] = "config.json"; }),
     "beside it is needed"},
    {"FileWithANul",
     map([](json& m) { m["transformer.wte.weight"] = std::string("a\0b.safetensors", 15); }),
     "beside it is needed"},
    {"FileIsMissing",
     map([](json& m) { m["transformer.wte.weight"] = "none.safetensors"; }),
     "none.safetensors: can't be opened"},
    {"TensorInAnotherFile",
     map([](json& m) { std::swap(m["transformer.wte.weight"], m["transformer.ln_f.bias"]); }),
     "which"},
    {"TensorThatNoFileHas",
     map([](json& m) { m["more"] = m["transformer.wte.weight"]; }),
     "more isn't in model-"},
    {"TensorThatTheIndexLeavesOut",
     map([](json& m) { m.erase("transformer.wte.weight"); }),
     "has in no file"},
    {"AFolderForAFile",
     [](const Import& i) {
       const std::string file = i.from + "/model-00001-of-00003.safetensors";
       fs::remove(file);
       fs::create_directory(file);
     },
     "a file is needed, this is a folder"},
    {"CutFile",
     [](const Import& i) { fs::resize_file(i.from + "/model-00002-of-00003.safetensors", 4004); },
     "the header describes"},
    {"ConfigIsNoJson", [](const Import& i) { put(i.from + "/config.json", "x"); }, "not JSON"},
    {"ConfigIsAnArray", [](const Import& i) { put(i.from + "/config.json", "[]"); }, "an object"},
    {"ConfigKeyTwice",
     [](const Import& i) { put(i.from + "/config.json", R"({"n_head":1,"n_head":2})"); },
     "n_head is there twice"},
    {"NoModelType", config("model_type", nullptr), "model_type is missing"},
    {"AnotherModelType", config("model_type", "llama"), "model_type \"llama\" can't be honoured"},
    {"NoLayers", config("n_layer", 0), "n_layer must be a whole number from 1"},
    {"NegativeWidth", config("n_embd", -16), "n_embd must be a whole number from 1"},
    {"FractionalHeads", config("n_head", 1.5), "n_head must be a whole number"},
    {"LayersPastTheTensors", config("n_layer", 1 << 30), "28 tensors are too few for 1073741824"},
    {"HeadsThatDontDivide", config("n_head", 3), "heads must divide width"},
    {"AnotherVocabulary",
     config("vocab_size", 32),
     "transformer.wte.weight is f32 (31, 16), (32, 16) is needed"},
    {"AnotherActivation", config("activation_function", "relu"), "\"relu\" can't be honoured"},
    {"AnotherInnerWidth", config("n_inner", 63), "n_inner 63 can't be honoured"},
    {"AnotherEpsilon", config("layer_norm_epsilon", 1e-6), "can't be honoured"},
    {"ScaledByLayer",
     config("scale_attn_by_inverse_layer_idx", true),
     "scale_attn_by_inverse_layer_idx true can't be honoured"},
    {"ThreeRates", config("embd_pdrop", 0.2), "embd_pdrop 0.2 can't be honoured"},
    {"ARateOfOne", config("resid_pdrop", "0"), "resid_pdrop must be a number"},
    {"TiedByAWord", config("tie_word_embeddings", "yes"), "must be true or false"},
    {"AFieldThatNobodyKnows",
     config("rope_theta", 1e4),
     "rope_theta 10000.0 can't be honoured: this family doesn't know it"},
};

struct BadImport : Import, testing::WithParamInterface<Bad> {};

TEST_P(BadImport, IsRefusedNamedAndLeavesNoCheckpoint) {
  GetParam().damage(*this);
  expect_in(GetParam().message, refused());
}
INSTANTIATE_TEST_SUITE_P(Folders, BadImport, testing::ValuesIn(bad_folders), [](const auto& info) {
  return info.param.name;
});

// ---- training from them

struct Began : Import {
  TrainOptions options(dist::EngineKind engine, const std::string& weights) const {
    TrainOptions o;
    o.data.path = scratch / "ids.bin";
    o.data.val_fraction = 0;
    o.engine.engine = engine;
    o.engine.first_bucket_bytes = o.engine.bucket_bytes = 8 << 10;
    o.batch.micro = 2, o.steps = 2, o.quiet = true;
    o.init_from = weights, o.receipt = scratch / "receipt";
    return o;
  }
  Json receipt_of(const TrainOptions& o) const {
    std::string ids;
    for (int i = 0; i < 400; ++i)
      ids += {static_cast<char>(i * i % 31), 0};
    put(o.data.path, ids);
    dist::run_threads(2, [&](dist::Comm& comm) { train(family, o, comm); });
    return Json::parse(contents_of(o.receipt));
  }
};

TEST_F(Began, EveryEngineTrainsFromTheSameWeightsWhereverTheyLie) {
  import_model(family, {.from = from, .to = to});
  const Json ddp = receipt_of(options(dist::EngineKind::ddp, from));
  EXPECT_EQ(ddp["numerics"]["initial"], InitialWeights::open(family, from)->hash());
  TrainOptions random = options(dist::EngineKind::ddp, "");
  random.size = InitialWeights::open(family, from)->size();
  EXPECT_NE(receipt_of(random)["loss_bits"], ddp["loss_bits"]);
  for (const dist::EngineKind engine : {dist::EngineKind::dp,
                                        dist::EngineKind::zero1,
                                        dist::EngineKind::zero2,
                                        dist::EngineKind::zero3}) {
    const Json receipt = receipt_of(options(engine, to));
    for (const char* same : {"loss_bits", "params_sha256"})
      EXPECT_EQ(receipt[same], ddp[same]) << dist::name_of(engine) << " " << same;
    EXPECT_EQ(receipt["numerics"]["initial"], ddp["numerics"]["initial"]);
  }
}

TEST_F(Began, AResumeGoesOnWithTheCheckpointAndARandomRunIsToldApart) {
  TrainOptions o = options(dist::EngineKind::zero3, from);
  const Json whole = receipt_of(o);
  o.out = scratch / "run", o.save_every = 1;
  receipt_of(o);
  fs::remove_all(o.out + "/step-000002");
  fs::remove(o.out + "/latest");
  o.resume = "";
  o.init_from = scratch / "gone";
  EXPECT_EQ(receipt_of(o)["params_sha256"], whole["params_sha256"]);

  TrainOptions random = options(dist::EngineKind::zero3, "");
  random.size = InitialWeights::open(family, from)->size();
  random.out = scratch / "random";
  receipt_of(random);
  random.init_from = from, random.resume = "";
  expect_in("began with random values",
            test::error_of(ErrorKind::bad_input, [&] { receipt_of(random); }));
  TrainOptions imported = options(dist::EngineKind::ddp, "");
  import_model(family, {.from = from, .to = to});
  imported.size = random.size, imported.out = to, imported.resume = "";
  expect_in("begin with --init-from",
            test::error_of(ErrorKind::bad_input, [&] { receipt_of(imported); }));
}

TEST_F(Began, WeightsThatDontFitStopEveryRankBeforeTheFirstStep) {
  edit("/config.json", [](json& c) { c["vocab_size"] = 32; });
  const TrainOptions o = options(dist::EngineKind::zero3, from);
  expect_in("could be read", test::error_of(ErrorKind::bad_input, [&] { receipt_of(o); }));
  EXPECT_FALSE(fs::exists(o.receipt));
}

// ---- the books

TEST_F(Import, UnderZero3NoMoreThanOneTensorIsThereBesideTheShards) {
  const auto weights = InitialWeights::open(family, from);
  dist::run_threads(2, [&](dist::Comm& comm) {
    const auto model = build_on_meta(family, weights->size(), 1);
    pool(comm.device()).reset_peaks();
    const uint64_t before = pool(comm.device()).ledger().total();
    const dist::Options options{.engine = dist::EngineKind::zero3};
    const auto engine = dist::initialize(begin_with(*weights, model->units()), options, comm);
    const Ledger ledger = pool(comm.device()).ledger();
    EXPECT_LE(ledger.setup_peak() - ledger.total(), largest_bytes) << comm.rank();
    EXPECT_LT(ledger.total() - before, 4 * uint64_t{4 * parameters} * 2 / 3) << comm.rank();
  });
}

TEST_F(Import, ImportAndExportHoldOneTensor) {
  Pool& memory = pool(current_device());
  const auto peaks_of = [&](const std::function<void()>& work) {
    memory.reset_peaks();
    const uint64_t before = memory.ledger().total();
    work();
    EXPECT_EQ(memory.ledger().total(), before);
    EXPECT_EQ(memory.ledger().peak(Category::data), largest_bytes);
    EXPECT_LE(memory.ledger().total_peak() - before, largest_bytes + (uint64_t{1} << 20));
  };
  peaks_of([&] { import_model(family, {.from = from, .to = to}); });
  for (const DType dtype : {DType::f32, DType::bf16})
    peaks_of([&] {
      export_model(family, {.from = to, .to = scratch / name_of(dtype), .dtype = dtype});
    });
}

TEST_F(Import, ADeviceOfAThirdOfTheModelIsEnough) {
  const DeviceGuard guard(cpu(7));
  ImportOptions options{.from = from, .to = to};
  options.group.device.capacity = 4 * parameters / 3;
  import_model(family, options);
  EXPECT_EQ(InitialWeights::open(family, to)->hash(), InitialWeights::open(family, from)->hash());
  options.to = scratch / "small", options.group.device.capacity = largest_bytes - 1;
  test::error_of(ErrorKind::out_of_memory, [&] { import_model(family, options); });
  EXPECT_TRUE(dist::list_checkpoints(options.to).empty());
  configure(cpu(7), {});
}

// ---- where an export lands

TEST_F(Import, AnExportIsWholeOrNotThereAndNeverAmongARunsFiles) {
  import_model(family, {.from = from, .to = to});
  const auto refuse = [&](ErrorKind kind, const std::string& out) {
    return test::error_of(kind, [&] { export_model(family, {.from = to, .to = out}); });
  };
  expect_in("is the folder of a run", refuse(ErrorKind::usage, to));
  expect_in("lies in the folder of a run", refuse(ErrorKind::usage, to + "/out"));
  expect_in("lies in the folder of a run", refuse(ErrorKind::usage, to + "/step-000000"));
  fs::create_directory_symlink(to, scratch / "link");
  expect_in("the folder of a run", refuse(ErrorKind::usage, scratch / "link"));
  expect_in("a new or an empty folder is needed", refuse(ErrorKind::io, from));
  expect_in("holds a run already", test::error_of(ErrorKind::usage, [&] {
              import_model(family, {.from = from, .to = to});
            }));

  const std::string shard = to + "/step-000000/shard-00000-of-00001.safetensors";
  const std::string good = contents_of(shard);
  put(shard, good.substr(0, good.size() - 1) + "x");
  refuse(ErrorKind::bad_input, scratch / "out");
  put(shard, good);
  EXPECT_EQ(scratch.names(), (std::vector<std::string>{"from", "link", "to"}));
  fs::create_directory(scratch / "out");
  export_model(family, {.from = to, .to = scratch / "out/"});
  EXPECT_EQ(InitialWeights::open(family, scratch / "out")->hash(),
            InitialWeights::open(family, golden)->hash());
}

}  // namespace
}  // namespace sg::models
