// Initial values of parameters. Random ones depend on the key alone: (seed, hash of the parameter's
// path).
#pragma once
#include <functional>
#include <string_view>

#include "core/tensor.h"
#include "kernels/random.h"

namespace sg::nn {

using Initializer = std::function<void(const Tensor& parameter, const RandomKey& key)>;

Initializer constant(double value);
inline Initializer zeros() {
  return constant(0);
}
inline Initializer ones() {
  return constant(1);
}
Initializer normal(float deviation, float mean = 0);
Initializer uniform(float bound);            // in [−bound, bound)
Initializer fan_in_uniform(int64_t fan_in);  // PyTorch's default for Linear: bound 1/√fan_in
Initializer xavier_uniform(int64_t fan_in, int64_t fan_out);  // Glorot and Bengio, 2010
Initializer kaiming_normal(int64_t fan_in);                   // He et al., 2015, for ReLU

// FNV-1a; the op ids of all random numbers are made from paths with it.
uint64_t hash_path(std::string_view path);

}  // namespace sg::nn
