// ZeRO-3's live parameters: a unit's slot is filled before its ops run and emptied after them;
// where a recorded order says what comes next, the next ones are sent for ahead, within a budget.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/storage.h"
#include "dist/comm/comm.h"

namespace sg::dist {

class LiveUnits {
 public:
  struct Budget {
    int64_t ahead = 0;  // elements gathered before they are needed, at most
    int64_t live = 0;   // elements gathered at all, at most; 0: any
    bool overlap = true;
  };
  // Sends for everything that belongs into the unit's slot, which is resident by then.
  using Send = std::function<std::vector<Work>(size_t unit)>;

  // sizes, names: of each unit's slot, in elements of `dtype`.
  LiveUnits(Device device,
            DType dtype,
            const std::vector<int64_t>& sizes,
            const std::vector<std::string>& names,
            const Budget& budget,
            Send send);

  const std::shared_ptr<Storage>& slot(size_t unit) const { return units_[unit].slot; }
  // Whether these may be live together; a usage error that names `caller` otherwise.
  void check_fits(std::span<const size_t> units, const std::string& caller) const;

  bool live(size_t unit) const { return units_[unit].slot->resident(); }

  // They are whole when it returns, and stay so until they are released as often as they were
  // gathered. Usage error where more would be live than may be, as in a unit's call within
  // another's; after any error nothing has been gathered.
  void gather(std::span<const size_t> units);
  void release(std::span<const size_t> units);
  // The same, but within the budget ahead they stay until others are gathered: so the unit whose
  // forward came last is there for its backward and isn't gathered twice.
  void release_after_forward(std::span<const size_t> units);
  // The same for a forward that backward runs again: they stay for the backward that follows,
  // unless their room is needed before.
  void release_after_recompute(std::span<const size_t> units);

  // Only between these two is the order recorded and are units sent for ahead. The first micro-step
  // records; one that leaves the order records anew from there.
  void begin_micro_step();
  void end_micro_step();  // whatever is live still goes
  bool in_micro_step() const { return recording_; }

 private:
  struct Slot {
    int64_t size = 0;  // elements
    std::shared_ptr<Storage> slot;
    std::vector<Work> arriving;
    int uses = 0;        // how often it was acquired
    bool ahead = false;  // acquired before it is gathered
  };
  void acquire(size_t unit);
  void wait(size_t unit);
  void release(size_t unit);
  void check_room(std::span<const size_t> units);
  int64_t missing(std::span<const size_t> units) const;
  void take_kept(std::span<const size_t> units);
  void hand_on(size_t unit);
  void drop_kept();
  void drop_recomputed();
  void drop_ahead();
  void drop_all();
  void record(size_t unit);
  void send_ahead();
  int64_t size_of(std::span<const size_t> units) const;

  const Budget budget_;
  const Send send_;
  std::vector<Slot> units_;
  int64_t live_ = 0;                // elements resident
  std::vector<size_t> kept_;        // released after forward, but still resident
  std::vector<size_t> recomputed_;  // likewise after a forward that backward ran again
  std::vector<size_t> order_;       // units as a micro-step gathers them
  size_t at_ = 0;                   // how many of them it has gathered
  bool recording_ = false;
};

}  // namespace sg::dist
