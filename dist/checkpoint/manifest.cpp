#include "dist/checkpoint/manifest.h"

#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <utility>

#include "core/io/hash.h"
#include "core/io/input_file.h"
#include "core/io/json.h"
#include "dist/checkpoint/checkpoint.h"

namespace sg::dist {
namespace {

using nlohmann::json;

constexpr uint64_t longest_manifest = uint64_t{1} << 28;
constexpr uint64_t most_shards = 65'536;

template <class T>
T field(const json& object, const char* key, const std::string& path) {
  const json* value = object.is_object() && object.contains(key) ? &object[key] : nullptr;
  bool fits = false;
  if constexpr (std::is_same_v<T, uint64_t>)
    fits = value && value->is_number_unsigned();
  else if constexpr (std::is_same_v<T, std::string>)
    fits = value && value->is_string();
  else
    fits = value != nullptr;
  check(ErrorKind::bad_input, fits, "{}: {} is missing or of the wrong type", path, key);
  return value->get<T>();
}

json object(const json& content, const char* key, const std::string& path) {
  json value = field<json>(content, key, path);
  check(ErrorKind::bad_input,
        value.is_object(),
        "{}: {} must be an object, not {}",
        path,
        key,
        value.type_name());
  return value;
}

json as_json(const Manifest& m) {
  json shards = json::array();
  for (const ShardFile& shard : m.shards)
    shards.push_back({{"bytes", shard.bytes}, {"sha256", shard.sha256}});
  json content{{"format", "shardgrad checkpoint"},
               {"version", 1},
               {"tag", m.tag},
               {"step", m.step},
               {"sequence", m.sequence},
               {"world", m.shards.size()},
               {"numerics", parse_json(m.numerics, "numerics")},
               {"engine", parse_json(m.engine, "engine")},
               {"state", parse_json(m.state, "state")},
               {"shards", shards}};
  if (!m.run.empty())
    content["run"] = m.run;
  return content;
}

}  // namespace

std::string to_text(const Manifest& manifest) {
  json content = as_json(manifest);
  content["sha256"] = sha256(content.dump());  // of everything else
  return content.dump(1) + "\n";
}

Manifest read_manifest(const std::string& path, const std::string& tag) {
  const auto require = [&](bool ok, const char* rule) {
    check(ErrorKind::bad_input, ok, "{}: {}", path, rule);
  };
  json content = parse_json(read_file(path, longest_manifest), path);
  require(content.is_object() && content.value("format", json()) == "shardgrad checkpoint",
          "not a checkpoint's manifest");
  require(content.value("version", json()) == 1,
          "the manifest's version isn't 1, the one that is read");
  const std::string hash = field<std::string>(content, "sha256", path);
  content.erase("sha256");
  require(sha256(content.dump()) == hash,
          "damaged: its SHA-256 is not the one it was written with");

  Manifest m{.tag = field<std::string>(content, "tag", path),
             .step = field<uint64_t>(content, "step", path),
             .sequence = field<uint64_t>(content, "sequence", path),
             .numerics = object(content, "numerics", path).dump(),
             .engine = object(content, "engine", path).dump(),
             .state = object(content, "state", path).dump()};
  if (content.contains("run"))
    m.run = field<std::string>(content, "run", path);
  check(ErrorKind::bad_input, m.tag == tag, "{}: is the manifest of {}", path, m.tag);
  const json shards = field<json>(content, "shards", path);
  require(shards.is_array() && !shards.empty() && shards.size() <= most_shards,
          "1 to 65,536 shards are needed");
  for (const json& shard : shards)
    m.shards.push_back(
        {field<uint64_t>(shard, "bytes", path), field<std::string>(shard, "sha256", path)});
  return m;
}

std::string manifest_path(const std::string& checkpoint) {
  return checkpoint + "/manifest.json";
}

std::string shard_path(const std::string& checkpoint, int rank, int world) {
  return fmt::format("{}/shard-{:05}-of-{:05}.safetensors", checkpoint, rank, world);
}

bool is_tag(const std::string& tag) {
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) || c == '.' || c == '_' || c == '-';
  };
  return !tag.empty() && tag.size() <= 100 && tag[0] != '.' &&
         std::all_of(tag.begin(), tag.end(), allowed) && tag != "latest" &&
         tag.find(".tmp-") == std::string::npos;
}

void check_tag(const std::string& tag, ErrorKind kind) {
  check(kind,
        is_tag(tag),
        "checkpoint tag \"{}\": 1 to 100 letters, digits, . _ - without a leading dot; not "
        "\"latest\" or .tmp-",
        tag.c_str());
}

void check_folder(const std::string& path, ErrorKind kind) {
  const std::filesystem::path plain = path;  // a trailing slash would follow the link
  struct stat status;
  const std::string name = (plain.has_filename() ? plain : plain.parent_path()).string();
  check(kind, ::lstat(name.c_str(), &status) == 0, "{}: there is no such checkpoint folder", path);
  check(kind,
        !S_ISLNK(status.st_mode),
        "{}: a symbolic link; give the folder that it leads to",
        path);
  check(kind, S_ISDIR(status.st_mode), "{}: a folder is needed", path);
}

bool exists(const std::string& path) {
  struct stat status;
  return ::lstat(path.c_str(), &status) == 0;
}

std::vector<CheckpointName> list_checkpoints(const std::string& folder) {
  std::vector<CheckpointName> found;
  std::error_code absent;
  for (const auto& entry : std::filesystem::directory_iterator(folder, absent)) {
    const std::string tag = entry.path().filename().string();
    try {
      check_tag(tag, ErrorKind::bad_input);
      check_folder(entry.path().string(), ErrorKind::bad_input);
      const Manifest m = read_manifest(manifest_path(entry.path().string()), tag);
      found.push_back({tag, m.step, m.sequence, m.run});
    } catch (const std::exception&) {
      continue;  // something else that lies here, or damaged: not ours to count
    }
  }
  std::sort(found.begin(), found.end(), [](const CheckpointName& a, const CheckpointName& b) {
    return a.sequence < b.sequence;
  });
  return found;
}

}  // namespace sg::dist
