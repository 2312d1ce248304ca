// ZeRO-3 (Rajbhandari et al., SC 2020, §5.3): parameters, gradients and optimizer state are all sharded. A unit's
// parameters are gathered before its forward, released after it, gathered again before its backward; its gradients are
// reduced to their owners like ZeRO-2's. Per rank: (P + G + K)·s bytes, and live: the unit that runs and those gathered
// ahead of it. Per step: two all-gathers and a reduce-scatter, 3fφ elements; with k micro-steps (2k + 1)fφ local first,
// 3kfφ ranks first; the unit whose forward came last is kept for its backward where the budget ahead allows it, which
// saves kfφ of it. Persistent parameters stay whole: Pφ bytes of theirs in place of P·s, gathered once after an update.
#include <algorithm>
#include <optional>

#include "core/ops.h"
#include "dist/engines/engines.h"
#include "dist/engines/gradient_memory.h"
#include "dist/engines/live_units.h"

namespace sg::dist {
namespace {

class Zero3 final : public ShardedGradients<BucketEngine> {
 public:
  Zero3(std::vector<Unit> units, const Options& options, Comm& comm)
      : ShardedGradients(std::move(units), options, comm) {}

 private:
  // What belongs to a unit: a tied parameter to the first that uses it.
  struct Own {
    std::vector<int> gathered, persistent;  // buckets
    int64_t begin = 0, end = 0;             // of the gathered ones, in the flat space
    std::vector<Work> arriving;             // persistent parameters, after an update
    int calls = 0;                          // forward calls of this micro-step whose backward hasn't ended
  };

  // ---- memory
  void allocate(const std::vector<Owned>& parts) override {
    allocate_means(parts);
    find_own_buckets();
    allocate_parameters(parts);
    std::vector<int64_t> sizes;
    std::vector<std::string> names;
    for (size_t u = 0; u < own_.size(); ++u) {
      sizes.push_back(own_[u].end - own_[u].begin);
      names.push_back(units_[u].name);
    }
    live_.emplace(comm_.device(), options_.precision, sizes, names,
                  LiveUnits::Budget{options_.prefetch_elements, options_.max_live_elements, options_.overlap},
                  [this](size_t u) { return send(own_[u].gathered, u); });
    for (size_t u = 0; u < units_.size(); ++u) hook(u);
  }

  void find_own_buckets() {
    own_.resize(units_.size());
    for (size_t b = 0; b < space_.buckets().size(); ++b) {
      const Bucket& bucket = space_.buckets()[b];
      Own& own = own_[owner_of(space_.parameters()[static_cast<size_t>(bucket.first)].parameter)];
      (bucket.persistent ? own.persistent : own.gathered).push_back(static_cast<int>(b));
      if (bucket.persistent) continue;
      if (own.gathered.size() == 1) own.begin = bucket.begin;
      own.end = bucket.end;
    }
  }

  // Shards of what is gathered, the whole of what is persistent.
  void allocate_parameters(const std::vector<Owned>& parts) {
    int64_t persistent = 0, sharded = 0;
    for (const Bucket& bucket : space_.buckets()) persistent += bucket.persistent ? bucket.size() : 0;
    for (const Owned& part : parts) sharded += is_persistent(part.bucket) ? 0 : part.end - part.begin;
    ShardArray whole(persistent, options_.precision, Category::parameters);
    ShardArray shards(sharded, options_.precision, Category::parameters);
    for (const Bucket& bucket : space_.buckets())
      if (bucket.persistent) held_.push_back({bucket.begin, bucket.end, whole.next(bucket.size())});
    for (const Owned& part : parts)
      if (!is_persistent(part.bucket)) held_.push_back({part.begin, part.end, shards.next(part.end - part.begin)});
    std::sort(held_.begin(), held_.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
  bool is_persistent(int bucket) const { return space_.buckets()[static_cast<size_t>(bucket)].persistent; }

  // A flat range of what this rank always holds; empty where it holds nothing of it.
  Tensor held(int64_t begin, int64_t end) const {
    const auto run =
        std::partition_point(held_.begin(), held_.end(), [&](const OwnedRange& r) { return r.end <= begin; });
    if (run == held_.end() || run->begin >= end) return empty({0}, options_.precision);
    return run->parameters.slice(0, std::max(begin, run->begin) - run->begin, std::min(end, run->end) - run->begin);
  }
  Tensor parameters_of(const Owned& part) override { return held(part.begin, part.end); }

  void place(const Placed& placed, const Tensor& value) override {
    Variable p = placed.parameter;
    const size_t owner = owner_of(p);
    if (is_persistent(space_.bucket_of(space_.position_of(p)))) {
      p.set_tensor(held(placed.offset, placed.offset + placed.size).reshape(p.shape()));
      copy_(p.tensor(), value);
    } else {
      p.set_tensor({live_->slot(owner), placed.offset - own_[owner].begin, p.shape(), dense_strides(p.shape()),
                    options_.precision});
    }
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
    const std::vector<size_t> needed = owners_of(units_[u].parameters);
    live_->check_fits(needed, units_[u].name);
    const auto gather = [this, needed] {
      live_->need(needed);
      for (size_t owner : needed) wait_for_persistent(own_[owner]);
    };
    const auto before_forward = [this, u, gather] {
      if (live_->in_micro_step()) ++own_[u].calls;
      gather();
    };
    const auto after_forward = [this, needed] { live_->leave_forward(needed); };
    // Ranks must make their calls in one order, even where only some use a parameter: those that don't count it as zero
    // here, not at the end.
    const auto after_backward = [this, u, needed, only_here = only_used_by(u)] {
      live_->leave(needed);
      if (--own_[u].calls > 0) return;
      for (int position : only_here) count_as_zero(position);
    };
    *units_[u].hooks = {before_forward, after_forward, gather, after_backward};
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

  // Owners send their shards of these buckets of a unit to everybody.
  std::vector<Work> send(const std::vector<int>& buckets, size_t u) {
    std::vector<Work> works;
    for (int b : buckets) {
      const auto& messages = space_.buckets()[static_cast<size_t>(b)].messages;
      for (size_t m = 0; m < messages.size(); ++m) {
        const Message& message = messages[m];
        const bool persistent = is_persistent(b);
        const Tensor whole = persistent ? held(message.begin, message.end)
                                        : Tensor(live_->slot(u), message.begin - own_[u].begin, {message.size()}, {1},
                                                 options_.precision);
        const Tensor shard = persistent ? message.shards.of(whole, comm_.rank()) : held(message.begin, message.end);
        const Call call{fmt::format("zero3.parameters.{}.{} of {}", b, m, units_[u].name),
                        persistent || live_->in_micro_step() ? Phase::step : Phase::eval};
        works.push_back(comm_.all_gather(call, shard, message.shards, whole));
      }
    }
    return works;
  }

  void publish() override {
    for (size_t u = 0; u < own_.size(); ++u) {
      own_[u].arriving = send(own_[u].persistent, u);
      if (!options_.overlap) wait_for_persistent(own_[u]);
    }
  }
  static void wait_for_persistent(Own& own) {
    for (Work& work : own.arriving) work.wait();
    own.arriving.clear();
  }
  void synchronize() override {
    for (Own& own : own_) wait_for_persistent(own);
  }

  // Units that these belong to.
  std::vector<size_t> owners_of(std::span<const Variable> parameters) const {
    std::vector<size_t> owners;
    for (const Variable& p : parameters) {
      const size_t owner = owner_of(p);
      if (p.requires_grad() && std::find(owners.begin(), owners.end(), owner) == owners.end()) owners.push_back(owner);
    }
    return owners;
  }
  void hold(std::span<const Variable> parameters) override {
    const std::vector<size_t> owners = owners_of(parameters);
    live_->check_fits(owners, "gather");
    live_->need(owners);
  }
  void let_go(std::span<const Variable> parameters) override { live_->leave(owners_of(parameters)); }

  void begin_micro_step() override { live_->begin_micro_step(); }
  void end_micro_step() override {
    live_->end_micro_step();
    for (Own& own : own_) own.calls = 0;
  }

  // ---- gradients
  Work reduce(const Call& call, const Message& message, const Tensor& gradient, const Tensor& mean) override {
    return comm_.reduce_scatter(call, gradient, message.shards, mean, mean_reduction());
  }

  std::vector<OwnedRange> held_;   // parameters that this rank always holds, by place: shards, by message, and whole
  std::vector<Own> own_;           // by unit
  std::optional<LiveUnits> live_;  // gathered parameters, by unit
};

}  // namespace

std::unique_ptr<BucketEngine> make_zero3(std::vector<Unit> units, const Options& options, Comm& comm) {
  return std::make_unique<Zero3>(std::move(units), options, comm);
}

}  // namespace sg::dist
