#include "core/pool.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "core/device.h"
#include "core/error.h"

namespace sg {
namespace {

constexpr uint64_t huge_page = uint64_t{2} << 20;

#if defined(__has_feature)
#if __has_feature(address_sanitizer)  // clang, which doesn't define what gcc does
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
constexpr bool keeps_freed_blocks = false;  // a cached block would hide a use after free
#else
constexpr bool keeps_freed_blocks = true;
#endif

// Eight classes per power of two: at most an eighth of a block is gap.
uint64_t size_class_of(uint64_t bytes) {
  if (bytes <= 512)
    return (std::max<uint64_t>(bytes, 1) + 63) / 64 * 64;
  const uint64_t step = std::bit_floor(bytes - 1) / 8;
  return (bytes + step - 1) / step * step;
}

}  // namespace

OutOfMemory::OutOfMemory(Device device, std::string figures)
    : Error(ErrorKind::out_of_memory, to_string(device) + " is out of memory: " + figures),
      device_(device),
      figures_(std::move(figures)) {}

Pool::Pool(Device device, Backend& backend, uint64_t capacity)
    : device_(device), backend_(backend), capacity_(capacity) {}

Pool::~Pool() {
  for (const Used& used : used_) {
    for (const Event& use : used.uses)
      use.settle();
  }
  trim();
}

void* Pool::allocate(uint64_t bytes, Category category, const std::string& name) {
  std::lock_guard lock(mutex_);
  const uint64_t held = ledger_.total();
  void* block = nullptr;
  bool fits = bytes <= capacity_ && held <= capacity_ - bytes;
  if (fits && backend_.backed() && bytes > 0) {
    block = block_of(size_class_of(bytes));
    fits = block != nullptr;
  }
  if (!fits) {
    throw OutOfMemory(
        device_,
        fmt::format("asked for {} ({}{}{}), holds {} of {}\n  {}",
                    format_bytes(bytes),
                    name_of(category),
                    name.empty() ? "" : ": ",
                    name,
                    format_bytes(held),
                    capacity_ == unlimited ? "the system's memory" : format_bytes(capacity_),
                    ledger_.summary()));
  }
  ledger_.add(category, bytes);
  return block;
}

// From the cache, else from the system; null where neither has one.
void* Pool::block_of(uint64_t size) {
  collect();
  if (void* block = take(size))
    return block;
  if (capacity_ != unlimited && ledger_.total() + cached_ + size > capacity_)
    trim_locked();
  if (void* block = backend_.allocate(size))
    return block;
  trim_locked();
  return backend_.allocate(size);
}

void* Pool::take(uint64_t size) {
  const auto found = cache_.find(size);
  if (found == cache_.end() || found->second.empty())
    return nullptr;
  void* block = found->second.back();
  found->second.pop_back();
  cached_ -= size;
  return block;
}

void Pool::free(void* block, uint64_t bytes, Category category, std::vector<Event> uses) {
  std::lock_guard lock(mutex_);
  ledger_.remove(category, bytes);
  if (!block)
    return;
  const uint64_t size = size_class_of(bytes);
  std::erase_if(uses, [](const Event& use) { return use.done(); });
  if (uses.empty())
    keep(block, size);
  else
    used_.push_back({block, size, std::move(uses)});
}

void Pool::keep(void* block, uint64_t size) {
  if (!keeps_freed_blocks)
    return backend_.free(block, size);
  cache_[size].push_back(block);
  cached_ += size;
}

void Pool::collect() {
  std::erase_if(used_, [this](Used& used) {
    std::erase_if(used.uses, [](const Event& use) { return use.done(); });
    if (used.uses.empty())
      keep(used.block, used.size_class);
    return used.uses.empty();
  });
}

void Pool::recategorise(uint64_t bytes, Category from, Category to) {
  std::lock_guard lock(mutex_);
  ledger_.remove(from, bytes);
  ledger_.add(to, bytes);
}

void Pool::trim() {
  std::lock_guard lock(mutex_);
  trim_locked();
}

void Pool::trim_locked() {
  collect();
  for (auto& [size, blocks] : cache_) {
    for (void* block : blocks)
      backend_.free(block, size);
  }
  cache_.clear();
  cached_ = 0;
}

void Pool::set_capacity(uint64_t capacity) {
  std::lock_guard lock(mutex_);
  capacity_ = capacity;
}
uint64_t Pool::capacity() const {
  std::lock_guard lock(mutex_);
  return capacity_;
}
uint64_t Pool::cached_bytes() const {
  std::lock_guard lock(mutex_);
  return cached_;
}
Ledger Pool::ledger() const {
  std::lock_guard lock(mutex_);
  return ledger_;
}
void Pool::reset_peaks() {
  std::lock_guard lock(mutex_);
  ledger_.reset_peaks();
}
void Pool::end_setup() {
  std::lock_guard lock(mutex_);
  ledger_.end_setup();
}

}  // namespace sg
