// The matrix products that ops compute, recorded as they are called: what a step's efficiency, its
// FLOPs and its planned time are counted from. Works on meta as on any device, so a model's
// products are known without computing.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace sg {

// A product computed `count` times: (batch, m, k)·(batch, k, n). The transposes say how the
// operands lie in memory: a as (k, m), b as (n, k).
struct Product {
  std::string op;  // that computed it first
  int64_t batch = 1, m = 0, k = 0, n = 0;
  bool transpose_a = false, transpose_b = false;
  int64_t count = 1;
  double share = 1;  // of the product that is needed: a half of causal attention's

  double flops() const {  // of all `count`: a multiplication and an addition for each term
    const double terms = static_cast<double>(batch) * static_cast<double>(m) *
                         static_cast<double>(k) * static_cast<double>(n);
    return 2 * static_cast<double>(count) * share * terms;
  }
};

// While it lives, the products that this thread's ops compute are recorded, in the order of their
// first call; equal ones are counted. The innermost scope records. Recording costs a search of the
// list per product, so it is meant for one step, not for a run.
class ProductScope {
 public:
  ProductScope();
  ~ProductScope();
  ProductScope(const ProductScope&) = delete;
  ProductScope& operator=(const ProductScope&) = delete;

  const std::vector<Product>& products() const { return products_; }
  void add(const Product& product);

 private:
  ProductScope* previous_;
  std::vector<Product> products_;
};

// For ops: one test where nothing records.
void record_product(const Product& product);
bool recording_products();

}  // namespace sg
