// ZeRO-3 (Rajbhandari et al., SC 2020, §5.3): parameters, gradients and optimizer state are all sharded. A unit's
// parameters are gathered before its forward, released after it, gathered again before its backward; its gradients are
// reduced to their owners like ZeRO-2's. Per rank: (P + G + K)·s bytes, and live: the unit that runs and those gathered
// ahead of it. Per step: two all-gathers and a reduce-scatter, 3fφ elements; with k micro-steps (2k + 1)fφ local first,
// 3kfφ ranks first.
#include <algorithm>

#include "core/ops.h"
#include "dist/engines.h"
#include "dist/gradient_memory.h"

namespace sg::dist {
namespace {

class Zero3 final : public ShardedGradients<BucketEngine> {
 public:
  Zero3(std::vector<Unit> units, const Options& options, Comm& comm)
      : ShardedGradients(std::move(units), options, comm) {}

 private:
  // A unit's own parameters: their shards here, and the slot that they are gathered into.
  struct Live {
    int64_t begin = 0, end = 0;  // in the flat space
    std::vector<int> buckets;
    std::shared_ptr<Storage> slot;
    std::vector<Work> arriving;
    bool ahead = false;  // gathered before it was asked for
    int calls = 0;       // forward calls of this micro-step whose backward hasn't ended
  };

  // ---- memory
  void allocate(const std::vector<Owned>& parts) override {
    allocate_means(parts);
    ShardArray shards(owned_size(parts), options_.precision, Category::parameters);
    for (const Owned& part : parts) shards_.push_back({part.begin, part.end, shards.next(part.end - part.begin)});
  }
  Tensor parameters_of(const Owned& part) override { return shard(part.begin, part.end); }
  // This rank's part of a message; empty where it owns nothing.
  Tensor shard(int64_t begin, int64_t end) const {
    const auto found = std::find_if(shards_.begin(), shards_.end(),
                                    [&](const OwnedRange& s) { return s.begin >= begin && s.end <= end; });
    return found == shards_.end() ? empty({0}, options_.precision) : found->parameters;
  }

  void place_parameters() override {
    live_.resize(units_.size());
    for (size_t b = 0; b < space_.buckets().size(); ++b) {
      const Bucket& bucket = space_.buckets()[b];
      Live& unit = live_[owner_of(space_.parameters()[static_cast<size_t>(bucket.first)].parameter)];
      if (unit.buckets.empty()) unit.begin = bucket.begin;
      unit.end = bucket.end;
      unit.buckets.push_back(static_cast<int>(b));
    }
    const uint64_t element = size_of(options_.precision);
    for (size_t u = 0; u < live_.size(); ++u) {
      const auto bytes = static_cast<uint64_t>(live_[u].end - live_[u].begin) * element;
      live_[u].slot =
          std::make_shared<Storage>(comm_.device(), bytes, Category::live, Storage::Start::empty, units_[u].name);
    }
    for (const Placed& placed : space_.parameters()) {
      Variable p = placed.parameter;
      const Live& unit = live_[owner_of(p)];
      p.set_tensor({unit.slot, placed.offset - unit.begin, p.shape(), dense_strides(p.shape()), options_.precision});
    }
    for (size_t u = 0; u < units_.size(); ++u) hook(u);
  }

  size_t owner_of(const Variable& p) const {
    const auto has = [&](const Unit& unit) {
      return std::find(unit.parameters.begin(), unit.parameters.end(), p) != unit.parameters.end();
    };
    return static_cast<size_t>(std::find_if(units_.begin(), units_.end(), has) - units_.begin());
  }

  // ---- parameters come and go
  // A unit needs its own parameters and, where it uses tied ones, those of the units that they belong to.
  void hook(size_t u) {
    std::vector<size_t> needed;
    for (const Variable& p : units_[u].parameters) {
      const size_t owner = owner_of(p);
      if (p.requires_grad() && std::find(needed.begin(), needed.end(), owner) == needed.end()) needed.push_back(owner);
    }
    const auto gather_all = [this, needed] {
      for (size_t owner : needed) gather(owner);
    };
    const auto release_all = [this, needed] {
      for (size_t owner : needed) live_[owner].slot->release();
    };
    const std::vector<int> own = only_used_by(u);
    const auto called = [this, u, gather_all] {
      if (training_) ++live_[u].calls;
      gather_all();
    };
    // Ranks must make their calls in one order, even where only some use a parameter: those that don't count it as zero
    // here, not at the end.
    const auto done = [this, u, own, release_all] {
      release_all();
      if (--live_[u].calls > 0) return;
      for (int position : own) count_as_zero(position);
    };
    *units_[u].hooks = {called, release_all, gather_all, done};
  }

  // Positions of the unit's own parameters that no other unit uses.
  std::vector<int> only_used_by(size_t u) const {
    std::vector<int> positions;
    for (const Variable& p : units_[u].parameters) {
      const auto uses = [&](const Unit& unit) {
        return std::find(unit.parameters.begin(), unit.parameters.end(), p) != unit.parameters.end();
      };
      if (p.requires_grad() && std::count_if(units_.begin(), units_.end(), uses) == 1)
        positions.push_back(space_.position_of(p));
    }
    return positions;
  }

  void gather(size_t u) {
    Live& unit = live_[u];
    if (!std::exchange(unit.ahead, false)) start_gather(u);
    for (Work& work : unit.arriving) work.wait();
    unit.arriving.clear();
    if (training_) prefetch(u);
  }

  void start_gather(size_t u) {
    Live& unit = live_[u];
    const bool here = unit.slot->resident();  // a tied parameter may be in use already
    unit.slot->acquire();
    if (here) return;
    for (int b : unit.buckets) {
      const auto& messages = space_.buckets()[static_cast<size_t>(b)].messages;
      for (size_t m = 0; m < messages.size(); ++m) {
        const Message& message = messages[m];
        const Tensor whole(unit.slot, message.begin - unit.begin, {message.size()}, {1}, options_.precision);
        const Call call{fmt::format("zero3.parameters.{}.{} of {}", b, m, units_[u].name),
                        training_ ? Phase::step : Phase::eval};
        unit.arriving.push_back(comm_.all_gather(call, shard(message.begin, message.end), message.shards, whole));
      }
    }
  }

  // The first micro-step records the order in which units are needed; later ones gather ahead of it within the budget.
  // A step that leaves the recorded order records anew.
  void prefetch(size_t u) {
    const bool expected = at_ < order_.size() && order_[at_] == u;
    if (!expected) order_.resize(std::min(at_, order_.size()));
    if (!expected) order_.push_back(u);
    ++at_;
    if (!options_.overlap) return;
    int64_t budget = options_.prefetch_elements;
    for (size_t next = at_; next < order_.size(); ++next) {
      Live& unit = live_[order_[next]];
      budget -= unit.end - unit.begin;
      if (budget < 0) return;
      if (unit.slot->resident()) continue;
      start_gather(order_[next]);
      unit.ahead = true;
    }
  }

  void begin_micro_step() override {
    training_ = true;
    at_ = 0;
  }
  void end_micro_step() override {
    training_ = false;
    for (Live& unit : live_) {  // gathered ahead, but the step took another way
      if (std::exchange(unit.ahead, false)) unit.slot->release();
      unit.calls = 0;
    }
  }

  // ---- gradients
  Work reduce(const Call& call, const Message& message, const Tensor& gradient, const Tensor& mean) override {
    return comm_.reduce_scatter(call, gradient, message.shards, mean, mean_reduction());
  }

  std::vector<OwnedRange> shards_;  // (s) of parameters, by message
  std::vector<Live> live_;          // by unit
  std::vector<size_t> order_;       // units as a micro-step needs them
  size_t at_ = 0;
  bool training_ = false;
};

}  // namespace

std::unique_ptr<BucketEngine> make_zero3(std::vector<Unit> units, const Options& options, Comm& comm) {
  return std::make_unique<Zero3>(std::move(units), options, comm);
}

}  // namespace sg::dist
