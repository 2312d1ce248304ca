#include "dist/engines/live_units.h"

#include <algorithm>
#include <utility>

#include "core/error.h"

namespace sg::dist {

LiveUnits::LiveUnits(Device device, DType dtype, const std::vector<int64_t>& sizes,
                     const std::vector<std::string>& names, const Budget& budget, Send send)
    : budget_(budget), send_(std::move(send)) {
  for (size_t u = 0; u < sizes.size(); ++u) {
    const uint64_t bytes = static_cast<uint64_t>(sizes[u]) * sg::size_of(dtype);
    units_.push_back(
        {sizes[u], std::make_shared<Storage>(device, bytes, Category::live, Storage::Start::empty, names[u]), {}});
  }
}

int64_t LiveUnits::size_of(std::span<const size_t> units) const {
  int64_t size = 0;
  for (size_t u : units) size += units_[u].size;
  return size;
}

void LiveUnits::check_fits(std::span<const size_t> units, const std::string& caller) const {
  check(budget_.live == 0 || size_of(units) <= budget_.live,
        "zero3: {} needs {} parameters at once, at most {} may be live; raise that limit or make the unit smaller",
        caller, size_of(units), budget_.live);
}

void LiveUnits::need(std::span<const size_t> units) {
  drop_kept(units);
  int64_t missing = 0;
  for (size_t u : units) missing += units_[u].slot->resident() ? 0 : units_[u].size;
  if (budget_.live > 0 && live_ + missing > budget_.live) drop_ahead();  // the order was left
  for (size_t u : units) {
    if (!std::exchange(units_[u].ahead, false)) start(u);
    if (recording_) record(u);
  }
  if (recording_ && budget_.overlap) send_ahead();
  for (size_t u : units) wait(u);
}

void LiveUnits::leave_forward(std::span<const size_t> units) {
  drop_kept({});
  if (!recording_ || size_of(units) > budget_.ahead) return leave(units);
  kept_.assign(units.begin(), units.end());
}

void LiveUnits::drop_kept(std::span<const size_t> needed) {
  for (size_t u : kept_) {
    if (std::find(needed.begin(), needed.end(), u) == needed.end()) release(u);
    else units_[u].ahead = true;
  }
  kept_.clear();
}

void LiveUnits::leave(std::span<const size_t> units) {
  for (size_t u : units) release(u);
}

void LiveUnits::start(size_t u) {
  Unit& unit = units_[u];
  const bool here = unit.slot->resident();  // a tied parameter may be in use already
  unit.slot->acquire();
  if (here) return;
  live_ += unit.size;
  unit.arriving = send_(u);
}

void LiveUnits::wait(size_t u) {
  for (Work& work : units_[u].arriving) work.wait();
  units_[u].arriving.clear();
}

void LiveUnits::release(size_t u) {
  units_[u].slot->release();
  if (!units_[u].slot->resident()) live_ -= units_[u].size;
}

void LiveUnits::drop_ahead() {
  for (size_t u = 0; u < units_.size(); ++u) {
    if (!std::exchange(units_[u].ahead, false)) continue;
    wait(u);  // its memory is in use until then
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
    if (left < 0) return;
    if (unit.slot->resident()) continue;
    if (budget_.live > 0 && live_ + unit.size > budget_.live) return;
    start(order_[next]);
    unit.ahead = true;
  }
}

void LiveUnits::begin_micro_step() {
  recording_ = true;
  at_ = 0;
}

void LiveUnits::end_micro_step() {
  recording_ = false;
  drop_kept({});
  drop_ahead();  // gathered ahead, but the step took another way
}

}  // namespace sg::dist
