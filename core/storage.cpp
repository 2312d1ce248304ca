#include "core/storage.h"

#include <utility>

#include "core/device.h"
#include "core/error.h"

namespace sg {

Storage::Storage(Device device, uint64_t bytes, Category category, Start start, std::string name)
    : device_(device), bytes_(bytes), category_(category), owned_(true), name_(std::move(name)) {
  if (start == Start::resident)
    acquire();
}

Storage::Storage(Device device, void* external, uint64_t bytes)
    : device_(device),
      bytes_(bytes),
      category_(Category::data),
      owned_(false),
      residency_(1),
      data_(external) {}

Storage::~Storage() {
  if (residency_ > 0 && owned_)
    give_back();
}

void Storage::set_category(Category category) {
  if (resident() && owned_)
    pool(device_).recategorise(bytes_, category_, category);
  category_ = category;
}

void Storage::acquire() {
  if (residency_ == 0)
    data_ = pool(device_).allocate(bytes_, category_, name_);
  ++residency_;
}

void Storage::release() {
  invariant(residency_ > 0, "storage {}: released while empty", name_);
  if (--residency_ == 0 && owned_)
    give_back();
}

void Storage::give_back() {
  pool(device_).free(data_, bytes_, category_, std::exchange(uses_, {}));
  data_ = nullptr;
}

void Storage::used_until(Event event) {
  std::erase_if(uses_, [](const Event& use) { return use.done(); });
  uses_.push_back(std::move(event));
}

void Storage::empty_slot() const {
  fail(ErrorKind::usage,
       "{}: its memory is released (a parameter must be gathered before it is used)",
       name_.empty() ? "storage" : name_);
}

}  // namespace sg
