#include "tests/cuda_sim/memory.h"

#include <cuda_runtime.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <vector>

#include "tests/cuda_sim/faults.h"
#include "tests/cuda_sim/race.h"
#include "tests/cuda_sim/streams.h"

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#else
#define ASAN_POISON_MEMORY_REGION(memory, bytes) \
  (static_cast<void>(memory), static_cast<void>(bytes))
#define ASAN_UNPOISON_MEMORY_REGION(memory, bytes) \
  (static_cast<void>(memory), static_cast<void>(bytes))
#endif

namespace simt {
namespace {

constexpr size_t page = 4096, alignment = 512;
constexpr size_t arena_bytes = size_t(1)
                               << 30;  // address space; an address is never handed out twice
constexpr size_t shared_window_bytes =
    size_t(1) << 20;  // its beginning: shared memory, used again by every kernel
constexpr size_t red_zone = 256;

struct Allocation {
  size_t bytes;
  int device;
  Place place;
};

struct SharedArray {
  const void* key;
  void* memory;
  size_t bytes;
};

struct Arena {
  char* base;
  size_t used = shared_window_bytes;
  size_t shared_used = 0;
  std::vector<SharedArray> shared;
  int open = 0;

  Arena() {
    void* memory =
        mmap(nullptr, arena_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
      std::abort();
    base = static_cast<char*>(memory);
    race::watch(base, arena_bytes);
    ASAN_POISON_MEMORY_REGION(base, shared_window_bytes);
  }
  void protect(int protection) { mprotect(base, used, protection); }
};

Arena& arena() {
  static Arena& instance = *new Arena;
  return instance;
}

struct State {
  size_t capacity = 0;
  std::vector<size_t> used;                     // bytes per device
  std::map<uintptr_t, Allocation> allocations;  // by address
};
State& state() {
  static State& instance = *new State;
  return instance;
}

// The allocation that p points into, or one past.
std::map<uintptr_t, Allocation>::iterator find(const void* p) {
  auto& all = state().allocations;
  auto it = all.upper_bound(reinterpret_cast<uintptr_t>(p));
  if (it == all.begin())
    return all.end();
  --it;
  return reinterpret_cast<uintptr_t>(p) <= it->first + it->second.bytes ? it : all.end();
}

size_t rounded(size_t bytes) {
  return (bytes + alignment - 1) / alignment * alignment;
}

// Bytes 0xFF (NaN in every float type, −1 in integers), and unwritten to the race checker.
void make_unwritten(void* memory, size_t bytes) {
  ASAN_UNPOISON_MEMORY_REGION(memory, bytes);
  std::memset(memory, 0xFF, bytes);
  race::allocated(memory, bytes);
}

// The next unused addresses, with an unmapped page behind them.
void* take(size_t bytes) {
  Arena& a = arena();
  const size_t reserve = (bytes + page - 1) / page * page + page;
  if (a.used + reserve > arena_bytes)
    return nullptr;
  char* memory = a.base + a.used;
  const OpenDeviceMemory open;
  mprotect(memory, reserve, PROT_READ | PROT_WRITE);
  ASAN_POISON_MEMORY_REGION(memory, reserve);
  make_unwritten(memory, bytes);
  a.used += reserve;
  return memory;
}

cudaError_t release(void* p, Place place) {
  if (!p)
    return cudaSuccess;
  const auto it = state().allocations.find(reinterpret_cast<uintptr_t>(p));
  if (it == state().allocations.end() || it->second.place != place)
    return cudaErrorInvalidValue;
  if (place == Place::device) {
    state().used[static_cast<size_t>(it->second.device)] -= rounded(it->second.bytes);
    race::freed(p, it->second.bytes);
    ASAN_POISON_MEMORY_REGION(p, it->second.bytes);
    madvise(p, (it->second.bytes + page - 1) / page * page, MADV_DONTNEED);
  } else {
    std::free(p);
  }
  state().allocations.erase(it);
  return cudaSuccess;
}

}  // namespace

OpenDeviceMemory::OpenDeviceMemory() {
  if (arena().open++ == 0)
    arena().protect(PROT_READ | PROT_WRITE);
}
OpenDeviceMemory::~OpenDeviceMemory() {
  if (--arena().open == 0)
    arena().protect(PROT_NONE);
}

void* shared_array(const void* key, size_t bytes, size_t align) {
  Arena& a = arena();
  for (const SharedArray& array : a.shared)
    if (array.key == key)
      return array.memory;
  const size_t at = (a.shared_used + align - 1) / align * align;
  if (at + bytes + red_zone > shared_window_bytes)
    std::abort();
  a.shared_used = at + bytes + red_zone;
  a.shared.push_back({key, a.base + at, bytes});
  make_unwritten(a.base + at, bytes);
  return a.base + at;
}

void begin_shared_memory() {
  for (const SharedArray& array : arena().shared)
    make_unwritten(array.memory, array.bytes);
}

void end_shared_memory() {
  Arena& a = arena();
  race::freed(a.base, a.shared_used);
  ASAN_POISON_MEMORY_REGION(a.base, a.shared_used);
  a.shared_used = 0;
  a.shared.clear();
}

Place place_of(const void* p) {
  const auto it = find(p);
  return it == state().allocations.end() ? Place::pageable : it->second.place;
}
bool within_allocation(const void* p, size_t bytes) {
  const auto it = find(p);
  return it == state().allocations.end() ||
         reinterpret_cast<uintptr_t>(p) + bytes <= it->first + it->second.bytes;
}

void reset_memory(size_t capacity, int devices) {
  auto& all = state().allocations;
  while (!all.empty())
    release(reinterpret_cast<void*>(all.begin()->first), all.begin()->second.place);
  state().capacity = capacity;
  state().used.assign(static_cast<size_t>(devices), 0);
}

}  // namespace simt

// ---- the runtime's memory functions

using namespace simt;
using Lock = std::lock_guard<std::recursive_mutex>;

extern "C" {

cudaError_t cudaMalloc(void** p, size_t bytes) {
  const Lock lock(device_lock());
  size_t& used = state().used[static_cast<size_t>(current_device())];
  if (used + rounded(bytes) > state().capacity)
    return result(cudaErrorMemoryAllocation);
  *p = take(bytes);
  if (!*p) {
    report_fault(
        "cudaMalloc: the software device's addresses are used up; split the test or raise "
        "arena_bytes");
    return result(cudaErrorMemoryAllocation);
  }
  used += rounded(bytes);
  state().allocations[reinterpret_cast<uintptr_t>(*p)] = {bytes, current_device(), Place::device};
  return result(cudaSuccess);
}

cudaError_t cudaFree(void* p) {
  const Lock lock(device_lock());
  wait_for_all();
  return result(release(p, Place::device));
}

cudaError_t cudaMallocHost(void** p, size_t bytes) {
  const Lock lock(device_lock());
  *p = std::aligned_alloc(page, (bytes + page) / page * page);
  std::memset(*p, 0xFF, bytes);
  state().allocations[reinterpret_cast<uintptr_t>(*p)] = {bytes, -1, Place::pinned};
  return result(cudaSuccess);
}

cudaError_t cudaFreeHost(void* p) {
  const Lock lock(device_lock());
  wait_for_all();
  return result(release(p, Place::pinned));
}

cudaError_t cudaMemGetInfo(size_t* available, size_t* total) {
  const Lock lock(device_lock());
  *total = state().capacity;
  *available = *total - state().used[static_cast<size_t>(current_device())];
  return result(cudaSuccess);
}

cudaError_t cudaMemsetAsync(void* p, int value, size_t bytes, cudaStream_t stream) {
  const Lock lock(device_lock());
  if (place_of(p) != Place::device || !within_allocation(p, bytes))
    return result(cudaErrorInvalidValue);
  return enqueue(stream, [=] {
    std::memset(p, value, bytes);
    race::written(p, bytes);
  });
}

cudaError_t cudaMemset2DAsync(
    void* p, size_t pitch, int value, size_t width, size_t height, cudaStream_t stream) {
  for (size_t row = 0; row < height; ++row) {
    const cudaError_t error =
        cudaMemsetAsync(static_cast<char*>(p) + row * pitch, value, width, stream);
    if (error != cudaSuccess)
      return error;
  }
  return result(cudaSuccess);
}

cudaError_t cudaMemset(void* p, int value, size_t bytes) {
  return cudaMemsetAsync(p, value, bytes, nullptr);
}

// Pageable memory is read before the call returns, and written before it returns; pinned memory
// when the copy's turn in the stream comes, so that a buffer used again too early gives a wrong
// result.
cudaError_t cudaMemcpyAsync(
    void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  const Lock lock(device_lock());
  const bool to_device = place_of(to) == Place::device,
             from_device = place_of(from) == Place::device;
  const bool kind_fits =
      kind == cudaMemcpyDefault ||
      (to_device == (kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice) &&
       from_device == (kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice));
  if (!kind_fits || !within_allocation(to, bytes) || !within_allocation(from, bytes))
    return result(cudaErrorInvalidValue);
  std::shared_ptr<char[]> staged;
  if (place_of(from) == Place::pageable) {
    staged.reset(new char[bytes]);
    std::memcpy(staged.get(), from, bytes);
  }
  const cudaError_t queued = enqueue(stream, [=] {
    std::memmove(to, staged ? staged.get() : from, bytes);
    if (to_device)
      race::written(to, bytes);
  });
  return place_of(to) == Place::pageable ? cudaStreamSynchronize(stream) : queued;
}

cudaError_t cudaMemcpy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t queued = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return queued == cudaSuccess ? cudaStreamSynchronize(nullptr) : queued;
}
}
