#include "autograd/graph.h"
#include "autograd/ops.h"
#include "autograd/recompute.h"
#include "autograd/target.h"
#include "autograd/targets.h"

namespace sg {
namespace {

thread_local std::optional<float> foretold;
thread_local TargetsMet* innermost = nullptr;

template <class T>
int64_t count_valid(const Tensor& targets) {
  const T* t = targets.data<T>();
  return targets.numel() - std::count(t, t + targets.numel(), T{-1});
}

// The number of rows that the mean is over.
int64_t counted_rows(const char* op, const Tensor& targets) {
  check(targets.dtype() == DType::i32 || targets.dtype() == DType::i64,
        "{}: targets must be i32 or i64, not {}",
        op,
        name_of(targets.dtype()));
  const int64_t rows = count_targets(targets);
  TargetsMet::report(rows, targets.numel());
  return std::max<int64_t>(rows, 1);
}

Tensor flat(const Tensor& targets) {
  return contiguous(targets).flatten();
}
Tensor matrix(const Tensor& x) {
  return x.reshape(rows_of(x.shape()));
}

void check_rows(const char* op, const Shape& x, const Shape& targets) {
  check(x.rank() == targets.rank() + 1 && std::equal(targets.begin(), targets.end(), x.begin()),
        "{}: x {} needs targets of its shape without the last dimension: {}",
        op,
        x,
        targets);
}

double value_of(const Tensor& scalar) {
  return scalar.dtype() == DType::f64 ? scalar.item<double>() : scalar.item<float>();
}

// Memory for a contribution to x's gradient that an op makes in forward already, so that backward
// has nothing to copy; undefined where it must have its own. Only where a pass is expected and none
// runs: otherwise the buffer may hold a sum that somebody still needs.
std::shared_ptr<Tensor> early_contribution(const Variable& x) {
  const bool pass_expected = foretold && !recomputing();
  if (!pass_expected || !x.requires_grad() || !x.is_leaf() || !x.has_gradient_buffer())
    return std::make_shared<Tensor>();
  return Graph::state(x).slot.write_early(x);
}

}  // namespace

int64_t count_targets(const Tensor& targets) {
  if (targets.device().type == DeviceType::meta)
    return targets.numel();
  const Tensor here = contiguous(to(targets, host));
  return here.dtype() == DType::i32 ? count_valid<int32_t>(here) : count_valid<int64_t>(here);
}

TargetsMet::TargetsMet() : outer_(std::exchange(innermost, this)) {}
TargetsMet::~TargetsMet() {
  innermost = outer_;
}

void TargetsMet::report(int64_t targets, int64_t positions) {
  if (!innermost || recomputing())
    return;
  ++innermost->losses_;
  innermost->targets_ += targets;
  innermost->positions_ += positions;
}

float expected_seed() {
  return foretold.value_or(1);
}
std::optional<float> foretold_seed() {
  return foretold;
}
ExpectedSeed::ExpectedSeed(std::optional<float> seed) : previous_(std::exchange(foretold, seed)) {}
ExpectedSeed::~ExpectedSeed() {
  foretold = previous_;
}

Variable cross_entropy(const Variable& logits, const Tensor& targets) {
  check_defined("cross_entropy", {{"the logits", &logits}});
  check(targets.defined(), "cross_entropy: the targets are undefined");
  check_rows("cross_entropy", logits.shape(), targets.shape());
  const Tensor ids = flat(targets);
  const double share = 1.0 / static_cast<double>(counted_rows("cross_entropy", ids));
  const Tensor losses = cross_entropy(matrix(logits.tensor()), ids, false).losses;
  return record(
      "cross_entropy",
      scale(sum(losses), share),
      {logits},
      [logits = Saved(logits), ids = Saved(ids), share](const Tensor& g) -> Gradients {
        const Tensor& x = logits.tensor();
        const bool dry = x.device().type == DeviceType::meta;
        const float by = static_cast<float>(dry ? share : share * value_of(g));
        return {cross_entropy(matrix(x), ids.tensor(), true, by).d_logits.reshape(x.shape())};
      });
}

Variable classifier_loss(const Variable& x, const Variable& weight, const Tensor& targets) {
  check_defined("classifier_loss", {{"x", &x}, {"the weight", &weight}});
  check(targets.defined(), "classifier_loss: the targets are undefined");
  check_rows("classifier_loss", x.shape(), targets.shape());
  const Tensor ids = flat(targets);
  const double share = 1.0 / static_cast<double>(counted_rows("classifier_loss", ids));
  const float seed = expected_seed();
  check(seed != 0, "classifier_loss: the expected seed is 0");
  const bool gradient = grad_enabled() && (x.requires_grad() || weight.requires_grad());
  const auto d_weight = gradient ? early_contribution(weight) : std::make_shared<Tensor>();
  Loss loss = classifier(matrix(x.tensor()),
                         weight.tensor(),
                         ids,
                         gradient,
                         static_cast<float>(seed * share),
                         *d_weight);
  *d_weight = loss.d_weight;
  const Tensor mean = scale(sum(loss.losses), share);
  return record("classifier_loss",
                mean,
                {x, weight},
                [dx = gradient ? loss.dx.reshape(x.shape()) : Tensor(), d_weight, seed](
                    const Tensor& g) -> Gradients {
                  const bool dry = g.device().type == DeviceType::meta;
                  const double factor = dry ? 1 : value_of(g) / seed;
                  if (factor == 1)
                    return {dx, *d_weight};
                  return {scale(dx, factor), scale(*d_weight, factor)};
                });
}

}  // namespace sg
