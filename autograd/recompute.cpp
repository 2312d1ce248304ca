#include "autograd/recompute.h"

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

Gradients run_again(const std::function<Variable(const Variable&)>& f, const Saved& input, size_t inputs,
                    std::optional<float> seed, const Tensor& g) {
  const Variable x(input.tensor(), input.wanted());
  Graph::state(x).activation = true;
  Variable out;
  {
    const WithGrad recording;
    const Recomputing scope;
    const ExpectedSeed as_before(seed);  // gradients that f's ops make beforehand are scaled alike
    out = f(x);
  }
  check(out.requires_grad(),
        "recompute: the region recorded nothing the second time: it must compute the same both times");
  backward_inside({&out, 1}, {&g, 1});
  Gradients gradients(inputs);
  gradients[0] = Tensor(x.grad());
  return gradients;
}

}  // namespace

Variable recompute(const std::function<Variable(const Variable&)>& f, const Variable& input) {
  if (!grad_enabled()) return f(input);
  std::vector<Variable> inputs = {input};
  Tensor out;
  {
    const NoGrad nothing_recorded;
    const LeafCollector collector(inputs);
    out = f(input.detach()).tensor();
  }
  return record("recompute", std::move(out), inputs,
                [f, input = Saved(input), n = inputs.size(), seed = foretold_seed()](const Tensor& g) {
                  return run_again(f, input, n, seed, g);
                });
}

bool recomputing() { return again; }

}  // namespace sg
