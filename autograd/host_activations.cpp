#include "autograd/host_activations.h"

#include <algorithm>
#include <utility>

#include "core/copies.h"
#include "core/device.h"
#include "core/ops.h"

namespace sg {
namespace {

Tensor empty_on(const Tensor& like, Device device) {
  const CategoryScope scope(Category::activations);
  return empty(like.shape(), like.dtype(), device);
}

}  // namespace

HostActivations::HostActivations(Device device) : copies_(device) {}

std::shared_ptr<Parked> HostActivations::park(const Tensor& x) {
  return std::make_shared<Parked>(shared_from_this(), contiguous(x));
}

void HostActivations::forget(const Parked* parked) {
  std::erase(parked_, parked);
}

Parked* HostActivations::before(const Parked* parked) const {
  const auto found = std::find(parked_.begin(), parked_.end(), parked);
  return found == parked_.begin() || found == parked_.end() ? nullptr : *std::prev(found);
}

Parked::Parked(std::shared_ptr<HostActivations> store, const Tensor& x)
    : store_(std::move(store)), device_(x.device()), here_(empty_on(x, host_of(x.device()))) {
  sent_ = store_->copies_.copy("activations to host", here_, x);
  store_->parked_.push_back(this);
}

Parked::~Parked() {
  store_->forget(this);
}

void Parked::send_back() {
  if (there_.defined())
    return;
  there_ = empty_on(here_, device_);
  back_ = store_->copies_.copy("activations from host", there_, here_);
}

Tensor Parked::take() {
  send_back();
  if (Parked* const next = store_->before(this))
    next->send_back();
  store_->copies_.wait(back_);
  return std::exchange(there_, {});
}

}  // namespace sg
