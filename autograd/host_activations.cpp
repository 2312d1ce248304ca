#include "autograd/host_activations.h"

#include <algorithm>
#include <chrono>
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

HostActivations::HostActivations(Device device) : device_(device), copies_(device, "copies") {}

std::shared_ptr<Parked> HostActivations::park(const Tensor& x) {
  return std::make_shared<Parked>(shared_from_this(), contiguous(x));
}

// Behind what the compute stream was given so far.
Event HostActivations::copy(const Tensor& out, const Tensor& in, const char* name) {
  const Device device = device_;
  copies_.wait(Stream::compute(device).record());
  void* const to = out.view().data;
  const void* const from = in.view().data;
  // It holds no tensor: whoever drops one of them settles the books at once (used_until).
  copies_.enqueue(name, [to, from, device, bytes = in.bytes()] {
    backend(device).copy(to, from, bytes, stream_handle(device));
  });
  const Event done = copies_.record();
  out.storage()->used_until(done);
  in.storage()->used_until(done);
  return done;
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
  sent_ = store_->copy(here_, x, "activations to host");
  book_copy(device_, CopyDirection::to_host, x.bytes());
  store_->parked_.push_back(this);
}

Parked::~Parked() {
  store_->forget(this);
}

void Parked::send_back() {
  if (there_.defined())
    return;
  there_ = empty_on(here_, device_);
  back_ = store_->copy(there_, here_, "activations from host");
  book_copy(device_, CopyDirection::from_host, here_.bytes());
}

Tensor Parked::take() {
  send_back();
  if (Parked* const next = store_->before(this))
    next->send_back();
  const auto begin = std::chrono::steady_clock::now();
  back_.wait();
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - begin;
  book_exposed_copy(device_, waited.count());
  return std::exchange(there_, {});
}

}  // namespace sg
