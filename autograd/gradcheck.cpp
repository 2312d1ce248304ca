#include "autograd/gradcheck.h"

#include <algorithm>
#include <cmath>

#include "autograd/backward.h"
#include "core/ops.h"

namespace sg {
namespace {

// Weights that no symmetry of an op can hide behind.
Tensor weights_for(const Tensor& out) {
  std::vector<double> weights(static_cast<size_t>(out.numel()));
  for (size_t i = 0; i < weights.size(); ++i)
    weights[i] = std::cos(1.7 * static_cast<double>(i) + 0.3);
  return from_vector(weights, out.shape());
}

double weighted_sum(const Tensor& out) {
  const auto values = out.to_vector<double>(), weights = weights_for(out).to_vector<double>();
  double total = 0;
  for (size_t i = 0; i < values.size(); ++i)
    total += values[i] * weights[i];
  return total;
}

std::string position(int64_t element, const Shape& shape) {
  Dims index = shape;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    index.set(d, element % shape[d]);
    element /= shape[d];
  }
  return to_string(index);
}

}  // namespace

GradcheckResult gradcheck(const std::function<Variable(std::span<const Variable>)>& f,
                          const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options) {
  std::vector<Variable> variables;
  for (const Tensor& input : inputs) {
    check(input.dtype() == DType::f64 && input.contiguous(),
          "gradcheck: inputs must be dense f64: {} {}",
          name_of(input.dtype()),
          input.shape());
    variables.emplace_back(input, true);
  }
  const Variable out = f(variables);
  check(out.dtype() == DType::f64, "gradcheck: the result must be f64: {}", name_of(out.dtype()));
  backward(out, {.seed = weights_for(out.tensor())});

  NoGrad guard;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& gradient = variables[i].grad();
    const auto found = gradient.defined()
                           ? gradient.to_vector<double>()
                           : std::vector<double>(static_cast<size_t>(inputs[i].numel()), 0.0);
    double* const x = inputs[i].data<double>();
    for (int64_t j = 0; j < inputs[i].numel(); ++j) {
      const double kept = x[j], step = options.step * std::max(1.0, std::abs(kept));
      x[j] = kept + step;
      const double above = weighted_sum(f(variables).tensor());
      x[j] = kept - step;
      const double below = weighted_sum(f(variables).tensor());
      x[j] = kept;
      const double expected = (above - below) / (2 * step),
                   by_backward = found[static_cast<size_t>(j)];
      // Written so that a NaN is a failure.
      if (std::abs(by_backward - expected) <= options.tolerance * std::max(1.0, std::abs(expected)))
        continue;
      return {false,
              fmt::format("input {}, element {}: {} by backward, {} by differences",
                          i,
                          position(j, inputs[i].shape()),
                          by_backward,
                          expected)};
    }
  }
  return {};
}

}  // namespace sg
