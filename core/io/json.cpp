#include "core/io/json.h"

#include <set>
#include <utility>
#include <vector>

#include "core/error.h"

namespace sg {
namespace {

using Event = nlohmann::json::parse_event_t;

// Follows the parser through the text, which nlohmann calls back at every key, value and bracket;
// it stops by throwing.
class Watch {
 public:
  Watch(const std::string& source, const JsonLimits& limits) : source_(source), limits_(limits) {}

  bool operator()(int, Event event, nlohmann::json& parsed) {
    switch (event) {
      case Event::key: return key(parsed.get_ref<const std::string&>());
      case Event::object_start:
      case Event::array_start: return open();
      case Event::object_end:
      case Event::array_end: levels_.pop_back(); return true;
      case Event::value: return count();
    }
    return true;
  }

  std::string path() const {
    std::string path;
    for (const Level& level : levels_)
      path += (path.empty() || level.last.empty() ? "" : ".") + level.last;
    return path.empty() ? "the top level" : path;
  }

 private:
  struct Level {
    std::set<std::string> keys;
    std::string last;
  };

  bool key(const std::string& name) {
    Level& level = levels_.back();
    level.last = name;
    const bool first = level.keys.insert(name).second;
    check(ErrorKind::bad_input,
          first || limits_.repeated,
          "{}: the key {} is there twice",
          source_,
          path());
    if (!first)
      limits_.repeated->push_back(path());
    return true;
  }
  bool open() {
    check(ErrorKind::bad_input,
          levels_.size() < limits_.depth,
          "{}: nested deeper than {} at {}",
          source_,
          limits_.depth,
          path());
    levels_.emplace_back();
    return count();
  }
  bool count() {
    check(ErrorKind::bad_input,
          ++values_ <= limits_.values,
          "{}: more than {} values at {}",
          source_,
          limits_.values,
          path());
    return true;
  }

  const std::string& source_;
  const JsonLimits limits_;
  std::vector<Level> levels_;
  size_t values_ = 0;
};

}  // namespace

nlohmann::json parse_json(std::string_view text,
                          const std::string& source,
                          const JsonLimits& limits) {
  // nlohmann skips a byte-order mark and takes a NUL byte for the end.
  check(ErrorKind::bad_input,
        !text.starts_with("\xEF\xBB\xBF"),
        "{}: begins with a byte-order mark; save it without",
        source);
  const size_t nul = text.find('\0');
  check(ErrorKind::bad_input,
        nul == std::string_view::npos,
        "{}: a NUL byte at byte {} of the JSON text",
        source,
        nul);
  Watch watch(source, limits);
  try {
    return nlohmann::json::parse(text, std::ref(watch));
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::bad_input, "{}: not JSON, at {}: {}", source, watch.path(), complaint_of(e));
  }
}

std::string complaint_of(const nlohmann::json::exception& error) {
  const std::string what =
      error.what();  // "[json.exception.parse_error.101] parse error at line 1, column 3: …"
  return what.substr(what.find("] ") + 2);
}

int64_t whole_field(const nlohmann::json& object,
                    const char* key,
                    const std::string& source,
                    int64_t low,
                    int64_t high) {
  check(ErrorKind::bad_input,
        object.is_object() && object.contains(key),
        "{}: {} is missing",
        source,
        key);
  const nlohmann::json& value = object[key];
  const bool fits = value.is_number_integer() &&
                    (!value.is_number_unsigned() || value.get<uint64_t>() <= INT64_MAX);
  const int64_t number = fits ? value.get<int64_t>() : 0;
  check(ErrorKind::bad_input,
        fits && low <= number && number <= high,
        "{}: {} must be a whole number from {} to {}, not {}",
        source,
        key,
        low,
        high,
        value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
  return number;
}

}  // namespace sg
