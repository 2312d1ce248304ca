#include "models/run/peak.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "autograd/backward.h"
#include "core/ops.h"
#include "models/run/load.h"
#include "nn/micro_step.h"

namespace sg::models {
namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// (batch, rows, columns) as matmul is to see it; turned: it lies in memory the other way round.
Tensor operand(int64_t batch, int64_t rows, int64_t columns, bool turned, DType dtype) {
  const Tensor x = turned ? full({batch, columns, rows}, 0.01, dtype).transposed()
                          : full({batch, rows, columns}, 0.01, dtype);
  return batch == 1 ? x.select(0, 0) : x;
}

// Halves the longest side until every operand is small enough.
Product part_of(Product p, int64_t largest) {
  while (p.batch * std::max({p.m * p.k, p.k * p.n, p.m * p.n}) > largest) {
    int64_t* const sides[] = {&p.batch, &p.m, &p.k, &p.n};
    int64_t& longest =
        **std::max_element(sides, sides + 4, [](auto* a, auto* b) { return *a < *b; });
    longest = (longest + 1) / 2;
  }
  return p;
}

// Seconds of one product.
double fastest(const Product& p, const PeakOptions& options) {
  const Tensor a = operand(p.batch, p.m, p.k, p.transpose_a, options.dtype);
  const Tensor b = operand(p.batch, p.k, p.n, p.transpose_b, options.dtype);
  const Tensor out = operand(p.batch, p.m, p.n, false, options.dtype);
  matmul_(out, a, b, false);
  double best = INFINITY;
  const Clock::time_point begin = Clock::now();
  do {
    const Clock::time_point start = Clock::now();
    matmul_(out, a, b, false);
    best = std::min(best, seconds_since(start));
  } while (seconds_since(begin) < options.seconds_each);
  return best;
}

}  // namespace

std::vector<Product> training_products(const Family& family,
                                       const SizeOptions& size,
                                       int64_t batch) {
  const std::unique_ptr<LanguageModel> model = build_on_meta(family, size, 1);
  const DeviceGuard guard(model->parameters().front().device());
  const Tensor tokens = empty({batch, *size.context}, DType::i32);
  const Tensor targets = empty({batch, *size.context}, DType::i32);
  const nn::MicroStepScope micro_step(1, 0, 0);  // for dropout
  const ProductScope scope;
  backward(model->loss(tokens, targets));
  return scope.products();
}

double measure_products(const std::vector<Product>& products, const PeakOptions& options) {
  const Device measuring = cpu(max_devices - 1);
  configure(measuring, {.threads = threads(current_device())});
  DeviceGuard guard(measuring);
  double total = 0;
  for (const Product& p : products) {
    Product part = part_of(p, options.largest);
    const double seconds = fastest(part, options);
    part.count = 1;
    part.share = 1;
    total += p.flops() / (part.flops() / seconds);
  }
  pool(measuring).trim();
  return total;
}

}  // namespace sg::models
