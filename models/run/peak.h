// What the matrix products of a step would take alone: the measure that efficiency and MFU are held
// against.
#pragma once
#include <cstdint>
#include <vector>

#include "core/products.h"
#include "kernels/dtype.h"
#include "models/family.h"

namespace sg::models {

struct PeakOptions {
  DType dtype = DType::f32;    // of the operands: the run's precision
  double seconds_each = 0.02;  // each shape is repeated for about this long; the fastest run counts
  int64_t largest =
      INT64_MAX;  // elements of an operand: larger products are measured by a part of them
};

// Every product of one forward and backward pass over `batch` sequences of the model's whole
// context, found by running the model on meta. `size` is resolved.
std::vector<Product> training_products(const Family& family,
                                       const SizeOptions& size,
                                       int64_t batch);

// Seconds that all `products` take at the speed core's matmul reaches on each shape by itself, with
// as many threads as the current device has. Measured on a device of its own, so that the books of
// the current one stay a training run's.
double measure_products(const std::vector<Product>& products, const PeakOptions& options = {});

}  // namespace sg::models
