#include "dist/engines/live_units.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace sg::dist {

LiveUnits::LiveUnits(Device device,
                     DType dtype,
                     const std::vector<int64_t>& sizes,
                     const std::vector<std::string>& names,
                     const Budget& budget,
                     Send send)
    : budget_(budget), send_(std::move(send)) {
  constexpr auto empty = Storage::Start::empty;
  for (size_t u = 0; u < sizes.size(); ++u) {
    const uint64_t bytes = sizes[u] * sg::size_of(dtype);
    auto slot = std::make_shared<Storage>(device, bytes, Category::live, empty, names[u]);
    units_.push_back({sizes[u], std::move(slot), {}});
  }
}

int64_t LiveUnits::size_of(std::span<const size_t> units) const {
  int64_t size = 0;
  for (size_t u : units)
    size += units_[u].size;
  return size;
}

void LiveUnits::check_fits(std::span<const size_t> units, const std::string& caller) const {
  check(budget_.live == 0 || size_of(units) <= budget_.live,
        "zero3: {} needs {} parameters at once, at most {} may be live; raise that limit or make "
        "the unit smaller",
        caller,
        size_of(units),
        budget_.live);
}

void LiveUnits::gather(std::span<const size_t> units) {
  take_kept(units);
  check_room(units);
  size_t taken = 0;
  try {
    for (size_t u : units) {
      if (!std::exchange(units_[u].ahead, false))
        acquire(u);
      ++taken;
      if (recording_)
        record(u);
    }
    if (recording_ && budget_.overlap)
      send_ahead();
    for (size_t u : units)
      wait(u);
  } catch (...) {
    release(units.first(taken));
    throw;
  }
}

void LiveUnits::release(std::span<const size_t> units) {
  for (size_t u : units)
    release(u);
}

void LiveUnits::release_after_forward(std::span<const size_t> units) {
  drop_kept();
  if (!recording_ || size_of(units) > budget_.ahead)
    return release(units);
  kept_.assign(units.begin(), units.end());
}

void LiveUnits::release_after_recompute(std::span<const size_t> units) {
  if (!recording_)
    return release(units);
  recomputed_.insert(recomputed_.end(), units.begin(), units.end());
}

// ---- room

// Elements of those that aren't live yet.
int64_t LiveUnits::missing(std::span<const size_t> units) const {
  int64_t elements = 0;
  for (size_t u : units)
    elements += live(u) ? 0 : units_[u].size;
  return elements;
}

// Makes room for them.
void LiveUnits::check_room(std::span<const size_t> units) {
  if (budget_.live == 0)
    return;
  if (live_ + missing(units) > budget_.live)
    drop_ahead();  // the order was left
  if (live_ + missing(units) > budget_.live)
    drop_recomputed();
  const int64_t more = missing(units);
  if (more == 0 || live_ + more <= budget_.live)
    return;
  std::string names;
  for (const Slot& unit : units_)
    if (unit.uses > 0 && unit.size > 0)
      names += (names.empty() ? "" : ", ") + unit.slot->name();
  fail(ErrorKind::usage,
       "zero3: {} needs {} parameters more while {} of {} are live, at most {} may be: raise that "
       "limit, or don't call "
       "one unit within another",
       units_[units.back()].slot->name(),
       more,
       live_,
       names,
       budget_.live);
}

// ---- what stays for a while

// Of what has stayed, these are gathered now; the rest of what stayed after forward goes.
void LiveUnits::take_kept(std::span<const size_t> units) {
  const auto is_gathered = [&](size_t u) {
    return std::find(units.begin(), units.end(), u) != units.end();
  };
  for (size_t u : std::exchange(kept_, {})) {
    if (is_gathered(u))
      hand_on(u);
    else
      release(u);
  }
  for (size_t u : units) {
    const auto stayed = std::find(recomputed_.begin(), recomputed_.end(), u);
    if (stayed == recomputed_.end())
      continue;
    recomputed_.erase(stayed);
    hand_on(u);
  }
}

// To whoever gathers it next.
void LiveUnits::hand_on(size_t u) {
  if (std::exchange(units_[u].ahead, true))
    release(u);
}

void LiveUnits::drop_kept() {
  release(std::exchange(kept_, {}));
}

void LiveUnits::drop_recomputed() {
  release(std::exchange(recomputed_, {}));
}

void LiveUnits::drop_ahead() {
  for (size_t u = 0; u < units_.size(); ++u) {
    if (std::exchange(units_[u].ahead, false))
      release(u);
  }
}

void LiveUnits::drop_all() {
  kept_.clear();
  recomputed_.clear();
  for (size_t u = 0; u < units_.size(); ++u) {
    units_[u].ahead = false;
    while (units_[u].uses > 0)
      release(u);
  }
}

// ---- a slot

void LiveUnits::acquire(size_t u) {
  Slot& unit = units_[u];
  const bool here = live(u);  // a tied parameter may be in use already
  unit.slot->acquire();
  ++unit.uses;
  if (here)
    return;
  live_ += unit.size;
  try {
    unit.arriving = send_(u);
  } catch (...) {
    release(u);
    throw;
  }
}

void LiveUnits::wait(size_t u) {
  for (Work& work : units_[u].arriving)
    work.wait();
  units_[u].arriving.clear();
}

void LiveUnits::release(size_t u) {
  Slot& unit = units_[u];
  if (unit.uses == 0)
    return;  // a failure has released it
  if (--unit.uses == 0) {
    // Its memory is in use until everything has arrived; who gathers the unit again is told what
    // went wrong.
    try {
      wait(u);
    } catch (...) {
      unit.arriving.clear();
    }
  }
  unit.slot->release();
  if (unit.uses == 0)
    live_ -= unit.size;
}

// ---- the order

void LiveUnits::record(size_t u) {
  const bool expected = at_ < order_.size() && order_[at_] == u;
  if (!expected) {
    order_.resize(std::min(at_, order_.size()));
    order_.push_back(u);
  }
  ++at_;
}

void LiveUnits::send_ahead() {
  int64_t left = budget_.ahead;
  for (size_t next = at_; next < order_.size(); ++next) {
    Slot& unit = units_[order_[next]];
    left -= unit.size;
    if (left < 0)
      return;
    if (unit.slot->resident())
      continue;
    if (budget_.live > 0 && live_ + unit.size > budget_.live)
      return;
    acquire(order_[next]);
    unit.ahead = true;
  }
}

void LiveUnits::begin_micro_step() {
  drop_all();
  recording_ = true;
  at_ = 0;
}

void LiveUnits::end_micro_step() {
  recording_ = false;
  drop_all();  // kept, gathered ahead while the step took another way, or of a call that an
               // exception ended
}

}  // namespace sg::dist
