// Data sets: a text or a token file as one long sequence of ids, cut into training and validation;
// batches of windows of it.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "models/data/batches.h"
#include "models/data/token_source.h"
#include "models/data/tokenizer.h"

namespace sg::models {

// Copies share the ids. The last val_fraction of the ids is for validation, the rest for training,
// as nanoGPT splits. Errors: bad_input, naming the file; a split shorter than one window (context +
// 1 ids) is one, once it is asked for.
class Dataset {
 public:
  const std::string& path() const { return path_; }
  const Tokenizer& tokenizer() const { return tokenizer_; }
  int64_t vocabulary() const { return tokenizer_.size(); }
  uint64_t size() const { return source_->size(); }
  uint64_t training_size() const { return training_size_; }
  uint64_t validation_size() const { return size() - training_size_; }
  const std::string& fingerprint() const { return source_->fingerprint(); }

  // Training: an epoch takes the window at every start offset once, in an order drawn from seed and
  // epoch.
  Batches batches(const BatchOptions& options) const { return Batches(*this, options); }
  Rows training_rows(const BatchOptions& options,
                     uint64_t step,
                     int64_t j) const;               // micro-batch j of options.rank
  uint64_t training_windows(int64_t context) const;  // of an epoch

  // Validation: consecutive windows without overlap over the whole split, in batches of `rows`, the
  // last one smaller; a rest shorter than a window is left out.
  uint64_t validation_batches(int64_t rows, int64_t context) const;
  Batch validation_batch(uint64_t index, int64_t rows, int64_t context) const;

 protected:
  Dataset(std::string path,
          Tokenizer tokenizer,
          std::shared_ptr<const TokenSource> source,
          double val_fraction);

 private:
  uint64_t validation_windows(int64_t context) const;
  void append_window(uint64_t begin, int64_t context, Rows& rows) const;

  std::string path_;
  Tokenizer tokenizer_;
  std::shared_ptr<const TokenSource> source_;
  uint64_t training_size_;
};

// A text: of a file, or one that is at hand, under a name for messages. Empty, or not UTF-8 where
// the tokenizer needs it, is bad_input. A CharTokenizer{} takes its vocabulary from the whole text.
class TextDataset : public Dataset {
 public:
  explicit TextDataset(const std::string& path,
                       Tokenizer tokenizer = ByteTokenizer{},
                       double val_fraction = 0.1);
  static TextDataset of(std::string_view text,
                        const std::string& name,
                        Tokenizer tokenizer,
                        double val_fraction = 0.1);

 private:
  TextDataset(std::string_view text,
              const std::string& name,
              const Tokenizer& tokenizer,
              double val_fraction);
};

// A file of 16-bit ids (token_source.h), each below `vocabulary`.
class TokenDataset : public Dataset {
 public:
  TokenDataset(const std::string& path, int64_t vocabulary, double val_fraction = 0.1);
};

// The text of the project's own sources in a fixed order. bad_input when they aren't any more where
// they were built.
std::string project_sources();

// What --data, --tokenizer and --val-fraction say.
struct DataOptions {
  std::string path{};  // empty: the project's own sources
  std::string
      tokenizer{};  // bytes or chars; empty: a token file where `path` ends in .bin, else bytes
  double val_fraction = 0.1;
  int64_t vocabulary = 50'257;          // of a token file
  std::optional<Tokenizer> restored{};  // a checkpoint's, whose ids must stay
};
Dataset open_dataset(const DataOptions& options);

}  // namespace sg::models
