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
  for (size_t u = 0; u < sizes.size(); ++u) {
    const uint64_t bytes = static_cast<uint64_t>(sizes[u]) * sg::size_of(dtype);
    units_.push_back(
        {sizes[u],
         std::make_shared<Storage>(device, bytes, Category::live, Storage::Start::empty, names[u]),
         {}});
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

void LiveUnits::need(std::span<const size_t> units) {
  drop_kept(units);
  check_room(units);
  size_t taken = 0;
  try {
    for (size_t u : units) {
      if (!std::exchange(units_[u].ahead, false))
        start(u);
      ++taken;
      if (recording_)
        record(u);
    }
    if (recording_ && budget_.overlap)
      send_ahead();
    for (size_t u : units)
      wait(u);
  } catch (...) {
    leave(units.first(taken));
    throw;
  }
}

// Makes room for those that aren't live yet.
void LiveUnits::check_room(std::span<const size_t> units) {
  if (budget_.live == 0)
    return;
  const auto missing = [&] {
    int64_t elements = 0;
    for (size_t u : units)
      elements += live(u) ? 0 : units_[u].size;
    return elements;
  };
  if (live_ + missing() > budget_.live)
    drop_ahead();  // the order was left
  const int64_t more = missing();
  if (more == 0 || live_ + more <= budget_.live)
    return;
  std::string names;
  for (const Unit& unit : units_)
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

void LiveUnits::leave_forward(std::span<const size_t> units) {
  drop_kept({});
  if (!recording_ || size_of(units) > budget_.ahead)
    return leave(units);
  kept_.assign(units.begin(), units.end());
}

void LiveUnits::drop_kept(std::span<const size_t> needed) {
  for (size_t u : kept_) {
    if (std::find(needed.begin(), needed.end(), u) == needed.end())
      release(u);
    else
      units_[u].ahead = true;
  }
  kept_.clear();
}

void LiveUnits::leave(std::span<const size_t> units) {
  for (size_t u : units)
    release(u);
}

void LiveUnits::start(size_t u) {
  Unit& unit = units_[u];
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
  Unit& unit = units_[u];
  if (unit.uses == 0)
    return;  // a failure has released it
  if (--unit.uses == 0) {
    // Its memory is in use until everything has arrived; who needs the unit again is told what went
    // wrong.
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

void LiveUnits::drop_ahead() {
  for (size_t u = 0; u < units_.size(); ++u) {
    if (std::exchange(units_[u].ahead, false))
      release(u);
  }
}

void LiveUnits::drop_all() {
  kept_.clear();
  for (size_t u = 0; u < units_.size(); ++u) {
    units_[u].ahead = false;
    while (units_[u].uses > 0)
      release(u);
  }
}

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
    Unit& unit = units_[order_[next]];
    left -= unit.size;
    if (left < 0)
      return;
    if (unit.slot->resident())
      continue;
    if (budget_.live > 0 && live_ + unit.size > budget_.live)
      return;
    start(order_[next]);
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
