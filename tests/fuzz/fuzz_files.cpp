// Files that were changed at random: each is read for what it holds or refused by a typed error,
// quickly and without taking memory that it only claims to need.

// Test: Fuzz.Files --count 3000
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <functional>
#include <nlohmann/json.hpp>

#include "core/device.h"
#include "core/io/hash.h"
#include "core/io/safetensors.h"
#include "core/ops.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/config/config.h"
#include "models/data/data.h"
#include "models/run/initial_weights.h"
#include "models/run/saved_run.h"
#include "tests/core/temporary_folder.h"
#include "tests/fuzz/fuzz.h"
#include "tests/golden/families.h"

namespace {

using namespace sg;
using nlohmann::json;
using test::contents_of;
using test::put;

constexpr unsigned most_seconds = 30;              // of a case
constexpr int64_t most_memory = int64_t{1} << 20;  // KiB of the process

// Values that are more than they seem.
std::string strange_text(fuzz::Random& random) {
  return random.pick<const char*>({"-1",
                                   "0",
                                   "1e400",
                                   "1e300",
                                   "9223372036854775807",
                                   "18446744073709551615",
                                   "1.5",
                                   "null",
                                   "true",
                                   "\"\"",
                                   "[]",
                                   "{}",
                                   "[[[[[[[[",
                                   "\"seven\"",
                                   "NaN",
                                   "\xFF\xFE",
                                   "1e-400",
                                   "4294967296"});
}

// A place of the text, seldom at its end.
size_t place(fuzz::Random& random, const std::string& text) {
  return static_cast<size_t>(random.between(0, static_cast<int64_t>(text.size())));
}

void change_bytes(fuzz::Random& random, std::string& text) {
  const size_t at = place(random, text), length = static_cast<size_t>(random.between(1, 8));
  switch (random.between(0, 5)) {
    case 0:
      if (at < text.size())
        text[at] = static_cast<char>(text[at] ^ (1 << random.between(0, 7)));
      return;
    case 1: text.resize(at); return;
    case 2: text.erase(at, length); return;
    case 3: text.insert(at, text.substr(place(random, text), length * 4)); return;
    case 4:
      text.replace(at,
                   std::min(length, text.size() - at),
                   std::string(length, static_cast<char>(random.next())));
      return;
    default: text.insert(at, strange_text(random)); return;
  }
}

// Another value at a random place of a JSON value, which stays one.
void change_json(fuzz::Random& random, json& value) {
  if (value.is_structured() && !value.empty() && random.chance(0.85)) {
    auto member = value.begin();
    std::advance(member, random.between(0, static_cast<int64_t>(value.size()) - 1));
    if (random.chance(0.1))
      value.erase(member);
    else
      change_json(random, *member);
    return;
  }
  const json other = json::parse(strange_text(random), nullptr, false);
  value = other.is_discarded() ? json(random.between(-9, 1 << 20)) : other;
}

std::string changed(fuzz::Random& random, std::string text) {
  if (json value = json::parse(text, nullptr, false); !value.is_discarded() && random.chance(0.5)) {
    change_json(random, value);
    return value.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  for (int64_t i = random.between(1, 3); i > 0; --i)
    change_bytes(random, text);
  return text;
}

// What a reader may answer; anything else that it throws fails the case. False: refused.
bool accepted(const std::function<void()>& read) {
  try {
    read();
    return true;
  } catch (const Error& e) {
    const std::string message = e.what();
    fuzz::expect(e.kind() == ErrorKind::bad_input || e.kind() == ErrorKind::usage,
                 "an error of kind {}: {}",
                 e.exit_code(),
                 message);
    fuzz::expect(
        message.find("json.exception") == std::string::npos, "a parser's own message: {}", message);
    return false;
  }
}

const test::TemporaryFolder& folder() {
  static const test::TemporaryFolder folder;
  return folder;
}

std::string valid_safetensors() {
  const std::string path = folder() / "valid";
  AtomicFileWriter file(path);
  SafetensorsWriter writer(
      file,
      {{"a", DType::f32, {2, 3}}, {"b", DType::i64, {0}}, {"c", DType::bf16, {5}}},
      {{"k", "v"}});
  for (const auto& [dtype, shape] :
       {std::pair(DType::f32, Shape{2, 3}), {DType::i64, {0}}, {DType::bf16, {5}}})
    writer.write(zeros(shape, dtype));
  file.commit();
  return contents_of(path);
}

void safetensors(fuzz::Random& random) {
  static const std::string valid = valid_safetensors();
  const std::string path = folder() / "tensors", text = changed(random, valid);
  put(path, text);
  accepted([&] {
    const SafetensorsReader reader(path);
    uint64_t bytes = 0;
    for (const auto& entry : reader.entries())
      bytes += reader.read(entry).bytes();
    uint64_t header = 0;
    std::memcpy(&header, text.data(), sizeof header);
    fuzz::expect(8 + header + bytes == text.size(),
                 "{} bytes of data, a header of {}, a file of {}",
                 bytes,
                 header,
                 text.size());
  });
}

// A checkpoint of two arrays, and one of its files changed; half of the manifests have a right hash
// all the same.
void checkpoint(fuzz::Random& random) {
  static const std::string out = folder() / "run", tag = out + "/t",
                           names[] = {"/manifest.json", "/shard-00000-of-00001.safetensors"};
  static const std::string valid[] = {
      [] {
        dist::save_checkpoint(out,
                              {.tag = "t",
                               .step = 3,
                               .entries = {{"w", "master", {4}, 0, 4, full({4}, 7)},
                                           {"v", "frozen", {2, 2}, 0, 4, full({4}, 8)}}});
        return contents_of(tag + names[0]);
      }(),
      contents_of(tag + names[1])};
  const bool shard = random.chance(0.3);
  put(tag + names[0], valid[0]);
  put(tag + names[1], valid[1]);
  std::string text = changed(random, valid[shard]);
  if (json manifest = json::parse(text, nullptr, false);
      !shard && manifest.is_object() && random.chance(0.7)) {
    manifest.erase("sha256");
    manifest["sha256"] = sha256(manifest.dump(-1, ' ', false, json::error_handler_t::replace));
    text = manifest.dump(-1, ' ', false, json::error_handler_t::replace);
  }
  put(tag + names[shard], text);
  dist::list_checkpoints(out);
  accepted([&] {
    const dist::CheckpointReader reader(out, "t");
    const Tensor w = zeros({4});
    reader.read_value("w", w);
    fuzz::expect(w.to_vector<float>() == std::vector<float>(4, 7), "other values were read");
    accepted([&] { models::numerics_of(reader); });
    accepted([&] { models::SavedRun::parse(reader.state(), reader.path()); });
  });
}

void saved_run(fuzz::Random& random) {
  models::SavedRun run;
  run.family = "gpt2";
  run.size.size = "nano";
  run.size.layers = run.size.heads = 2, run.size.width = 16, run.size.context = 8,
  run.size.vocab = 256;
  run.tokenizer = models::Tokenizer(models::ByteTokenizer{}).to_json();
  run.steps = 2;
  run.record.losses = {1, 2}, run.record.loss_scales = {1, 1}, run.record.skipped = {"", ""};
  run.record.validation = {{2, 1.5}};
  run.record.samples = 4, run.record.applied = 2;
  const std::string record = changed(random, run.record.text());
  json whole = json::parse(run.text());
  if (random.chance(0.5))
    whole["record"] = record;
  const std::string text = random.chance(0.5)
                               ? whole.dump(-1, ' ', false, json::error_handler_t::replace)
                               : changed(random, run.text());
  accepted([&] {
    const models::SavedRun read = models::SavedRun::parse(text, "run");
    fuzz::expect(*read.size.layers > 0 && *read.size.width > 0 && *read.size.vocab > 0,
                 "sizes of a model: {}",
                 text);
    fuzz::expect(
        read.record.losses.size() == read.record.skipped.size() && read.record.samples >= 0,
        "a record that can't be: {}",
        text);
  });
  accepted([&] { models::Tokenizer::from_json(changed(random, run.tokenizer), "tokenizer"); });
}

void config(fuzz::Random& random) {
  static const std::string valid =
      R"({"train_batch_size": 8, "gradient_accumulation_steps": 2, "gradient_clipping": 1.0,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.001, "betas": [0.9, 0.95],
                                             "weight_decay": 0.1}},
    "scheduler": {"type": "WarmupLR", "params": {"warmup_min_lr": 0, "warmup_max_lr": 0.001,
                                                "warmup_num_steps": 10}},
    "zero_optimization": {"stage": 2, "reduce_bucket_size": 500000, "overlap_comm": true},
    "bf16": {"enabled": true}})";
  const std::string text = changed(random, valid);
  accepted([&] { dist::parse_config(text, "config").options(2); });
}

void tokens(fuzz::Random& random) {
  const bool header = random.chance(0.5);
  std::string text;
  if (header) {
    std::vector<int32_t> words(256);
    words[0] = 20240520, words[1] = 1, words[2] = 300;
    text.assign(reinterpret_cast<const char*>(words.data()), 1024);
  }
  for (int i = 0; i < 300; ++i)
    text += {static_cast<char>(i % 50), 0};
  const std::string path = folder() / "tokens.bin";
  put(path, changed(random, text));
  accepted([&] {
    const models::TokenDataset data(path, 50);
    fuzz::expect(data.size() <= 1024, "{} ids", data.size());
    const Tensor ids = data.validation_batch(0, 1, 4).tokens;
    for (const int32_t id : ids.to_vector<int32_t>())
      fuzz::expect(0 <= id && id < 50, "id {}", id);
  });
  put(path,
      changed(random, "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich 🦔"));
  accepted([&] { models::TextDataset(path, models::CharTokenizer{}).training_windows(4); });
}

// A Hugging Face folder with one of its files changed.
void weights(fuzz::Random& random) {
  static const std::string valid = SG_SOURCE_DIR "/tests/golden/hugging_face/gpt2";
  static const std::string out = [] {
    std::filesystem::copy(valid, folder() / "weights");
    return folder() / "weights";
  }();
  static const models::Family family = test::gpt2_family();
  static const std::string hash = models::InitialWeights::open(family, valid)->hash();
  const std::string file = out + random.pick<const char*>({"/config.json",
                                                           "/config.json",
                                                           "/model.safetensors.index.json",
                                                           "/model-00002-of-00003.safetensors"});
  const std::string before = contents_of(file), text = changed(random, before);
  put(file, text);
  try {
    const auto read = models::InitialWeights::open(family, out);
    fuzz::expect(read->elements() == 7216, "{} parameters", read->elements());
    const bool same = read->hash() == hash;
    fuzz::expect(same || file.ends_with(".safetensors"), "other values were read");
  } catch (const Error& e) {
    fuzz::expect(e.kind() == ErrorKind::bad_input || e.kind() == ErrorKind::numeric,
                 "an error of kind {}: {}",
                 e.exit_code(),
                 e.what());
    fuzz::expect(std::string(e.what()).find("json.exception") == std::string::npos,
                 "a parser's own message: {}",
                 e.what());
  }
  put(file, before);
}

void one_case(fuzz::Random& random) {
  ::alarm(most_seconds);
  switch (random.between(0, 5)) {
    case 0: safetensors(random); break;
    case 1: checkpoint(random); break;
    case 2: saved_run(random); break;
    case 3: config(random); break;
    case 4: weights(random); break;
    default: tokens(random); break;
  }
  ::alarm(0);
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  fuzz::expect(usage.ru_maxrss < most_memory, "the process took {} KiB", usage.ru_maxrss);
}

}  // namespace

int main(int argc, char** argv) {
  return sg::fuzz::run(argc, argv, {.count = 3000, .long_factor = 20}, one_case);
}
