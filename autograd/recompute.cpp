#include "autograd/recompute.h"

#include <mutex>
#include <utility>
#include <vector>

#include "autograd/graph.h"
#include "autograd/ops.h"

namespace sg {
namespace {

thread_local bool again = false;

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

Gradients run_again(const std::function<Variable(const Variable&)>& f,
                    const Saved& input,
                    size_t inputs,
                    std::optional<float> seed,
                    const ThreadState::Copy& state,
                    const Tensor& g) {
  const Variable x(input.tensor(), input.wanted());
  Graph::state(x).activation = true;
  Variable out;
  {
    const WithGrad recording;
    const Recomputing scope;
    const ThreadState::Restored restored = state();
    const ExpectedSeed as_before(seed);  // gradients that f's ops make beforehand are scaled alike
    out = f(x);
  }
  check(out.requires_grad(),
        "recompute: the region recorded nothing the second time: it must compute the same both "
        "times");
  backward_inside({&out, 1}, {&g, 1});
  Gradients gradients(inputs);
  gradients[0] = Tensor(x.grad());
  return gradients;
}

}  // namespace

Variable recompute(const std::function<Variable(const Variable&)>& f, const Variable& input) {
  if (!grad_enabled())
    return f(input);
  std::vector<Variable> inputs = {input};
  ThreadState::Copy state = ThreadState::copy();
  Tensor out;
  {
    const NoGrad nothing_recorded;
    const LeafCollector collector(inputs);
    out = f(input.detach()).tensor();
  }
  return record("recompute",
                std::move(out),
                inputs,
                [f,
                 input = Saved(input),
                 n = inputs.size(),
                 seed = foretold_seed(),
                 state = std::move(state)](const Tensor& g) {
                  return run_again(f, input, n, seed, state, g);
                });
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
