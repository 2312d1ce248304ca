#include "autograd/gradient_slot.h"

#include "core/ops.h"

namespace sg {
namespace {

bool same_memory(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.offset() == b.offset();
}

// Whether a tensor can become a gradient as it is.
bool is_its_own(const Tensor& tensor) {
  return unique(tensor) && tensor.storage()->bytes() == tensor.bytes();
}

}  // namespace

Tensor GradientSlot::overwrite(const Variable& leaf) {
  check(has_buffer(), "gradient_buffer: '{}' has none", leaf.name());
  if (const auto early = std::exchange(early_, {}).lock()) {
    CategoryScope scope(Category::workspace);
    *early = clone(*early);
  }
  Tensor buffer = buffer_();
  check(buffer.defined() && buffer.shape() == leaf.shape() && buffer.dtype() == leaf.dtype() &&
            buffer.contiguous(),
        "gradient_buffer: that of '{}' must be a dense {} {}: {} {}",
        leaf.name(),
        name_of(leaf.dtype()),
        leaf.shape(),
        name_of(buffer.dtype()),
        buffer.shape());
  return buffer;
}

std::shared_ptr<Tensor> GradientSlot::write_early(const Variable& leaf) {
  auto handle = std::make_shared<Tensor>(overwrite(leaf));
  early_ = handle;
  return handle;
}

Tensor GradientSlot::first(const Variable& leaf, Contribution contribution) {
  const Tensor& value = leaf.held();
  if (has_buffer()) {
    CategoryScope scope(Category::gradients);
    Tensor buffer = overwrite(leaf);
    if (contribution.lazy() || !same_memory(contribution.value(), buffer))
      contribution.write(buffer, false);
    return buffer;
  }
  if (!contribution.lazy()) {
    Tensor tensor = contribution.take(value.device());
    if (is_its_own(tensor)) {
      tensor.storage()->set_category(Category::gradients);
      return tensor;
    }
    contribution = std::move(tensor);
  }
  CategoryScope scope(Category::gradients);
  Tensor buffer = empty(value.shape(), value.dtype(), value.device());
  contribution.write(buffer, false);
  return buffer;
}

}  // namespace sg
