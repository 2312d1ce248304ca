// Training batches, made ahead of their use by a thread of their own.
#pragma once
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "core/tensor.h"

namespace sg::models {

class Dataset;

// Rows of `context` ids and, as targets, the same windows one id further: i32 (rows, context),
// booked as data.
struct Batch {
  Tensor tokens, targets;
  uint64_t step = 0;
  uint64_t micro_batch = 0;   // its number within the step
  uint64_t first_sample = 0;  // global number of row 0; row i is first_sample + i
};

// Micro-batch j of rank r is number j·world + r of the step. Steps take the global samples one
// after another, a step's micro-batches in the order of their numbers, so what a step takes depends
// on how many it takes, never on how ranks share them.
struct BatchOptions {
  int64_t size = 1;  // rows of a micro-batch
  int64_t context = 64;
  uint64_t steps = 1;  // the last step is steps − 1
  uint64_t seed = 0;
  int64_t micro_batches = 1;  // of each rank and step
  int rank = 0, world = 1;
  uint64_t first_step = 0;  // where a resumed run goes on
  // Samples that the steps before first_step took; unless given, as many in a step as these options
  // take.
  std::optional<uint64_t> samples_before = {};

  uint64_t first_sample(uint64_t step,
                        uint64_t number) const;  // of micro-batch `number` of the step
};

// A batch in host memory.
struct Rows {
  std::vector<int32_t> tokens{}, targets{};
  int64_t context = 0;
  uint64_t step = 0, micro_batch = 0, first_sample = 0;
  Batch to_batch() const;  // on the current device
};

// The batches of `options` in order: for each step from first_step, micro-batches 0 … micro_batches
// − 1 of this rank. What comes depends on the options alone. The thread reads at most `depth`
// batches ahead, into host memory; next() makes the tensors, on the caller's thread and device. An
// error of the thread is thrown by the next() whose batch it spoilt.
class Batches {
 public:
  static constexpr size_t depth = 4;

  Batches(const Dataset& data, const BatchOptions& options);
  ~Batches();  // stops the thread
  Batches(Batches&&) noexcept;
  Batches& operator=(Batches&&) = delete;

  bool next(Batch& batch);  // false after the last

  class Iterator {
   public:
    explicit Iterator(Batches* batches) : batches_(batches) { ++*this; }
    Batch& operator*() { return batch_; }
    Iterator& operator++() {
      if (batches_ && !batches_->next(batch_))
        batches_ = nullptr;
      return *this;
    }
    bool operator!=(const Iterator& other) const { return batches_ != other.batches_; }

   private:
    Batches* batches_;
    Batch batch_;
  };
  Iterator begin() { return Iterator(this); }
  Iterator end() { return Iterator(nullptr); }

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace sg::models
