#include "core/io/safetensors.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/error.h"
#include "core/io/json.h"
#include "core/ops.h"

namespace sg {
namespace {

using nlohmann::json;

constexpr uint64_t max_header = 100'000'000;
constexpr uint64_t max_tensors = 1'000'000;
constexpr int64_t buffer_elements = 1 << 18;  // that are converted at once
constexpr std::pair<const char*, DType> dtypes[] = {{"F32", DType::f32},
                                                    {"F64", DType::f64},
                                                    {"F16", DType::f16},
                                                    {"BF16", DType::bf16},
                                                    {"I32", DType::i32},
                                                    {"I64", DType::i64},
                                                    {"U8", DType::u8},
                                                    {"BOOL", DType::boolean}};

const char* format_name(DType dtype) {
  return std::find_if(
             std::begin(dtypes), std::end(dtypes), [&](auto& d) { return d.second == dtype; })
      ->first;
}

template <class... Args>
void require(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  check(ErrorKind::bad_input, ok, format, std::forward<Args>(args)...);
}

DType parse_dtype(const json& value, const std::string& where) {
  require(value.is_string(), "{}: dtype must be text", where);
  for (const auto& [name, dtype] : dtypes)
    if (value == name)
      return dtype;
  fail(ErrorKind::bad_input,
       "{}: dtype {} is none of F64 F32 F16 BF16 I64 I32 U8 BOOL",
       where,
       value.dump());
}

// Not negative, not fractional, within 63 bits (nlohmann reads what is beyond 64 as a float).
int64_t parse_size(const json& value, const std::string& where, const char* what) {
  require(value.is_number_unsigned() && value.get<uint64_t>() <= INT64_MAX,
          "{}: {} must be integers from 0 to 2^63 - 1, not {}",
          where,
          what,
          value.dump());
  return value.get<int64_t>();
}

Shape parse_shape(const json& value, const std::string& where) {
  require(value.is_array(), "{}: shape must be an array", where);
  require(value.size() <= max_rank, "{}: {} dimensions, at most {}", where, value.size(), max_rank);
  Shape shape;
  for (const json& size : value)
    shape.push_back(parse_size(size, where, "sizes"));
  return shape;
}

// Elements × size of one; a product that overflows in any order is refused, although a zero would
// mend it.
uint64_t byte_size(const SafetensorsReader::Entry& entry, const std::string& where) {
  int64_t nonzero = static_cast<int64_t>(size_of(entry.dtype));
  bool empty = false, overflow = false;
  for (const int64_t size : entry.shape) {
    if (size == 0)
      empty = true;
    else
      overflow |= __builtin_mul_overflow(nonzero, size, &nonzero);
  }
  require(!overflow,
          "{}: shape {} of {} is more than 2^63 bytes",
          where,
          entry.shape,
          name_of(entry.dtype));
  return empty ? 0 : static_cast<uint64_t>(nonzero);
}

SafetensorsReader::Entry parse_entry(const std::string& name,
                                     const json& value,
                                     const std::string& file) {
  const std::string where = fmt::format("{}: tensor \"{}\"", file, name);
  require(value.is_object(), "{}: must be an object", where);
  for (const char* field : {"dtype", "shape", "data_offsets"})
    require(value.contains(field), "{}: {} is missing", where, field);
  require(value.size() == 3,
          "{}: has {} fields; it needs dtype, shape and data_offsets alone",
          where,
          value.size());
  SafetensorsReader::Entry entry;
  entry.name = name;
  entry.dtype = parse_dtype(value["dtype"], where);
  entry.shape = parse_shape(value["shape"], where);
  const json& offsets = value["data_offsets"];
  require(
      offsets.is_array() && offsets.size() == 2, "{}: data_offsets must be two integers", where);
  entry.begin = static_cast<uint64_t>(parse_size(offsets[0], where, "data_offsets"));
  entry.end = static_cast<uint64_t>(parse_size(offsets[1], where, "data_offsets"));
  require(entry.begin <= entry.end,
          "{}: ends at {}, before its begin {}",
          where,
          entry.end,
          entry.begin);
  const uint64_t bytes = byte_size(entry, where);
  require(entry.end - entry.begin == bytes,
          "{}: data_offsets span {} bytes, {} of {} is {}",
          where,
          entry.end - entry.begin,
          entry.shape,
          name_of(entry.dtype),
          bytes);
  return entry;
}

}  // namespace

SafetensorsReader::SafetensorsReader(const std::string& path) : file_(path) {
  const uint64_t size = file_.size();
  require(size >= 8, "{}: {} bytes, a safetensors file has at least 8", path, size);
  uint64_t length = 0;
  file_.read(0, &length, 8);
  require(length > 0 && length <= max_header,
          "{}: header of {} bytes; it has 1 to {}",
          path,
          length,
          max_header);
  require(length <= size - 8, "{}: header of {} bytes in a file of {}", path, length, size);
  data_begin_ = 8 + length;
  std::string header(length, '\0');
  file_.read(8, header.data(), length);
  require(header[0] == '{', "{}: the header must begin with {{", path);
  parse(header);
  check_layout(size - data_begin_);
}

void SafetensorsReader::parse(const std::string& header) {
  // A value of a real header takes five bytes or more; what has more values is refused before they
  // fill the memory.
  const json parsed = parse_json(header, path(), {.depth = 3, .values = header.size() / 4 + 64});
  require(parsed.size() <= max_tensors,
          "{}: {} tensors, at most {}",
          path(),
          parsed.size(),
          max_tensors);
  for (const auto& [name, value] : parsed.items()) {
    if (name != "__metadata__") {
      entries_.push_back(parse_entry(name, value, path()));
      continue;
    }
    require(value.is_object(), "{}: __metadata__ must be an object", path());
    for (const auto& [key, text] : value.items()) {
      require(text.is_string(),
              "{}: __metadata__.{} must be text, not {}",
              path(),
              key,
              text.type_name());
      metadata_[key] = text.get<std::string>();
    }
  }
  std::sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  for (size_t i = 0; i < entries_.size(); ++i)
    index_[entries_[i].name] = i;
}

// The data is covered exactly: no overlap, no hole, nothing missing, nothing behind the last
// tensor.
void SafetensorsReader::check_layout(uint64_t data_bytes) const {
  uint64_t covered = 0;
  for (const Entry& entry : entries_) {
    require(entry.begin == covered,
            "{}: tensor \"{}\" begins at {}, {} {}",
            path(),
            entry.name,
            entry.begin,
            entry.begin < covered ? "inside the one before, which ends at" : "after a hole from",
            covered);
    covered = entry.end;
  }
  require(covered == data_bytes,
          "{}: {} bytes of data, the header describes {}",
          path(),
          data_bytes,
          covered);
}

const SafetensorsReader::Entry* SafetensorsReader::find(const std::string& name) const {
  const auto found = index_.find(name);
  return found == index_.end() ? nullptr : &entries_[found->second];
}

void SafetensorsReader::copy_in(const Entry& entry, uint64_t begin, const Tensor& out) const {
  check(out.contiguous() && out.dtype() == entry.dtype,
        "{}: tensor \"{}\" of {} is read into a dense {}, not into {} {}",
        path(),
        entry.name,
        name_of(entry.dtype),
        name_of(entry.dtype),
        out.contiguous() ? "dense" : "strided",
        name_of(out.dtype()));
  if (out.bytes() == 0)
    return;
  file_.read(data_begin_ + entry.begin + begin, out.view().data, out.bytes());
  out.bump_version();
}

void SafetensorsReader::read_into(const Entry& entry, const Tensor& out) const {
  check(out.shape() == entry.shape,
        "{}: tensor \"{}\" has shape {}, not {}",
        path(),
        entry.name,
        entry.shape,
        out.shape());
  copy_in(entry, 0, out);
}

Tensor SafetensorsReader::read(const Entry& entry) const {
  Tensor out = empty(entry.shape, entry.dtype);
  copy_in(entry, 0, out);
  return out;
}

void SafetensorsReader::read_range(const Entry& entry,
                                   int64_t begin,
                                   int64_t end,
                                   const Tensor& out) const {
  const int64_t elements = numel(entry.shape);
  check(0 <= begin && begin <= end && end <= elements,
        "{}: elements [{}, {}) of tensor \"{}\", which has {}",
        path(),
        begin,
        end,
        entry.name,
        elements);
  check(out.numel() == end - begin,
        "{}: {} elements are read into {}",
        path(),
        end - begin,
        out.shape());
  copy_in(entry, static_cast<uint64_t>(begin) * size_of(entry.dtype), out);
}

const FileMapping& SafetensorsReader::mapping() const {
  std::call_once(mapped_, [this] { mapping_ = file_.map(); });
  return *mapping_;
}

Tensor SafetensorsReader::map(const Entry& entry) const {
  const uint64_t begin = data_begin_ + entry.begin;
  if (begin % size_of(entry.dtype) != 0 || entry.begin == entry.end) {
    const DeviceGuard guard(host);
    return read(entry);
  }
  char* const data = const_cast<char*>(mapping().data()) + begin;  // nobody writes there
  auto storage = std::make_shared<Storage>(host, data, entry.end - entry.begin);
  return {std::move(storage), 0, entry.shape, dense_strides(entry.shape), entry.dtype};
}

void SafetensorsReader::forget(const Entry& entry) const {
  mapping().forget(data_begin_ + entry.begin, entry.end - entry.begin);
}

void SafetensorsReader::check_whole() const {
  mapping().check_whole();
}

SafetensorsWriter::SafetensorsWriter(FileWriter& file,
                                     std::vector<TensorInfo> tensors,
                                     const Metadata& metadata)
    : file_(file), tensors_(std::move(tensors)) {
  json header = json::object();
  if (!metadata.empty())
    header["__metadata__"] = metadata;
  uint64_t offset = 0;
  for (const TensorInfo& t : tensors_) {
    const uint64_t end = offset + static_cast<uint64_t>(numel(t.shape)) * size_of(t.dtype);
    check(t.name != "__metadata__" && !header.contains(t.name),
          "{}: two tensors of the name \"{}\"",
          file.path(),
          t.name);
    header[t.name] = {{"dtype", format_name(t.dtype)},
                      {"shape", std::vector<int64_t>(t.shape.begin(), t.shape.end())},
                      {"data_offsets", {offset, end}}};
    offset = end;
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');  // the data begins aligned
  check(text.size() <= max_header,
        "{}: a header of {} bytes, at most {}",
        file.path(),
        text.size(),
        max_header);
  const uint64_t length = text.size();
  file_.write(&length, 8);
  file_.write(text);
}

const TensorInfo& SafetensorsWriter::next(const Tensor& tensor) {
  invariant(
      next_ < tensors_.size(), "{}: {} tensors were announced", file_.path(), tensors_.size());
  const TensorInfo& info = tensors_[next_++];
  check(tensor.shape() == info.shape,
        "{}: tensor \"{}\" was announced as {}, is {}",
        file_.path(),
        info.name,
        info.shape,
        tensor.shape());
  return info;
}

void SafetensorsWriter::write(const Tensor& tensor) {
  const TensorInfo& info = next(tensor);
  check(tensor.dtype() == info.dtype,
        "{}: tensor \"{}\" was announced as {}, is {}",
        file_.path(),
        info.name,
        name_of(info.dtype),
        name_of(tensor.dtype()));
  write_by_rows(tensor, info.dtype);
}

void SafetensorsWriter::write_cast(const Tensor& tensor) {
  const TensorInfo& info = next(tensor);
  write_by_rows(tensor, info.dtype);
}

// What isn't dense, or has another dtype, goes through a buffer of a few rows, so that no second
// tensor of its size is ever there.
void SafetensorsWriter::write_by_rows(const Tensor& tensor, DType dtype) {
  if (tensor.numel() == 0)
    return;
  if (tensor.contiguous() && tensor.dtype() == dtype) {
    file_.write(tensor.view().data, tensor.bytes());
    return;
  }
  const Tensor rows = tensor.contiguous() ? tensor.flatten() : tensor;
  const int64_t count = rows.size(0), length = rows.numel() / count;
  const int64_t at_once = std::clamp<int64_t>(buffer_elements / length, 1, count);
  Shape shape = rows.shape();
  shape.set(0, at_once);
  const CategoryScope scope(Category::workspace);
  const Tensor buffer = empty(shape, dtype, tensor.device());
  for (int64_t row = 0; row < count; row += at_once) {
    const int64_t end = std::min(count, row + at_once);
    const Tensor part = buffer.slice(0, 0, end - row);
    copy_(part, rows.slice(0, row, end));
    file_.write(part.view().data, part.bytes());
  }
}

void SafetensorsWriter::check_complete() const {
  invariant(next_ == tensors_.size(),
            "{}: {} tensors were announced, {} written",
            file_.path(),
            tensors_.size(),
            next_);
}

}  // namespace sg
