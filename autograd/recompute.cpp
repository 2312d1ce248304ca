#include "autograd/recompute.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <utility>

#include "autograd/graph.h"
#include "autograd/host_activations.h"
#include "autograd/ops.h"
#include "core/trace.h"

namespace sg {
namespace {

thread_local bool again = false;
thread_local bool remaking = false;
thread_local double seconds = 0;
thread_local int timed = 0;

class Recomputing {
 public:
  Recomputing() : previous_(std::exchange(again, true)) {}
  ~Recomputing() { again = previous_; }
  Recomputing(const Recomputing&) = delete;
  Recomputing& operator=(const Recomputing&) = delete;

 private:
  bool previous_;
};

std::mutex states_mutex;
std::vector<std::function<ThreadState::Copy()>>& states() {
  static std::vector<std::function<ThreadState::Copy()>> all;
  return all;
}

// An input that a region keeps: where it lies, or on the host.
class KeptInput {
 public:
  KeptInput(const Variable& x, const std::shared_ptr<HostActivations>& store) {
    const bool leaves = store && x.defined() && !x.is_leaf() && is_float(x.dtype());
    if (leaves)
      parked_ = store->park(x.tensor());
    else
      here_ = Saved(x);
  }
  bool defined() const { return parked_ || here_.defined(); }
  Tensor tensor() const { return parked_ ? parked_->take() : here_.tensor(); }

 private:
  Saved here_;
  std::shared_ptr<Parked> parked_;
};

// What a region's second run needs.
struct Again {
  Region f;
  std::vector<KeptInput> inputs;
  size_t results;             // of f
  std::vector<size_t> roots;  // which of them are the node's
  size_t edges;               // the node's inputs: the region's and the leaves that it captures
  std::optional<float> seed;  // gradients that f's ops make beforehand are scaled alike
  ThreadState::Copy state;
  Device device;
  Category category;
};

// The inputs are those of the first run: what f adds to their gradients goes on to them as it
// would without a region, contribution by contribution.
std::vector<Variable> inputs_again(const std::vector<KeptInput>& saved) {
  std::vector<Variable> inputs;
  for (size_t i = 0; i < saved.size(); ++i)
    inputs.push_back(saved[i].defined() ? running_input(i, saved[i].tensor()) : Variable());
  return inputs;
}

std::vector<Variable> second_run(const Again& region, std::span<const Variable> inputs) {
  const trace::Span span("recompute");
  const RecomputeTimer timer;
  const WithGrad recording;
  const Recomputing scope;
  const DeviceGuard device(region.device);
  const CategoryScope category(region.category);
  const ThreadState::Restored restored = region.state();
  const ExpectedSeed as_before(region.seed);
  return region.f(inputs);
}

Gradients run_again(const Again& region, std::span<Tensor> gradients) {
  std::vector<Variable> results = second_run(region, inputs_again(region.inputs));
  check(results.size() == region.results,
        "recompute: the region gave {} results, and {} the second time",
        region.results,
        results.size());
  std::vector<Variable> roots;
  std::vector<Tensor> seeds;
  for (size_t i = 0; i < region.roots.size(); ++i) {
    Variable& result = results[region.roots[i]];
    Tensor& g = gradients[i];
    if (!result.requires_grad())
      continue;
    check(!g.defined() || g.shape() == result.shape(),
          "recompute: result {} was {}, and is {} the second time",
          region.roots[i],
          g.shape(),
          result.shape());
    roots.push_back(std::move(result));
    seeds.push_back(std::move(g));
  }
  check(!roots.empty(),
        "recompute: the region recorded nothing the second time: it must compute the same both "
        "times");
  results.clear();
  backward_inside(std::move(roots), std::move(seeds));
  return Gradients(region.edges);
}

// f's results without a graph; leaves that it captures are added to `edges`.
std::vector<Variable> first_run(const Region& f,
                                std::span<const Variable> inputs,
                                std::vector<Variable>& edges) {
  const NoGrad nothing_recorded;
  const LeafCollector collector(edges);
  return f(inputs);
}

template <class Range>
size_t place_of(const Variable& x, const Range& all) {
  return static_cast<size_t>(std::find(all.begin(), all.end(), x) - all.begin());
}

}  // namespace

std::vector<Variable> recompute(const Region& f,
                                std::span<const Variable> inputs,
                                const std::shared_ptr<HostActivations>& store) {
  if (!grad_enabled())
    return f(inputs);
  std::vector<Variable> inside;  // what the region sees of its inputs
  std::vector<KeptInput> kept;
  for (const Variable& input : inputs) {
    inside.push_back(input.defined() ? input.detach() : Variable());
    kept.emplace_back(input, store);
  }
  std::vector<Variable> edges(inputs.begin(), inputs.end());
  ThreadState::Copy state = ThreadState::copy();
  std::vector<Variable> results = first_run(f, inside, edges);

  // What the region hands through stays what it is; of the rest, everything that may have a
  // gradient becomes a result of one node.
  std::vector<Variable> distinct;
  std::vector<size_t> roots;
  for (size_t i = 0; i < results.size(); ++i) {
    Variable& result = results[i];
    const size_t input = result.defined() ? place_of(result, inside) : inside.size();
    if (input < inside.size())
      result = inputs[input];
    const bool made = result.defined() && input == inside.size() && !result.requires_grad();
    if (!made || !is_float(result.dtype()) || place_of(result, distinct) < distinct.size())
      continue;
    distinct.push_back(result);
    roots.push_back(i);
  }
  std::vector<Tensor> tensors;
  for (const Variable& result : distinct)
    tensors.push_back(result.tensor());
  Again region{f,
               std::move(kept),
               results.size(),
               std::move(roots),
               edges.size(),
               foretold_seed(),
               std::move(state),
               current_device(),
               current_category()};
  const auto backward = [region = std::move(region)](std::span<Tensor> g) {
    return run_again(region, g);
  };
  const auto recorded = record_all("recompute", std::move(tensors), edges, backward);
  for (Variable& result : results) {
    const size_t place = result.defined() ? place_of(result, distinct) : distinct.size();
    if (place < distinct.size())
      result = recorded[place];
  }
  return results;
}

Variable recompute(const std::function<Variable(const Variable&)>& f, const Variable& input) {
  const Region region = [f](std::span<const Variable> in) { return std::vector{f(in[0])}; };
  return recompute(region, {&input, 1})[0];
}

RemakeScope::RemakeScope() : previous_(std::exchange(remaking, true)) {}
RemakeScope::~RemakeScope() {
  remaking = previous_;
}
bool remakes() {
  return remaking;
}

double recompute_seconds() {
  return seconds;
}

RecomputeTimer::RecomputeTimer() : outermost_(timed++ == 0), begin_(clock::now()) {}
RecomputeTimer::~RecomputeTimer() {
  --timed;
  if (outermost_)
    seconds += std::chrono::duration<double>(clock::now() - begin_).count();
}

bool recomputing() {
  return again;
}

void ThreadState::add(std::function<Copy()> make_copy) {
  const std::lock_guard lock(states_mutex);
  states().push_back(std::move(make_copy));
}

ThreadState::Copy ThreadState::copy() {
  std::vector<Copy> copies;
  {
    const std::lock_guard lock(states_mutex);
    for (const auto& make_copy : states())
      copies.push_back(make_copy());
  }
  return [copies = std::move(copies)]() -> Restored {
    auto restored = std::make_shared<std::vector<Restored>>();
    for (const Copy& put_back : copies)
      restored->push_back(put_back());
    return restored;
  };
}

}  // namespace sg
