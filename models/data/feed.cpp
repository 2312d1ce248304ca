#include "models/data/feed.h"

#include "core/error.h"
#include "core/ledger.h"
#include "core/ops.h"
#include "models/data/data.h"

namespace sg::models {
namespace {

// Micro-batches of all ranks are neighbours in the order of samples: one reader takes them as one
// batch.
BatchOptions for_all_ranks(BatchOptions options) {
  options.size *= options.world;
  options.rank = 0;
  options.world = 1;
  return options;
}

}  // namespace

Feed::Feed(const Dataset& data, const BatchOptions& options, bool one_reader, dist::Comm& comm)
    : options_(options), scatters_(one_reader && options.world > 1), comm_(comm) {
  if (!scatters_)
    reader_.emplace(data, options);
  else if (options.rank == 0)
    reader_.emplace(data, for_all_ranks(options));
}

Batch Feed::next() {
  return scatters_ ? scattered() : read();
}

Batch Feed::read() {
  Batch batch;
  invariant(reader_->next(batch), "feed: the data ended after {} steps", options_.steps);
  return batch;
}

Batch Feed::scattered() {
  const Batch all = reader_ ? read() : Batch{};  // (world · size, context) at rank 0
  const CategoryScope scope(Category::data);
  const Shape shape{options_.size, options_.context};
  const auto micro_steps = static_cast<uint64_t>(options_.micro_batches),
             world = static_cast<uint64_t>(options_.world);
  const uint64_t number = taken_ % micro_steps * world + static_cast<uint64_t>(options_.rank);
  const uint64_t step = options_.first_step + taken_ / micro_steps;
  Batch mine{empty(shape, DType::i32),
             empty(shape, DType::i32),
             step,
             number,
             options_.first_sample(step, number)};
  const auto shards =
      dist::Shards::even(options_.world * mine.tokens.numel(), options_.world, mine.tokens.numel());
  comm_.scatter({"data.tokens", dist::Phase::metrics}, all.tokens, shards, mine.tokens, 0).wait();
  comm_.scatter({"data.targets", dist::Phase::metrics}, all.targets, shards, mine.targets, 0)
      .wait();
  ++taken_;
  return mine;
}

}  // namespace sg::models
