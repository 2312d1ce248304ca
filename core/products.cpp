#include "core/products.h"

#include <algorithm>
#include <utility>

namespace sg {
namespace {

thread_local ProductScope* innermost = nullptr;

bool same_but_for_count(const Product& a, const Product& b) {
  const bool same_sizes = a.batch == b.batch && a.m == b.m && a.k == b.k && a.n == b.n;
  return same_sizes && a.transpose_a == b.transpose_a && a.transpose_b == b.transpose_b &&
         a.share == b.share && a.op == b.op;
}

}  // namespace

ProductScope::ProductScope() : previous_(std::exchange(innermost, this)) {}
ProductScope::~ProductScope() {
  innermost = previous_;
}

void ProductScope::add(const Product& product) {
  const auto known = std::find_if(products_.begin(), products_.end(), [&](const Product& other) {
    return same_but_for_count(other, product);
  });
  if (known == products_.end())
    products_.push_back(product);
  else
    known->count += product.count;
}

bool recording_products() {
  return innermost != nullptr;
}

void record_product(const Product& product) {
  if (innermost)
    innermost->add(product);
}

}  // namespace sg
