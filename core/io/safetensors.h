// The safetensors format: 8 bytes of header length (little-endian), a JSON header, then the
// tensors' bytes without holes.
//   {"__metadata__": {"key": "text"}, "name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [0,
//   24]}, …}
// dtypes: F64 F32 F16 BF16 I64 I32 U8 BOOL.
#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/io/atomic_file.h"
#include "core/io/input_file.h"
#include "core/tensor.h"

namespace sg {

struct TensorInfo {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;
};

using Metadata = std::map<std::string, std::string>;

// Validates the whole header and the file's length when it is opened; the data stays on disk until
// it is read. Errors: bad_input, naming the file and the tensor. A dtype that isn't in the list
// above is refused.
class SafetensorsReader {
 public:
  struct Entry : TensorInfo {
    uint64_t begin = 0, end = 0;  // bytes from the start of the data
  };

  explicit SafetensorsReader(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<Entry>& entries() const { return entries_; }  // in the order of their data
  const Metadata& metadata() const { return metadata_; }
  const Entry* find(const std::string& name) const;  // null when there is none

  Tensor read(const Entry& entry) const;  // on the current device
  void read_into(
      const Entry& entry,
      const Tensor& out) const;  // out: dense, the entry's dtype and shape, else usage error
  // Elements [begin, end) of the row-major order into `out`, dense, one-dimensional, of the entry's
  // dtype.
  void read_range(const Entry& entry, int64_t begin, int64_t end, const Tensor& out) const;

  // The entry as it lies in the file, mapped into memory: on host, booked nowhere, only to be read,
  // and only while the reader lives. (Copied and booked where the file has it misaligned.) What was
  // computed from it counts once check_whole() has passed.
  Tensor map(const Entry& entry) const;
  void forget(const Entry& entry) const;  // its pages needn't stay in this process
  void check_whole() const;               // error bad_input where the file has shrunk since

 private:
  void parse(const std::string& header);
  void check_layout(uint64_t data_bytes) const;
  void copy_in(const Entry& entry, uint64_t begin, const Tensor& out) const;

  const FileMapping& mapping() const;

  InputFile file_;
  mutable std::once_flag mapped_;
  mutable std::unique_ptr<FileMapping> mapping_;  // null: nobody has asked for it
  uint64_t data_begin_ = 0;
  std::vector<Entry> entries_;
  std::map<std::string, size_t> index_;
  Metadata metadata_;
};

// Streams tensors into `file` one by one, so that no more than one needs to be in memory: the
// header comes first, from `tensors`, then write() is called once for each of them in that order.
// finish() and commit() are the file's.
class SafetensorsWriter {
 public:
  SafetensorsWriter(FileWriter& file,
                    std::vector<TensorInfo> tensors,
                    const Metadata& metadata = {});
  // The next one, of the shape and dtype that were announced.
  void write(const Tensor& tensor);
  // The next one, of the shape that was announced, rounded to the dtype that was.
  void write_cast(const Tensor& tensor);
  void check_complete() const;  // all are written, else a Bug

 private:
  const TensorInfo& next(const Tensor& tensor);
  void write_by_rows(const Tensor& tensor, DType dtype);

  FileWriter& file_;
  const std::vector<TensorInfo> tensors_;
  size_t next_ = 0;
};

}  // namespace sg
