#include "dist/checkpoint/shards.h"

#include <algorithm>

#include "core/io/json.h"

namespace sg::dist {
namespace {

using nlohmann::json;

// A shard's metadata: the label's fields, and for each tensor, under "piece:" and its name, what it
// holds:
// {"parameter": "h.0.mlp.weight", "kind": "moment1", "shape": [512, 128], "begin": 0}; its length
// says where it ends.
constexpr const char* piece_key = "piece:";

Metadata label_metadata(const ShardLabel& label) {
  return {{"format", "shardgrad shard 1"},
          {"tag", label.tag},
          {"step", std::to_string(label.step)},
          {"rank", std::to_string(label.rank)},
          {"world", std::to_string(label.world)}};
}

std::string tensor_name(const StateEntry& entry) {
  return fmt::format("{}/{}/{}", entry.kind, entry.parameter, entry.begin);
}

}  // namespace

ShardFile write_shard(const std::string& path,
                      const ShardLabel& label,
                      std::span<const StateEntry> entries,
                      const std::atomic<bool>& given_up,
                      const std::function<Tensor(const StateEntry&)>& values) {
  Metadata metadata = label_metadata(label);
  std::vector<TensorInfo> tensors;
  for (const StateEntry& e : entries) {
    invariant(e.values.numel() == e.end - e.begin && 0 <= e.begin && e.end <= numel(e.shape),
              "checkpoint: {} of {}: {} values for [{}, {}) of {}",
              e.kind,
              e.parameter,
              e.values.numel(),
              e.begin,
              e.end,
              e.shape);
    tensors.push_back({tensor_name(e), e.values.dtype(), {e.end - e.begin}});
    metadata[piece_key + tensors.back().name] = json{
        {"parameter", e.parameter},
        {"kind", e.kind},
        {"shape", std::vector<int64_t>(e.shape.begin(), e.shape.end())},
        {"begin", e.begin}}.dump();
  }
  Sha256 hash;
  FileWriter file(path, &hash);
  SafetensorsWriter writer(file, tensors, metadata);
  for (const StateEntry& e : entries) {
    check(ErrorKind::io, !given_up, "{}: the save was given up", path);
    writer.write(values ? values(e) : e.values);
  }
  writer.check_complete();
  file.finish();
  return {file.bytes(), hash.hex()};
}

ShardIndex::ShardIndex(const std::string& checkpoint,
                       const std::string& tag,
                       uint64_t step,
                       int world)
    : checkpoint_(checkpoint) {
  for (int rank = 0; rank < world; ++rank) {
    shards_.push_back(std::make_unique<SafetensorsReader>(shard_path(checkpoint, rank, world)));
    add(*shards_.back(), {tag, step, rank, world});
  }
  for (auto& [name, array] : arrays_)
    std::sort(array.pieces.begin(),
              array.pieces.end(),
              [](const StoredPiece& a, const StoredPiece& b) { return a.begin < b.begin; });
  check_cover();
}

void ShardIndex::add(const SafetensorsReader& shard, const ShardLabel& label) {
  const Metadata& metadata = shard.metadata();
  for (const auto& [key, value] : label_metadata(label)) {
    const auto found = metadata.find(key);
    check(ErrorKind::bad_input,
          found != metadata.end() && found->second == value,
          "{}: its {} is {}, not {}; it belongs elsewhere",
          shard.path(),
          key,
          found == metadata.end() ? "missing" : found->second,
          value);
  }
  for (const auto& entry : shard.entries()) {
    const auto found = metadata.find(piece_key + entry.name);
    check(ErrorKind::bad_input,
          found != metadata.end(),
          "{}: nothing says what tensor {} is",
          shard.path(),
          entry.name);
    add_piece(shard, entry.name, found->second);
  }
}

void ShardIndex::add_piece(const SafetensorsReader& shard,
                           const std::string& tensor,
                           const std::string& description) {
  const auto require = [&](bool ok, const char* what) {
    check(ErrorKind::bad_input, ok, "{}: tensor {}: {}", shard.path(), tensor, what);
  };
  const auto is_size = [](const json& value) {
    return value.is_number_unsigned() && value.get<uint64_t>() <= INT64_MAX;
  };
  const json piece = parse_json(description, shard.path());
  require(piece.is_object() && piece.value("parameter", json()).is_string() &&
              piece.value("kind", json()).is_string(),
          "its parameter and kind are needed");
  require(is_size(piece.value("begin", json())), "its begin is needed");
  const json sizes = piece.value("shape", json());
  require(sizes.is_array() && sizes.size() <= max_rank &&
              std::all_of(sizes.begin(), sizes.end(), is_size),
          "its shape is needed");
  Shape shape;
  for (const json& size : sizes)
    shape.push_back(size.get<int64_t>());

  const auto* entry = shard.find(tensor);
  require(entry->shape.rank() == 1, "is not one-dimensional");
  const int64_t begin = piece["begin"].get<int64_t>(), length = entry->shape[0],
                whole = numel(shape);
  require(begin <= whole && length <= whole - begin, "reaches beyond its parameter");
  Array& array =
      arrays_
          .try_emplace({piece["kind"].get<std::string>(), piece["parameter"].get<std::string>()},
                       Array{shape, entry->dtype})
          .first->second;
  require(array.shape == shape && array.dtype == entry->dtype,
          "another shard gives the parameter another shape or dtype");
  array.pieces.push_back({begin, begin + length, &shard, entry});
}

void ShardIndex::check_cover() const {
  for (const auto& [name, array] : arrays_) {
    int64_t covered = 0;
    for (const StoredPiece& piece : array.pieces) {
      check(ErrorKind::bad_input,
            piece.begin == covered,
            "{}: {} of {}: elements from {} on are there {}",
            piece.shard->path(),
            name.first,
            name.second,
            std::min(piece.begin, covered),
            piece.begin < covered ? "twice" : "not at all");
      covered = piece.end;
    }
    check(ErrorKind::bad_input,
          covered == numel(array.shape),
          "{}: {} of {}: {} of {} elements are there",
          checkpoint_,
          name.first,
          name.second,
          covered,
          numel(array.shape));
  }
}

std::set<std::string> ShardIndex::kinds() const {
  std::set<std::string> found;
  for (const auto& [name, array] : arrays_)
    found.insert(name.first);
  return found;
}

std::map<std::string, Shape> ShardIndex::parameters(const std::string& kind) const {
  std::map<std::string, Shape> found;
  for (const auto& [name, array] : arrays_)
    if (name.first == kind)
      found[name.second] = array.shape;
  return found;
}

const ShardIndex::Array& ShardIndex::find(const std::string& parameter,
                                          const std::string& kind) const {
  const auto found = arrays_.find({kind, parameter});
  check(ErrorKind::bad_input,
        found != arrays_.end(),
        "{}: holds no {} of {}; is it another model's?",
        checkpoint_,
        kind,
        parameter);
  return found->second;
}

const Shape& ShardIndex::shape(const std::string& parameter, const std::string& kind) const {
  return find(parameter, kind).shape;
}

DType ShardIndex::dtype(const std::string& parameter, const std::string& kind) const {
  return find(parameter, kind).dtype;
}

void ShardIndex::read(const std::string& parameter,
                      const std::string& kind,
                      int64_t begin,
                      int64_t end,
                      const Tensor& out) const {
  const Array& array = find(parameter, kind);
  check(0 <= begin && begin <= end && end <= numel(array.shape) && out.rank() == 1 &&
            out.numel() == end - begin,
        "{}: elements [{}, {}) of {} of {}, shape {}, into {}",
        checkpoint_,
        begin,
        end,
        kind,
        parameter,
        array.shape,
        out.shape());
  for (const StoredPiece& piece : array.pieces) {
    const int64_t from = std::max(begin, piece.begin), to = std::min(end, piece.end);
    if (from < to)
      piece.shard->read_range(*piece.entry,
                              from - piece.begin,
                              to - piece.begin,
                              out.slice(0, from - begin, to - begin));
  }
}

}  // namespace sg::dist
