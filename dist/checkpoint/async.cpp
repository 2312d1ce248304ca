// The steps of a save on a thread beside training, and how ranks agree on them between training's.
#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <utility>

#include "core/shard_array.h"
#include "dist/checkpoint/ranks.h"
#include "dist/checkpoint/save.h"

namespace sg::dist {
namespace {

const std::string none_yet = "-";  // no outcome begins so

}  // namespace

AsyncSaver::AsyncSaver(const std::vector<StateEntry>& entries, const CheckpointRanks& ranks)
    : ranks_(ranks) {
  run_on_all(ranks_, [&] {
    std::map<DType, int64_t> elements;  // one array for each, which large pages back
    const std::vector<StateEntry> mine = part_of(entries, ranks_.rank, ranks_.size);
    for (const StateEntry& e : mine)
      elements[e.values.dtype()] += e.values.numel();
    std::map<DType, ShardArray> arrays;
    const DeviceGuard guard(host);
    for (const auto& [dtype, count] : elements)
      arrays.emplace(dtype, ShardArray(count, dtype, Category::optimizer));
    for (const StateEntry& e : mine)
      copies_.push_back(arrays.at(e.values.dtype()).next(e.values.numel()));
    return std::string();
  });
  // The first touch of memory takes longer than a copy; training needn't wait for it.
  touched_ = std::async(std::launch::async, [copies = copies_] {
    for (const Tensor& copy : copies)
      if (copy.bytes() > 0)
        std::memset(copy.view().data, 0, copy.bytes());
  });
}

AsyncSaver::~AsyncSaver() {
  if (!save_)
    return;
  save_->give_up();
  outcome_.wait();
  save_->abandon();
}

void AsyncSaver::start(const std::string& folder, const Checkpoint& checkpoint, int keep) {
  wait();
  touched_.wait();
  auto save = std::make_unique<Save>(folder, checkpoint, ranks_.rank, ranks_.size, keep);
  try {
    save->choose(run_file_work_on_all(ranks_, [&] { return save->begin(); }));
  } catch (...) {
    save->abandon();
    throw;
  }
  std::exception_ptr failure;  // of this rank alone: its outcome, which all learn
  try {
    save->copy_into(copies_);
  } catch (...) {
    failure = std::current_exception();
  }
  save_ = std::move(save);
  committing_ = false;
  run([save = save_.get(), failure] {
    if (failure)
      std::rethrow_exception(failure);
    return save->write();
  });
}

// Without a thread to be had it is done here and now.
void AsyncSaver::run(std::function<std::string()> part) {
  try {
    outcome_ = std::async(std::launch::async, [part] { return capture_outcome(part); }).share();
  } catch (const std::system_error&) {
    std::promise<std::string> done;
    done.set_value(capture_outcome(part));
    outcome_ = done.get_future().share();
  }
}

bool AsyncSaver::poll() {
  if (!save_)
    return true;
  return advance(busy() ? none_yet : outcome_.get());
}

bool AsyncSaver::busy() const {
  return save_ && outcome_.wait_for(std::chrono::seconds(0)) != std::future_status::ready;
}

void AsyncSaver::wait() {
  bool over = !save_;
  while (!over) {
    std::shared_ptr<void> busy = ranks_.busy ? ranks_.busy() : nullptr;
    outcome_.wait();
    busy.reset();
    over = advance(outcome_.get());
  }
}

// True: it is over. `mine`: this rank's outcome, or that it has none yet.
bool AsyncSaver::advance(const std::string& mine) {
  const std::vector<std::string> outcomes = exchange_outcomes(ranks_, mine);
  if (std::find(outcomes.begin(), outcomes.end(), none_yet) != outcomes.end())
    return false;
  try {
    const auto texts = read_outcomes(outcomes);
    if (!std::exchange(committing_, true)) {
      run([save = save_.get(), texts] {
        save->commit(texts);
        save->prune();
        return std::string();
      });
      return false;
    }
  } catch (...) {
    save_->abandon();
    save_.reset();
    throw;
  }
  save_.reset();
  return true;
}

}  // namespace sg::dist
