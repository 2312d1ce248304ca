// A device's memory: a capacity, a ledger, and a cache of freed blocks.
#pragma once
#include <cstddef>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "core/backend.h"
#include "core/error.h"
#include "core/ledger.h"
#include "core/stream.h"
#include "kernels/device.h"

namespace sg {

// What a pool says when it is full; who knows what was under way may say more.
class OutOfMemory : public Error {
 public:
  OutOfMemory(Device device, std::string figures);
  // "asked for 3.00 MiB (live: block7), holds 61.0 MiB of 64.0 MiB", and on a second line what is
  // held by category.
  const std::string& figures() const { return figures_; }
  Device device() const { return device_; }

 private:
  const Device device_;
  std::string figures_;
};

// Hands out 64-byte aligned blocks of its backend's memory. The capacity limits the bytes in use as
// asked for; freed blocks are kept for the next request of their size class and given back to the
// system when the capacity or the system asks for it. Thread-safe. On `meta` every block is null:
// the books are kept, nothing is backed.
class Pool {
 public:
  static constexpr uint64_t unlimited = ~uint64_t{0};

  Pool(Device device, Backend& backend, uint64_t capacity = unlimited);
  ~Pool();
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

  // Throws OutOfMemory, which names what was asked for (`name`: of the storage, may be empty), what
  // is held by category and the capacity; the pool stays usable.
  void* allocate(uint64_t bytes, Category category, const std::string& name = {});
  // The block isn't handed out again, nor given back to the system, before every event of `uses`
  // has passed; nobody waits for that here, the books are settled at once.
  void free(void* block, uint64_t bytes, Category category, std::vector<Event> uses = {});
  void recategorise(uint64_t bytes, Category from, Category to);

  void trim();  // gives every cached block back to the system, but those that are still used
  void set_capacity(uint64_t capacity);
  uint64_t capacity() const;
  uint64_t cached_bytes() const;
  Ledger ledger() const;  // a copy
  void reset_peaks();
  void end_setup();  // Ledger::end_setup

 private:
  // A freed block that streams still use.
  struct Used {
    void* block;
    uint64_t size_class;
    std::vector<Event> uses;
  };
  void* block_of(uint64_t size_class);
  void* take(uint64_t size_class);
  void keep(void* block, uint64_t size_class);
  void collect();  // takes back what isn't used any longer
  void trim_locked();

  const Device device_;
  Backend& backend_;
  mutable std::mutex mutex_;
  uint64_t capacity_;
  uint64_t cached_ = 0;
  Ledger ledger_;
  std::map<uint64_t, std::vector<void*>> cache_;  // size class → free blocks
  std::vector<Used> used_;
};

}  // namespace sg
