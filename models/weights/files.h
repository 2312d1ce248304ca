// The tensors of a Hugging Face folder: model.safetensors, or the shards that
// model.safetensors.index.json names. Mapped, so that only what is read at the moment is in memory.
#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/io/safetensors.h"
#include "models/weights/format.h"

namespace sg::models {

class WeightFiles {
 public:
  // Opens all of them and reads their headers. Errors, bad_input, naming the file: none there, both
  // there, a bad file or index, a tensor that lies elsewhere than the index says.
  explicit WeightFiles(const std::string& folder);

  const std::string& folder() const { return folder_; }

  // Error bad_input where so many layers can't be in them: sizes that a few bytes claim could keep
  // the machine busy for long.
  void check_layers(int64_t layers) const;
  // Error bad_input unless the files have what makes up all of these parameters, of the right
  // shapes, in f32, f16 or bf16, and nothing else. It lists what is missing, what is unused and
  // what differs in shape, and says how many elements could have been read.
  void check_fits(const std::vector<TensorInfo>& parameters, const WeightFormat& format) const;

  // A parameter's value into `out`, f32, dense, of its shape. Takes no memory but out's. The files
  // fit (check_fits). Error bad_input where one has shrunk.
  void read(const std::string& parameter, const WeightFormat& format, const Tensor& out) const;

  std::string dtypes() const;  // "bf16", "f32 and f16"

 private:
  struct Found {
    const SafetensorsReader* file = nullptr;
    const SafetensorsReader::Entry* entry = nullptr;
  };
  void open_index(const std::string& path);
  void add(const SafetensorsReader& file);
  const Found* find(const std::string& name, const std::string& prefix) const;

  const std::string folder_;
  std::vector<std::unique_ptr<SafetensorsReader>> files_;
  std::map<std::string, Found> tensors_;
};

// Writes a folder of that kind, tensor by tensor: whole under its name at finish(), or not at all.
class WeightFilesWriter {
 public:
  // `folder` mustn't be there, or is empty: error io otherwise. A file closes before it would hold
  // more than `shard_bytes`; a larger tensor has one to itself.
  WeightFilesWriter(const std::string& folder,
                    const std::vector<TensorInfo>& tensors,
                    uint64_t shard_bytes);
  ~WeightFilesWriter();
  WeightFilesWriter(const WeightFilesWriter&) = delete;
  WeightFilesWriter& operator=(const WeightFilesWriter&) = delete;

  void write(const Tensor& tensor);  // the next one, rounded to its dtype
  void add_file(const std::string& name, const std::string& text);
  void finish();

 private:
  struct Shard {
    std::string name;
    std::vector<TensorInfo> tensors;
  };
  void cut(const std::vector<TensorInfo>& tensors, uint64_t shard_bytes);
  void open_next();
  void close();
  std::string index() const;

  const std::string folder_, temporary_;
  std::vector<Shard> shards_;
  size_t shard_ = 0;    // the open one; their number: none is open any more
  size_t written_ = 0;  // tensors of it
  std::unique_ptr<FileWriter> file_;
  std::unique_ptr<SafetensorsWriter> writer_;
};

}  // namespace sg::models
