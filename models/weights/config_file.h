// A Hugging Face config.json, field by field: what a family takes from it, what has to be as the
// family computes it, what changes nothing. Nothing is left unread in silence.
#pragma once
#include <cstdint>
#include <initializer_list>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>

namespace sg::models {

// Errors of everything here: bad_input, naming `source` and the field. A field that is null counts
// as not there.
class ConfigFile {
 public:
  ConfigFile(const std::string& text, const std::string& source);

  bool has(const char* key);
  int64_t whole(const char* key, int64_t low = 1);  // that must be there
  std::optional<int64_t> optional_whole(const char* key, int64_t low = 1);
  double number(const char* key, double otherwise);
  bool flag(const char* key, bool otherwise);
  std::string text(const char* key, const std::string& otherwise);
  const nlohmann::json& value(const char* key);  // null where it isn't there

  // Refuses another value than these; not there is fine.
  void expect(const char* key, std::initializer_list<nlohmann::json> values);
  void ignore(std::initializer_list<const char*> keys);  // they change nothing that is computed
  // Refuses what nobody has asked for, but for what every such file says of itself.
  void finish() const;

  const std::string& source() const { return source_; }

 private:
  const std::string source_;
  nlohmann::json fields_;
  std::set<std::string> seen_;
};

}  // namespace sg::models
