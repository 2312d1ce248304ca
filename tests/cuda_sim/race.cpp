#include "tests/cuda_sim/race.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <set>
#include <string>
#include <vector>

#include "tests/cuda_sim/executor.h"
#include "tests/cuda_sim/faults.h"

namespace simt {

#if defined(SIMT_CHECKS_ACCESSES)
bool checks_accesses() {
  return true;
}
#else
bool checks_accesses() {
  return false;
}
#endif

namespace race {
namespace {

enum class By : uint8_t {
  thread,
  warp,
  block
};  // several threads of a warp or block may have read

// Who touched a byte, and when: the numbers of the block's and the warp's last barrier.
struct Access {
  uint32_t kernel, block;
  uint16_t thread;  // the last of them
  By by;
  bool atomic;
  uint16_t barrier, warp_barrier;
};

// One per byte of device and shared memory. `write.kernel` is none where no allocation lies, so
// that fresh and freed pages of zeros need no upkeep.
struct Cell {
  Access write, read;
};
constexpr uint32_t none = 0, unwritten = ~0u, host = ~0u - 1;

char* begin = nullptr;
char* end = nullptr;
Cell* cells = nullptr;

uint32_t kernel = 1;
uint16_t barrier_now = 0;
uint16_t warp_barriers[32] = {};
std::vector<int> published;  // per block: its barrier number at its last fence, -1 before
bool acquired = false;       // the running block has met another by an atomic
std::set<void*> reported;    // instructions, once per kernel

Cell* cell_of(const void* p) {
  return cells + (static_cast<const char*>(p) - begin);
}

void set_state(const void* memory, size_t bytes, uint32_t state) {
  Cell* cell = cell_of(memory);
  for (size_t i = 0; i < bytes; ++i) {
    cell[i] = Cell{};
    cell[i].write.kernel = state;
  }
}

std::string who(uint32_t block, uint32_t thread) {
  return "block " + std::to_string(block) + ", thread " + std::to_string(thread);
}

void report(const char* what, const Access* other, void* instruction) {
  if (!reported.insert(instruction).second)
    return;
  std::string line = std::string(what) + " in " + source_line(instruction) + " by " +
                     who(block_number, current->linear);
  if (other)
    line += ", against " + who(other->block, other->thread);
  report_fault(line);
}

// Whether what `earlier` did is known to have happened before the running thread's present access.
bool ordered(const Access& earlier, bool atomic) {
  if (earlier.kernel != kernel)
    return true;
  if (atomic && earlier.atomic)
    return true;
  if (earlier.block != block_number)
    return acquired && earlier.block < published.size() &&
           earlier.barrier <= published[earlier.block];
  if (earlier.barrier != barrier_now)
    return true;
  if (earlier.by == By::block)
    return false;
  const uint32_t warp = current->linear / 32;
  if (earlier.thread / 32u == warp && earlier.warp_barrier != warp_barriers[warp])
    return true;
  return earlier.by == By::thread && earlier.thread == current->linear;
}

void remember_read(Access& last, const Access& mine) {
  const Access before = last;
  last = mine;
  const bool same_warp = before.thread / 32 == mine.thread / 32;
  if (before.kernel != mine.kernel || before.block != mine.block || before.barrier != mine.barrier)
    return;
  // What comes after a warp barrier stands for what came before it in that warp.
  if (before.by != By::block && same_warp && before.warp_barrier != mine.warp_barrier)
    return;
  last.atomic = before.atomic && mine.atomic;
  if (before.by == By::thread && before.thread == mine.thread)
    return;
  last.by = same_warp && before.by != By::block ? By::warp : By::block;
}

enum class Does { reads, writes };

void access(void* p, size_t bytes, Does does, bool atomic, void* instruction) {
  if (!current || static_cast<char*>(p) < begin || static_cast<char*>(p) >= end)
    return;
  const bool writes = does == Does::writes;
  const auto thread = static_cast<uint16_t>(current->linear);
  const Access mine{
      kernel, block_number, thread, By::thread, atomic, barrier_now, warp_barriers[thread / 32]};
  Cell* cell = cell_of(p);
  for (size_t i = 0; i < bytes; ++i) {
    Cell& c = cell[i];
    if (c.write.kernel == none)
      return report("access outside any allocation", nullptr, instruction);
    if (c.write.kernel == unwritten && (!writes || atomic))
      report("read of memory never written", nullptr, instruction);
    if (!ordered(c.write, atomic))
      report(writes ? "race of two writes" : "race of a read with a write", &c.write, instruction);
    if (writes) {
      if (!ordered(c.read, atomic))
        report("race of a write with a read", &c.read, instruction);
      c.write = mine;
    } else {
      remember_read(c.read, mine);
    }
  }
}

}  // namespace

void watch(char* memory, size_t bytes) {
  begin = memory;
  end = memory + bytes;
  void* shadow = mmap(nullptr,
                      bytes * sizeof(Cell),
                      PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1,
                      0);
  if (shadow == MAP_FAILED)
    std::abort();
  cells = static_cast<Cell*>(shadow);
}

void allocated(void* memory, size_t bytes) {
  if (checks_accesses())
    set_state(memory, bytes, unwritten);
}
void written(const void* memory, size_t bytes) {
  if (checks_accesses())
    set_state(memory, bytes, host);
}
void freed(void* memory, size_t bytes) {
  if (checks_accesses())
    set_state(memory, bytes, none);
}

void kernel_begins() {
  ++kernel;
  published.clear();
  reported.clear();
}
void block_begins() {
  barrier_now = 0;
  acquired = false;
  std::memset(warp_barriers, 0, sizeof warp_barriers);
}
void block_barrier() {
  ++barrier_now;
}
void warp_barrier(uint32_t warp) {
  ++warp_barriers[warp];
}
void fence() {
  if (!current)
    return;
  if (published.size() <= block_number)
    published.resize(block_number + 1, -1);
  published[block_number] = barrier_now;
}

namespace {

void report_access(void* p, size_t bytes, Does does, void* instruction) {
  if (current && reinterpret_cast<uintptr_t>(p) % bytes != 0)
    device_trap("misaligned access", std::source_location::current());
  if (checks_accesses())
    access(p, bytes, does, false, instruction);
}

}  // namespace

uint64_t load(const void* from, size_t bytes) {
  report_access(const_cast<void*>(from), bytes, Does::reads, __builtin_return_address(0));
  uint64_t bits = 0;
  std::memcpy(&bits, from, bytes);
  return bits;
}
Sixteen load16(const void* from) {
  report_access(const_cast<void*>(from), 16, Does::reads, __builtin_return_address(0));
  Sixteen bits;
  std::memcpy(&bits, from, 16);
  return bits;
}
void store(void* to, uint64_t bits, size_t bytes) {
  report_access(to, bytes, Does::writes, __builtin_return_address(0));
  std::memcpy(to, &bits, bytes);
}
void store16(void* to, Sixteen bits) {
  report_access(to, 16, Does::writes, __builtin_return_address(0));
  std::memcpy(to, &bits, 16);
}

}  // namespace race
}  // namespace simt

// ---- what -fsanitize=thread calls

using simt::race::access;
using simt::race::Does;
#define SIMT_HERE __builtin_return_address(0)

#define SIMT_PLAIN(size)                             \
  void __tsan_read##size(void* p) {                  \
    access(p, size, Does::reads, false, SIMT_HERE);  \
  }                                                  \
  void __tsan_write##size(void* p) {                 \
    access(p, size, Does::writes, false, SIMT_HERE); \
  }                                                  \
  void __tsan_unaligned_read##size(void* p) {        \
    access(p, size, Does::reads, false, SIMT_HERE);  \
  }                                                  \
  void __tsan_unaligned_write##size(void* p) {       \
    access(p, size, Does::writes, false, SIMT_HERE); \
  }                                                  \
  void __tsan_volatile_read##size(void* p) {         \
    access(p, size, Does::reads, true, SIMT_HERE);   \
  }                                                  \
  void __tsan_volatile_write##size(void* p) {        \
    access(p, size, Does::writes, true, SIMT_HERE);  \
  }                                                  \
  void __tsan_read_write##size(void* p) {            \
    access(p, size, Does::reads, false, SIMT_HERE);  \
    access(p, size, Does::writes, false, SIMT_HERE); \
  }

namespace {

// One kernel runs at a time, on one host thread, and its fibers switch only at barriers: plain code
// is atomic enough.
template <class T, class F>
T update(volatile T* p, void* instruction, F&& change) {
  access(const_cast<T*>(p), sizeof(T), Does::writes, true, instruction);
  simt::race::acquired = true;
  const T old = *p;
  *p = change(old);
  return old;
}
template <class T>
bool compare_exchange(volatile T* p, T* expected, T value, void* instruction) {
  const T wanted = *expected;
  *expected = update(p, instruction, [=](T old) { return old == wanted ? value : old; });
  return *expected == wanted;
}

}  // namespace

#define SIMT_ATOMIC(bits, T)                                                                   \
  T __tsan_atomic##bits##_load(const volatile T* p, int) {                                     \
    access(const_cast<T*>(p), sizeof(T), Does::reads, true, SIMT_HERE);                        \
    return *p;                                                                                 \
  }                                                                                            \
  void __tsan_atomic##bits##_store(volatile T* p, T value, int) {                              \
    update(p, SIMT_HERE, [=](T) { return value; });                                            \
  }                                                                                            \
  T __tsan_atomic##bits##_exchange(volatile T* p, T value, int) {                              \
    return update(p, SIMT_HERE, [=](T) { return value; });                                     \
  }                                                                                            \
  T __tsan_atomic##bits##_fetch_add(volatile T* p, T value, int) {                             \
    return update(p, SIMT_HERE, [=](T old) { return static_cast<T>(old + value); });           \
  }                                                                                            \
  int __tsan_atomic##bits##_compare_exchange_strong(volatile T* p, T* e, T value, int, int) {  \
    return compare_exchange(p, e, value, SIMT_HERE);                                           \
  }                                                                                            \
  int __tsan_atomic##bits##_compare_exchange_weak(volatile T* p, T* e, T value, int, int) {    \
    return compare_exchange(p, e, value, SIMT_HERE);                                           \
  }                                                                                            \
  T __tsan_atomic##bits##_compare_exchange_val(volatile T* p, T expected, T value, int, int) { \
    compare_exchange(p, &expected, value, SIMT_HERE);                                          \
    return expected;                                                                           \
  }

extern "C" {
void __tsan_init() {}
void __tsan_func_entry(void*) {}
void __tsan_func_exit() {}
void __tsan_vptr_read(void**) {}
void __tsan_vptr_update(void**, void*) {}
void __tsan_read_range(void* p, size_t bytes) {
  access(p, bytes, Does::reads, false, SIMT_HERE);
}
void __tsan_write_range(void* p, size_t bytes) {
  access(p, bytes, Does::writes, false, SIMT_HERE);
}
// clang alone calls these; g++ leaves copies of whole structs unwatched.
void* __tsan_memcpy(void* to, const void* from, size_t bytes) {
  access(const_cast<void*>(from), bytes, Does::reads, false, SIMT_HERE);
  access(to, bytes, Does::writes, false, SIMT_HERE);
  return std::memcpy(to, from, bytes);
}
void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  access(const_cast<void*>(from), bytes, Does::reads, false, SIMT_HERE);
  access(to, bytes, Does::writes, false, SIMT_HERE);
  return std::memmove(to, from, bytes);
}
void* __tsan_memset(void* to, int value, size_t bytes) {
  access(to, bytes, Does::writes, false, SIMT_HERE);
  return std::memset(to, value, bytes);
}
SIMT_PLAIN(1)
SIMT_PLAIN(2)
SIMT_PLAIN(4)
SIMT_PLAIN(8)
SIMT_PLAIN(16)
SIMT_ATOMIC(8, unsigned char)
SIMT_ATOMIC(16, unsigned short)
SIMT_ATOMIC(32, unsigned int)
SIMT_ATOMIC(64, unsigned long)
}
