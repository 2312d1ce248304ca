#include "models/weights/files.h"

#include <algorithm>
#include <filesystem>
#include <set>

#include "core/error.h"
#include "core/io/json.h"
#include "core/ops.h"

namespace sg::models {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr const char* single_name = "model.safetensors";
constexpr const char* index_name = "model.safetensors.index.json";
constexpr uint64_t longest_index = 200'000'000;
constexpr size_t most_files = 100'000;
constexpr size_t most_listed = 8;

// One name, which leads nowhere else.
bool is_file_name(const std::string& name) {
  return name.ends_with(".safetensors") && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name.size() <= 255;
}

// Tensor name → file, of an index.
std::map<std::string, std::string> read_index(const std::string& path) {
  const json index = parse_json(read_file(path, longest_index), path, {.depth = 8});
  check(ErrorKind::bad_input,
        index.is_object() && index.contains("weight_map") && index["weight_map"].is_object(),
        "{}: an object with a weight_map is needed",
        path);
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : index["weight_map"].items()) {
    const bool good = file.is_string() && is_file_name(file.get<std::string>());
    check(ErrorKind::bad_input,
          good,
          "{}: weight_map: {}: a .safetensors file beside it is needed, not {}",
          path,
          tensor,
          file.dump(-1, ' ', false, json::error_handler_t::replace));
    files[tensor] = file.get<std::string>();
  }
  return files;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string text;
  for (size_t i = 0; i < names.size() && i < most_listed; ++i)
    text += (i > 0 ? ", " : "") + names[i];
  if (names.size() > most_listed)
    text += fmt::format(" and {} more", names.size() - most_listed);
  return text;
}

// What a comparison of parameters and files found.
struct Fit {
  std::vector<std::string> missing, unused, misshapen;
  int64_t parameters = 0, read = 0;  // elements

  void check(const std::string& folder) const {
    if (missing.empty() && unused.empty() && misshapen.empty())
      return;
    std::string text;
    const auto add = [&](const char* what, const std::vector<std::string>& names) {
      if (!names.empty())
        text += fmt::format("; {} ({}): {}", what, names.size(), list_of(names));
    };
    add("missing in the files", missing);
    add("in the files, but unused", unused);
    add("of another shape or dtype", misshapen);
    fail(ErrorKind::bad_input,
         "{}: the files don't make this model: {} of its {} parameters could be read{}",
         folder,
         read,
         parameters,
         text);
  }
};

bool is_weight(DType dtype) {
  return dtype == DType::f32 || is_16bit(dtype);
}

}  // namespace

WeightFiles::WeightFiles(const std::string& folder) : folder_(folder) {
  const std::string single = folder + "/" + single_name, index = folder + "/" + index_name;
  const bool has_single = fs::exists(single), has_index = fs::exists(index);
  check(ErrorKind::bad_input,
        has_single || has_index,
        "{}: there is no {} and no {}",
        folder,
        single_name,
        index_name);
  check(ErrorKind::bad_input,
        !has_single || !has_index,
        "{}: {} and {} are both there; which is meant? Remove the other",
        folder,
        single_name,
        index_name);
  if (has_index) {
    open_index(index);
    return;
  }
  files_.push_back(std::make_unique<SafetensorsReader>(single));
  add(*files_.back());
}

void WeightFiles::open_index(const std::string& path) {
  const std::map<std::string, std::string> where = read_index(path);
  std::set<std::string> names;
  for (const auto& [tensor, file] : where)
    names.insert(file);
  check(ErrorKind::bad_input,
        names.size() <= most_files,
        "{}: {} files, at most {}",
        path,
        names.size(),
        most_files);
  for (const std::string& name : names)
    files_.push_back(std::make_unique<SafetensorsReader>(folder_ + "/" + name));
  for (const auto& file : files_) {
    for (const auto& entry : file->entries()) {
      const auto found = where.find(entry.name);
      const std::string wanted = found == where.end() ? "no file" : found->second;
      check(ErrorKind::bad_input,
            folder_ + "/" + wanted == file->path(),
            "{}: holds {}, which {} has in {}",
            file->path(),
            entry.name,
            path,
            wanted);
    }
    add(*file);
  }
  for (const auto& [tensor, file] : where)
    check(ErrorKind::bad_input,
          tensors_.contains(tensor),
          "{}: {} isn't in {}, where {} has it",
          folder_,
          tensor,
          file,
          path);
}

void WeightFiles::add(const SafetensorsReader& file) {
  for (const auto& entry : file.entries())
    tensors_[entry.name] = {&file, &entry};
}

const WeightFiles::Found* WeightFiles::find(const std::string& name,
                                            const std::string& prefix) const {
  auto found = tensors_.find(name);
  if (found == tensors_.end() && !prefix.empty() && name.starts_with(prefix))
    found = tensors_.find(name.substr(prefix.size()));
  return found == tensors_.end() ? nullptr : &found->second;
}

void WeightFiles::check_layers(int64_t layers) const {
  check(ErrorKind::bad_input,
        layers <= std::ssize(tensors_),
        "{}: {} tensors are too few for {} layers",
        folder_,
        tensors_.size(),
        layers);
}

void WeightFiles::check_fits(const std::vector<TensorInfo>& parameters,
                             const WeightFormat& format) const {
  Fit fit;
  std::set<const void*> used;
  for (const TensorInfo& parameter : parameters) {
    const int64_t elements = numel(parameter.shape);
    fit.parameters += elements;
    bool whole = true;
    for (const WeightPart& part : format.parts(parameter.name, parameter.shape)) {
      const Found* const found = find(part.name, format.prefix);
      if (!found) {
        fit.missing.push_back(fmt::format("{} {}", part.name, part.shape));
        whole = false;
        continue;
      }
      used.insert(found->entry);
      const bool right = found->entry->shape == part.shape && is_weight(found->entry->dtype);
      whole = whole && right;
      if (!right) {
        const char* const dtype = name_of(found->entry->dtype);
        fit.misshapen.push_back(fmt::format(
            "{} is {} {}, {} is needed", part.name, dtype, found->entry->shape, part.shape));
      }
    }
    fit.read += whole ? elements : 0;
  }
  for (const auto& [name, found] : tensors_) {
    const bool passed = format.passes_over && format.passes_over(name);
    if (!used.contains(found.entry) && !passed)
      fit.unused.push_back(fmt::format("{} {}", name, found.entry->shape));
  }
  fit.check(folder_);
}

void WeightFiles::read(const std::string& parameter,
                       const WeightFormat& format,
                       const Tensor& out) const {
  int64_t begin = 0;
  for (const WeightPart& part : format.parts(parameter, out.shape())) {
    const Found* const found = find(part.name, format.prefix);
    invariant(found, "weights: {} isn't there, though it was", part.name);
    const Tensor theirs = found->file->map(*found->entry);
    Tensor value = part.transposed ? theirs.transposed() : theirs;
    const bool whole = value.numel() == out.numel();
    const int64_t rows = whole ? out.size(0) : value.numel() * out.size(0) / out.numel();
    const Tensor place = out.slice(0, begin, begin + rows);
    copy_(place, part.transposed ? value : value.reshape(place.shape()));
    found->file->check_whole();
    found->file->forget(*found->entry);
    begin += rows;
  }
}

std::string WeightFiles::dtypes() const {
  std::set<std::string> names;
  for (const auto& [name, found] : tensors_)
    names.insert(name_of(found.entry->dtype));
  std::string text;
  for (const std::string& name : names)
    text += (text.empty() ? "" : " and ") + name;
  return text;
}

// ---- writing

WeightFilesWriter::WeightFilesWriter(const std::string& folder,
                                     const std::vector<TensorInfo>& tensors,
                                     uint64_t shard_bytes)
    : folder_(folder), temporary_(folder + unique_suffix()) {
  std::error_code unknown;
  const bool free = !fs::exists(fs::symlink_status(folder_)) ||
                    (fs::is_directory(folder_, unknown) && fs::is_empty(folder_, unknown));
  check(ErrorKind::io, free, "{}: is there already; a new or an empty folder is needed", folder_);
  cut(tensors, shard_bytes);
  create_folders(temporary_);
  open_next();
}

WeightFilesWriter::~WeightFilesWriter() {
  writer_.reset();
  file_.reset();
  std::error_code left_there;
  fs::remove_all(temporary_, left_there);  // what finish() has not given its name
}

void WeightFilesWriter::cut(const std::vector<TensorInfo>& tensors, uint64_t shard_bytes) {
  uint64_t bytes = 0;
  for (const TensorInfo& tensor : tensors) {
    const uint64_t size = static_cast<uint64_t>(numel(tensor.shape)) * size_of(tensor.dtype);
    if (shards_.empty() || (bytes > 0 && bytes + size > shard_bytes)) {
      shards_.emplace_back();
      bytes = 0;
    }
    shards_.back().tensors.push_back(tensor);
    bytes += size;
  }
  const size_t count = shards_.size();
  for (size_t i = 0; i < count; ++i)
    shards_[i].name =
        count == 1 ? single_name : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, count);
}

void WeightFilesWriter::open_next() {
  if (shard_ == shards_.size())
    return;
  const Shard& shard = shards_[shard_];
  file_ = std::make_unique<FileWriter>(temporary_ + "/" + shard.name);
  writer_ = std::make_unique<SafetensorsWriter>(
      *file_, shard.tensors, Metadata{{"format", "pt"}});  // transformers asks for it
}

void WeightFilesWriter::write(const Tensor& tensor) {
  invariant(shard_ < shards_.size(), "{}: more tensors than were announced", folder_);
  writer_->write_cast(tensor);
  if (++written_ < shards_[shard_].tensors.size())
    return;
  close();
  ++shard_;
  written_ = 0;
  open_next();
}

void WeightFilesWriter::close() {
  writer_->check_complete();
  file_->finish();
  writer_.reset();
  file_.reset();
}

void WeightFilesWriter::add_file(const std::string& name, const std::string& text) {
  FileWriter file(temporary_ + "/" + name);
  file.write(text);
  file.finish();
}

std::string WeightFilesWriter::index() const {
  json map = json::object();
  uint64_t bytes = 0;
  for (const Shard& shard : shards_) {
    for (const TensorInfo& tensor : shard.tensors) {
      map[tensor.name] = shard.name;
      bytes += static_cast<uint64_t>(numel(tensor.shape)) * size_of(tensor.dtype);
    }
  }
  return json{{"metadata", {{"total_size", bytes}}}, {"weight_map", map}}.dump(2) + "\n";
}

void WeightFilesWriter::finish() {
  invariant(shard_ == shards_.size(), "{}: tensors are missing", folder_);
  if (shards_.size() > 1)
    add_file(index_name, index());
  sync_folder(temporary_);
  rename_durably(temporary_, folder_);
}

}  // namespace sg::models
