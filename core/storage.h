// Storage is a slot: it names a device, a size and a ledger category; its buffer can be given back
// and taken again while handles to it live. ZeRO-3 frees a gathered weight by emptying the slot;
// every tensor that shares the storage, saved ones too, sees the buffer again after the next
// gather. Touching an empty slot is an error that names it.
#pragma once
#include <atomic>
#include <memory>
#include <string>
#include <vector>

#include "core/ledger.h"
#include "core/stream.h"
#include "kernels/device.h"

namespace sg {

class Storage {
 public:
  enum class Start { resident, empty };
  // `bytes` from the device's pool, booked under `category`; contents undefined. `name` is for
  // messages.
  Storage(Device device,
          uint64_t bytes,
          Category category,
          Start start = Start::resident,
          std::string name = {});
  // Memory that somebody else owns and keeps alive; not booked.
  Storage(Device device, void* external, uint64_t bytes);
  ~Storage();
  Storage(const Storage&) = delete;
  Storage& operator=(const Storage&) = delete;

  Device device() const { return device_; }
  uint64_t bytes() const { return bytes_; }
  Category category() const { return category_; }
  const std::string& name() const { return name_; }
  void set_name(std::string name) { name_ = std::move(name); }
  void set_category(Category category);  // moves the bytes in the ledger too

  bool resident() const { return residency_ > 0; }
  // Null on meta and for zero bytes. An empty slot is an error.
  void* data() const {
    if (residency_ == 0) [[unlikely]]
      empty_slot();
    return data_;
  }

  // Residency is counted: the buffer is taken when the count rises from 0 (contents undefined) and
  // given back when it returns to 0. Refilling isn't an in-place change: the version stays.
  void acquire();
  void release();
  // A stream uses the buffer until `event`: once given back it goes to nobody else before that has
  // passed.
  void used_until(Event event);

  // Counts in-place changes, so that autograd can tell whether a saved tensor is still what it was.
  uint64_t version() const { return version_.load(std::memory_order_relaxed); }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

 private:
  [[noreturn]] void empty_slot() const;
  void give_back();

  const Device device_;
  const uint64_t bytes_;
  Category category_;
  const bool owned_;
  int residency_ = 0;
  void* data_ = nullptr;
  std::atomic<uint64_t> version_{0};
  std::vector<Event> uses_;
  std::string name_;
};

}  // namespace sg
