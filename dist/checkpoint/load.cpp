#include <algorithm>

#include "core/io/input_file.h"
#include "core/ops.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/checkpoint/manifest.h"
#include "dist/checkpoint/ranks.h"
#include "dist/checkpoint/shards.h"

namespace sg::dist {
namespace {

constexpr uint64_t longest_latest = 4096;

std::string newest_tag(const std::string& folder) {
  const std::string latest = folder + "/latest";
  if (!exists(latest)) {
    const auto found = list_checkpoints(folder);
    check(ErrorKind::bad_input, !found.empty(), "{}: no checkpoint is here", folder);
    return found.back().tag;
  }
  std::string tag = read_file(latest, longest_latest);
  if (tag.ends_with('\n'))
    tag.pop_back();
  return tag;
}

void verify(const std::string& path, const ShardFile& expected) {
  const InputFile file(path);
  check(ErrorKind::bad_input,
        file.size() == expected.bytes,
        "{}: {} bytes, {} were saved",
        path,
        file.size(),
        expected.bytes);
  Sha256 hash;
  std::vector<char> buffer(std::min<uint64_t>(expected.bytes, uint64_t{1} << 22));
  for (uint64_t offset = 0; offset < expected.bytes; offset += buffer.size()) {
    const uint64_t part = std::min<uint64_t>(buffer.size(), expected.bytes - offset);
    file.read(offset, buffer.data(), part);
    hash.update(buffer.data(), part);
  }
  check(ErrorKind::bad_input,
        hash.hex() == expected.sha256,
        "{}: damaged: its SHA-256 is not the manifest's",
        path);
}

// " Other checkpoints here: a, b." for those that may be asked for by their tag.
std::string others(const std::string& folder, const std::string& tag) {
  std::string text;
  for (const CheckpointName& name : list_checkpoints(folder))
    if (name.tag != tag)
      text += (text.empty() ? "" : ", ") + name.tag;
  return text.empty() ? text : "; others that can be asked for: " + text;
}

}  // namespace

CheckpointReader::CheckpointReader(const std::string& folder,
                                   const std::string& tag,
                                   const CheckpointRanks& ranks)
    : tag_(tag) {
  const auto asked = run_file_work_on_all(ranks, [&] {
    check_folder(folder, ErrorKind::bad_input);
    if (ranks.rank == 0 && tag_.empty())
      tag_ = newest_tag(folder);
    return tag_;
  });
  for (const std::string& other : asked)
    check(other.empty() || other == asked[0],
          "resume: ranks ask for different checkpoints: \"{}\" and \"{}\"",
          asked[0],
          other);
  tag_ = asked[0];
  path_ = folder + "/" + tag_;
  try {
    open(ranks);
  } catch (const Error& e) {
    throw Error(e.kind(), e.what() + others(folder, tag_));
  }
}

void CheckpointReader::open(const CheckpointRanks& ranks) {
  run_file_work_on_all(ranks, [&] {
    check_tag(tag_, ErrorKind::bad_input);
    check_folder(path_, ErrorKind::bad_input);
    const Manifest manifest = read_manifest(manifest_path(path_), tag_);
    step_ = manifest.step;
    world_ = static_cast<int>(manifest.shards.size());
    numerics_ = manifest.numerics;
    engine_ = manifest.engine;
    state_ = manifest.state;
    run_ = manifest.run;
    for (int shard = ranks.rank; shard < world_; shard += ranks.size)
      verify(shard_path(path_, shard, world_), manifest.shards[static_cast<size_t>(shard)]);
    return std::string();
  });
  run_file_work_on_all(ranks, [&] {  // only now: a damaged shard is best told by its hash
    shards_ = std::make_unique<const ShardIndex>(path_, tag_, step_, world_);
    return std::string();
  });
}

CheckpointReader::~CheckpointReader() = default;

std::set<std::string> CheckpointReader::kinds() const {
  return shards_->kinds();
}

std::map<std::string, Shape> CheckpointReader::parameters(const std::string& kind) const {
  return shards_->parameters(kind);
}

void CheckpointReader::read(const std::string& parameter,
                            const std::string& kind,
                            int64_t begin,
                            int64_t end,
                            const Tensor& out) const {
  shards_->read(parameter, kind, begin, end, out);
}

void CheckpointReader::read_value(const std::string& parameter, const Tensor& out) const {
  const char* kind = shards_->holds(parameter, "frozen") ? "frozen" : "master";
  const DType dtype = shards_->dtype(parameter, kind);
  const Tensor values = dtype == out.dtype() ? out : empty(out.shape(), dtype, out.device());
  shards_->read(parameter, kind, 0, numel(shards_->shape(parameter, kind)), values);
  if (dtype != out.dtype())
    copy_(out, values);
}

void CheckpointReader::check_fits(std::span<const StateEntry> entries) const {
  for (const StateEntry& e : entries) {
    const Shape& saved = shards_->shape(e.parameter, e.kind);
    check(ErrorKind::bad_input,
          saved == e.shape,
          "{}: {} has shape {} there and {} here; is it another model's?",
          path_,
          e.parameter,
          saved,
          e.shape);
    check(ErrorKind::bad_input,
          shards_->dtype(e.parameter, e.kind) == e.values.dtype(),
          "{}: {} of {} is {} there and {} here; is its precision another?",
          path_,
          e.kind,
          e.parameter,
          name_of(shards_->dtype(e.parameter, e.kind)),
          name_of(e.values.dtype()));
  }
}

std::vector<Tensor> CheckpointReader::read_aside(std::span<const StateEntry> entries) const {
  check_fits(entries);
  const DeviceGuard guard(host);
  const CategoryScope scope(Category::optimizer);
  std::vector<Tensor> values;
  for (const StateEntry& e : entries) {
    values.push_back(empty(e.values.shape(), e.values.dtype()));
    shards_->read(e.parameter, e.kind, e.begin, e.end, values.back());
  }
  return values;
}

void CheckpointReader::read(std::span<const StateEntry> entries) const {
  const std::vector<Tensor> values = read_aside(entries);
  for (size_t i = 0; i < values.size(); ++i)
    copy_(entries[i].values, values[i]);
}

}  // namespace sg::dist
