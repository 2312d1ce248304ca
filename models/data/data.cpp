#include "models/data/data.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/error.h"
#include "core/io/input_file.h"
#include "models/data/sampling.h"

namespace sg::models {
namespace {

constexpr uint64_t largest_text = uint64_t{4} << 30;  // texts are kept in memory

Tokenizer learned(const Tokenizer& tokenizer, std::string_view text, const std::string& name) {
  check(ErrorKind::bad_input, !text.empty(), "{}: a text to learn from can't be empty", name);
  return tokenizer.needs_text() ? CharTokenizer(text, name) : tokenizer;
}

}  // namespace

Dataset::Dataset(std::string path,
                 Tokenizer tokenizer,
                 std::shared_ptr<const TokenSource> source,
                 double val_fraction)
    : path_(std::move(path)), tokenizer_(std::move(tokenizer)), source_(std::move(source)) {
  check(val_fraction >= 0 && val_fraction < 1,
        "val-fraction: from 0 to below 1, not {}",
        val_fraction);
  training_size_ = static_cast<uint64_t>(static_cast<double>(source_->size()) * (1 - val_fraction));
}

uint64_t Dataset::training_windows(int64_t context) const {
  check(ErrorKind::bad_input,
        training_size_ > static_cast<uint64_t>(context),
        "{}: {} ids to train on, fewer than one window of context {} + 1",
        path_,
        training_size_,
        context);
  return training_size_ - static_cast<uint64_t>(context);
}

uint64_t Dataset::validation_windows(int64_t context) const {
  check(ErrorKind::bad_input,
        validation_size() > static_cast<uint64_t>(context),
        "{}: {} ids to validate on, fewer than one window of context {} + 1; use more data or "
        "another --val-fraction",
        path_,
        validation_size(),
        context);
  return (validation_size() - 1) / static_cast<uint64_t>(context);
}

void Dataset::append_window(uint64_t begin, int64_t context, Rows& rows) const {
  std::vector<int32_t> ids(static_cast<size_t>(context) + 1);
  source_->read(begin, ids);
  rows.tokens.insert(rows.tokens.end(), ids.begin(), ids.end() - 1);
  rows.targets.insert(rows.targets.end(), ids.begin() + 1, ids.end());
}

Rows Dataset::training_rows(const BatchOptions& o, uint64_t step, int64_t j) const {
  const auto unsigned_of = [](int64_t x) { return static_cast<uint64_t>(x); };
  const uint64_t number = unsigned_of(j) * unsigned_of(o.world) + unsigned_of(o.rank);
  const uint64_t first = o.first_sample(step, number);
  Rows rows{.tokens = {},
            .targets = {},
            .context = o.context,
            .step = step,
            .micro_batch = number,
            .first_sample = first};
  const uint64_t windows = training_windows(o.context);
  for (uint64_t sample = first; sample < first + unsigned_of(o.size); ++sample) {
    const Permutation order(windows, o.seed, sample / windows);
    append_window(order(sample % windows), o.context, rows);
  }
  return rows;
}

uint64_t Dataset::validation_batches(int64_t rows, int64_t context) const {
  check(rows > 0 && context > 0, "validation: batches of ({}, {})", rows, context);
  const uint64_t size = static_cast<uint64_t>(rows);
  return (validation_windows(context) + size - 1) / size;
}

Batch Dataset::validation_batch(uint64_t index, int64_t rows, int64_t context) const {
  const uint64_t batches = validation_batches(rows, context);
  check(index < batches, "validation: batch {} of {}", index, batches);
  const uint64_t first = index * static_cast<uint64_t>(rows);
  const uint64_t last = std::min(first + static_cast<uint64_t>(rows), validation_windows(context));
  Rows made{.context = context, .step = 0, .micro_batch = index, .first_sample = first};
  for (uint64_t window = first; window < last; ++window)
    append_window(training_size_ + window * static_cast<uint64_t>(context), context, made);
  return made.to_batch();
}

TextDataset::TextDataset(std::string_view text,
                         const std::string& name,
                         const Tokenizer& tokenizer,
                         double val_fraction)
    : Dataset(name, tokenizer, tokens_in_memory(tokenizer.encode(text, name)), val_fraction) {}

TextDataset TextDataset::of(std::string_view text,
                            const std::string& name,
                            Tokenizer tokenizer,
                            double val_fraction) {
  return {text, name, learned(tokenizer, text, name), val_fraction};
}

TextDataset::TextDataset(const std::string& path, Tokenizer tokenizer, double val_fraction)
    : TextDataset(of(read_file(path, largest_text), path, std::move(tokenizer), val_fraction)) {}

TokenDataset::TokenDataset(const std::string& path, int64_t vocabulary, double val_fraction)
    : Dataset(path, IdTokenizer(vocabulary), tokens_in_file(path, vocabulary), val_fraction) {}

Dataset open_dataset(const DataOptions& options) {
  const std::string& kind = options.tokenizer;
  check(kind.empty() || kind == "bytes" || kind == "chars",
        "tokenizer: bytes or chars, not \"{}\"",
        kind);
  const bool token_file = kind.empty() && options.path.ends_with(".bin");
  const Tokenizer fresh = kind == "chars" ? Tokenizer(CharTokenizer{}) : Tokenizer(ByteTokenizer{});
  const Tokenizer tokenizer =
      options.restored.value_or(token_file ? IdTokenizer(options.vocabulary) : fresh);
  const bool fits = token_file ? tokenizer.kind() == Tokenizer::Kind::ids
                               : tokenizer.kind() != Tokenizer::Kind::ids &&
                                     (kind.empty() || kind == tokenizer.name());
  check(fits,
        "tokenizer: the model was trained on {}, the data {} would be {}",
        tokenizer.name(),
        options.path,
        token_file ? "ids" : fresh.name());
  if (token_file)
    return TokenDataset(options.path, tokenizer.size(), options.val_fraction);
  if (options.path.empty())
    return TextDataset::of(
        project_sources(), "the project's sources", tokenizer, options.val_fraction);
  return TextDataset(options.path, tokenizer, options.val_fraction);
}

}  // namespace sg::models
