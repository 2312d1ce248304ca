#include "models/weights/config_file.h"

#include <cmath>

#include "core/error.h"
#include "core/io/json.h"

namespace sg::models {
namespace {

using nlohmann::json;

constexpr int64_t largest = int64_t{1} << 31;

// Of a file's origin, of generation, or of how values are drawn and stored: no result depends on
// it.
constexpr const char* of_any_model[] = {"_name_or_path",
                                        "architectures",
                                        "bos_token_id",
                                        "dtype",
                                        "eos_token_id",
                                        "gradient_checkpointing",
                                        "id2label",
                                        "initializer_range",
                                        "label2id",
                                        "pad_token_id",
                                        "return_dict",
                                        "task_specific_params",
                                        "tokenizer_class",
                                        "torch_dtype",
                                        "use_cache",
                                        "transformers_version",
                                        "transformers.js_config"};

std::string text_of(const json& value) {
  return value.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace

ConfigFile::ConfigFile(const std::string& text, const std::string& source) : source_(source) {
  fields_ = parse_json(text, source);
  check(ErrorKind::bad_input, fields_.is_object(), "{}: an object is needed", source);
}

const json& ConfigFile::value(const char* key) {
  static const json none;
  seen_.insert(key);
  const auto found = fields_.find(key);
  return found == fields_.end() ? none : *found;
}

bool ConfigFile::has(const char* key) {
  return !value(key).is_null();
}

int64_t ConfigFile::whole(const char* key, int64_t low) {
  seen_.insert(key);
  return whole_field(fields_, key, source_, low, largest);
}

std::optional<int64_t> ConfigFile::optional_whole(const char* key, int64_t low) {
  if (!has(key))
    return std::nullopt;
  return whole(key, low);
}

double ConfigFile::number(const char* key, double otherwise) {
  const json& field = value(key);
  if (field.is_null())
    return otherwise;
  check(ErrorKind::bad_input,
        field.is_number(),
        "{}: {} must be a number, not {}",
        source_,
        key,
        text_of(field));
  return field.get<double>();
}

bool ConfigFile::flag(const char* key, bool otherwise) {
  const json& field = value(key);
  if (field.is_null())
    return otherwise;
  check(ErrorKind::bad_input,
        field.is_boolean(),
        "{}: {} must be true or false, not {}",
        source_,
        key,
        text_of(field));
  return field.get<bool>();
}

std::string ConfigFile::text(const char* key, const std::string& otherwise) {
  const json& field = value(key);
  if (field.is_null())
    return otherwise;
  check(ErrorKind::bad_input,
        field.is_string(),
        "{}: {} must be text, not {}",
        source_,
        key,
        text_of(field));
  return field.get<std::string>();
}

void ConfigFile::expect(const char* key, std::initializer_list<json> values) {
  const json& field = value(key);
  if (field.is_null())
    return;
  std::string allowed;
  for (const json& one : values) {
    if (field == one)
      return;
    allowed += (allowed.empty() ? "" : " or ") + text_of(one);
  }
  fail(ErrorKind::bad_input,
       "{}: {} {} can't be honoured; this family computes {}",
       source_,
       key,
       text_of(field),
       allowed);
}

void ConfigFile::ignore(std::initializer_list<const char*> keys) {
  seen_.insert(keys.begin(), keys.end());
}

void ConfigFile::finish() const {
  const std::set<std::string> usual(std::begin(of_any_model), std::end(of_any_model));
  for (const auto& [key, field] : fields_.items())
    check(
        ErrorKind::bad_input,
        field.is_null() || seen_.contains(key) || usual.contains(key),
        "{}: {} {} can't be honoured: this family doesn't know it; remove it if no result depends "
        "on it",
        source_,
        key,
        text_of(field));
}

}  // namespace sg::models
