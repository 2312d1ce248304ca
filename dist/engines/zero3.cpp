// ZeRO-3 (Rajbhandari et al., SC 2020, §5.3): parameters, gradients and optimizer state are all
// sharded. A unit's parameters are gathered before its forward, released after it, gathered again
// before its backward; its gradients are reduced to their owners like ZeRO-2's. Per rank: (P + G +
// K)·s bytes, and live: the unit that runs and those gathered ahead of it. Per step: two
// all-gathers and a reduce-scatter, 3fφ elements; with k micro-steps (2k + 1)fφ local first, 3kfφ
// ranks first; the unit whose forward came last is kept for its backward where the budget ahead
// allows it, which saves kfφ of it. Persistent parameters stay whole: Pφ bytes of theirs in place
// of P·s, gathered once after an update.
#include <algorithm>
#include <optional>

#include "autograd/recompute.h"
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
  ~Zero3() override { retire(); }

 private:
  // What belongs to a unit: a tied parameter to the first that uses it.
  struct Own {
    std::vector<int> gathered, persistent;  // buckets
    int64_t begin = 0, end = 0;             // of the gathered ones, in the flat space
    std::vector<Work> arriving;             // persistent parameters, after an update
    int calls = 0;              // forward calls of this micro-step whose backward hasn't ended
    int backward_calls = 0;     // running
    bool used_outside = false;  // of the unit's calls, in this micro-step: it stays until the end
  };
  // Of a trainable parameter.
  struct Use {
    size_t owner = 0;           // unit
    std::vector<size_t> users;  // units
    bool outside = false;       // it was read outside of their calls in this micro-step
  };

  // ---- memory
  void allocate(const std::vector<Owned>& parts) override {
    allocate_means(parts);
    find_uses();
    find_own_buckets();
    allocate_parameters(parts);
    std::vector<int64_t> sizes;
    std::vector<std::string> names;
    for (size_t u = 0; u < own_.size(); ++u) {
      sizes.push_back(own_[u].end - own_[u].begin);
      names.push_back(units_[u].name);
    }
    live_.emplace(
        comm_.device(),
        options_.precision,
        sizes,
        names,
        LiveUnits::Budget{options_.prefetch_elements, options_.max_live_elements, options_.overlap},
        [this](size_t u) { return send(own_[u].gathered, u); });
    for (size_t u = 0; u < units_.size(); ++u)
      hook(u);
  }

  void find_uses() {
    for (const Placed& placed : space_.parameters()) {
      Use use;
      for (size_t u = 0; u < units_.size(); ++u) {
        const std::vector<Variable>& all = units_[u].parameters;
        if (std::find(all.begin(), all.end(), placed.parameter) != all.end())
          use.users.push_back(u);
      }
      use.owner = use.users.front();
      uses_.push_back(std::move(use));
    }
  }

  void find_own_buckets() {
    own_.resize(units_.size());
    for (size_t b = 0; b < space_.buckets().size(); ++b) {
      const Bucket& bucket = space_.buckets()[b];
      Own& own = own_[uses_[static_cast<size_t>(bucket.first)].owner];
      (bucket.persistent ? own.persistent : own.gathered).push_back(static_cast<int>(b));
      if (bucket.persistent)
        continue;
      if (own.gathered.size() == 1)
        own.begin = bucket.begin;
      own.end = bucket.end;
    }
  }

  // Shards of what is gathered, the whole of what is persistent.
  void allocate_parameters(const std::vector<Owned>& parts) {
    int64_t persistent = 0, sharded = 0;
    for (const Bucket& bucket : space_.buckets())
      persistent += bucket.persistent ? bucket.size() : 0;
    for (const Owned& part : parts)
      sharded += is_persistent(part.bucket) ? 0 : part.end - part.begin;
    ShardArray whole(persistent, options_.precision, Category::parameters);
    ShardArray shards(sharded, options_.precision, Category::parameters);
    for (const Bucket& bucket : space_.buckets())
      if (bucket.persistent)
        held_.push_back({bucket.begin, bucket.end, whole.next(bucket.size())});
    for (const Owned& part : parts)
      if (!is_persistent(part.bucket))
        held_.push_back({part.begin, part.end, shards.next(part.end - part.begin)});
    std::sort(
        held_.begin(), held_.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
  bool is_persistent(int bucket) const {
    return space_.buckets()[static_cast<size_t>(bucket)].persistent;
  }

  // A flat range of what this rank always holds; empty where it holds nothing of it.
  Tensor held(int64_t begin, int64_t end) const {
    const auto run = std::partition_point(
        held_.begin(), held_.end(), [&](const OwnedRange& r) { return r.end <= begin; });
    if (run == held_.end() || run->begin >= end)
      return empty({0}, options_.precision);
    return run->parameters.slice(
        0, std::max(begin, run->begin) - run->begin, std::min(end, run->end) - run->begin);
  }
  Tensor parameters_of(const Owned& part) override { return held(part.begin, part.end); }

  void place(const Placed& placed, const Tensor& value) override {
    Variable p = placed.parameter;
    const int position = space_.position_of(p);
    const size_t owner = uses_[static_cast<size_t>(position)].owner;
    if (is_persistent(space_.bucket_of(position))) {
      const Tensor place = held(placed.offset, placed.offset + placed.size).reshape(p.shape());
      copy_(place, value);
      p.set_tensor(place);
    } else {
      p.set_tensor({live_->slot(owner),
                    placed.offset - own_[owner].begin,
                    p.shape(),
                    dense_strides(p.shape()),
                    options_.precision});
    }
  }

  // ---- parameters come and go
  // A unit needs its own parameters and, where it uses tied ones, those of the units that they
  // belong to.
  void hook(size_t u) {
    const std::vector<size_t> needed = owners_of(units_[u].parameters);
    live_->check_fits(needed, units_[u].name);
    const auto gather = [this, needed] {
      live_->need(needed);
      for (size_t owner : needed)
        wait_for_persistent(own_[owner]);
    };
    const auto before_forward = [this, u, gather] {
      gather();
      // A region's calls are counted the first time: the second one's backward is theirs.
      if (live_->in_micro_step() && !recomputing())
        ++own_[u].calls;
    };
    const auto after_forward = [this, needed] { live_->leave_forward(needed); };
    const auto before_backward = [this, u, gather] {
      gather();
      ++own_[u].backward_calls;
    };
    const auto after_backward = [this, u, needed, used = positions_of(u)] {
      live_->leave(needed);
      --own_[u].backward_calls;
      own_[u].calls = std::max(own_[u].calls - 1, 0);
      for (int position : used)
        if (all_calls_ended(position))
          count(position);
    };
    const auto undo = [this, needed] { live_->leave(needed); };
    *units_[u].hooks = {before_forward, after_forward, before_backward, after_backward, undo};
  }

  std::vector<int> positions_of(size_t u) const {
    std::vector<int> positions;
    for (const Variable& p : units_[u].parameters)
      if (const int position = space_.position_of(p); position >= 0)
        positions.push_back(position);
    return positions;
  }

  bool communicates_in_backward() const override {
    return comm_.size() > 1;
  }  // units are gathered again

  // Ranks must make their calls in one order, even where only some use a parameter: its gradient
  // counts when the last call of its units has ended, which is the same on all ranks, whether one
  // has arrived or not. Where only one unit has it, what ends within that unit's call may leave at
  // once.
  bool counts_at_once(int position) const override {
    return uses_[static_cast<size_t>(position)].users.size() == 1;
  }
  bool all_calls_ended(int position) const {
    const Use& use = uses_[static_cast<size_t>(position)];
    const auto ended = [&](size_t u) { return own_[u].calls == 0; };
    return !use.outside && std::all_of(use.users.begin(), use.users.end(), ended);
  }

  // Within a call of a unit that has it a parameter is there. Elsewhere in a micro-step its unit is
  // gathered now and stays until the end; between steps somebody must say when, by the unit's call
  // or by gather().
  void before_use(int position) override {
    Use& use = uses_[static_cast<size_t>(position)];
    wait_for_persistent(own_[use.owner]);
    const bool persistent = is_persistent(space_.bucket_of(position));
    if (!live_->in_micro_step()) {
      check(
          persistent || live_->live(use.owner),
          "zero3: {} is away: between steps use it within a call of its unit {} or within gather()",
          space_.parameters()[static_cast<size_t>(position)].parameter.name(),
          units_[use.owner].name);
      return;
    }
    if (within_call(use))
      return;
    use.outside = true;
    if (persistent || std::exchange(own_[use.owner].used_outside, true))
      return;
    live_->need({&use.owner, 1});
  }
  // In backward too, where a region of a call is computed again.
  bool within_call(const Use& use) const {
    const auto& call = current_unit_call();
    return std::any_of(use.users.begin(), use.users.end(), [&](size_t u) {
      return own_[u].backward_calls > 0 || (call && units_[u].hooks == call->hooks);
    });
  }

  // Owners send their shards of these buckets of a unit to everybody: into its slot, which is
  // resident.
  std::vector<Work> send(const std::vector<int>& buckets, size_t u) {
    const Tensor slot(live_->slot(u), 0, {own_[u].end - own_[u].begin}, {1}, options_.precision);
    return send(buckets, u, slot);
  }
  std::vector<Work> send(const std::vector<int>& buckets, size_t u, const Tensor& place) {
    std::vector<Work> works;
    for (int b : buckets) {
      const auto& messages = space_.buckets()[static_cast<size_t>(b)].messages;
      for (size_t m = 0; m < messages.size(); ++m) {
        const Message& message = messages[m];
        const bool persistent = is_persistent(b);
        const int64_t begin = message.begin - own_[u].begin;
        const Tensor whole = persistent ? held(message.begin, message.end)
                                        : place.slice(0, begin, begin + message.size());
        const Tensor shard =
            persistent ? message.shards.of(whole, comm_.rank()) : held(message.begin, message.end);
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
      if (!options_.overlap)
        wait_for_persistent(own_[u]);
    }
  }
  static void wait_for_persistent(Own& own) {
    for (Work& work : own.arriving)
      work.wait();
    own.arriving.clear();
  }
  void await_parameters() override {
    for (Own& own : own_)
      wait_for_persistent(own);
  }

  // Units that these belong to.
  std::vector<size_t> owners_of(std::span<const Variable> parameters) const {
    std::vector<size_t> owners;
    for (const Variable& p : parameters) {
      const int position = space_.position_of(p);
      if (position < 0)
        continue;
      const size_t owner = uses_[static_cast<size_t>(position)].owner;
      if (std::find(owners.begin(), owners.end(), owner) == owners.end())
        owners.push_back(owner);
    }
    return owners;
  }
  void hold(std::span<const Variable> parameters) override {
    const std::vector<size_t> owners = owners_of(parameters);
    live_->check_fits(owners, "gather");
    live_->need(owners);
  }
  void let_go(std::span<const Variable> parameters) override {
    live_->leave(owners_of(parameters));
  }

  void begin_micro_step() override {
    forget_uses();
    live_->begin_micro_step();
  }
  void end_micro_step() override {
    live_->end_micro_step();
    forget_uses();
  }
  void forget_uses() {
    for (Own& own : own_) {
      own.calls = 0;
      own.backward_calls = 0;
      own.used_outside = false;
    }
    for (Use& use : uses_)
      use.outside = false;
  }

  // Units come back whole where every rank has room for all of them.
  bool give_back(bool alone) override {
    await_parameters();
    const std::vector<Tensor> places = alone ? std::vector<Tensor>() : places_for_all();
    if (places.empty())
      return false;
    for (size_t u = 0; u < own_.size(); ++u) {
      for (Work& work : send(own_[u].gathered, u, places[u]))
        work.wait();
      for (int b : own_[u].gathered) {
        const Bucket& bucket = space_.buckets()[static_cast<size_t>(b)];
        for (int i = bucket.first; i < bucket.last; ++i) {
          const Placed& placed = space_.parameters()[static_cast<size_t>(i)];
          const int64_t begin = placed.offset - own_[u].begin;
          Variable p = placed.parameter;
          p.set_tensor(places[u].slice(0, begin, begin + placed.size).reshape(p.shape()));
        }
      }
    }
    return true;
  }

  // A flat array for each unit; none at all where some rank hasn't room for them.
  std::vector<Tensor> places_for_all() {
    std::vector<Tensor> places;
    try {
      CategoryScope scope(Category::parameters);
      for (const Own& own : own_)
        places.push_back(empty({own.end - own.begin}, options_.precision));
    } catch (const OutOfMemory&) {
      places.clear();
    }
    const std::string mine = places.empty() ? "no room" : "room";
    for (const std::string& theirs : comm_.all_gather_bytes({"zero3.end", Phase::setup}, mine))
      if (theirs != "room")
        return {};
    return places;
  }

  // ---- gradients
  Work reduce(const Call& call,
              const Message& message,
              const Tensor& gradient,
              const Tensor& mean) override {
    return comm_.reduce_scatter(call, gradient, message.shards, mean, mean_reduction());
  }

  std::vector<OwnedRange>
      held_;  // parameters that this rank always holds, by place: shards, by message, and whole
  std::vector<Own> own_;           // by unit
  std::vector<Use> uses_;          // by position
  std::optional<LiveUnits> live_;  // gathered parameters, by unit
};

}  // namespace

std::unique_ptr<BucketEngine> make_zero3(std::vector<Unit> units,
                                         const Options& options,
                                         Comm& comm) {
  return std::make_unique<Zero3>(std::move(units), options, comm);
}

}  // namespace sg::dist
