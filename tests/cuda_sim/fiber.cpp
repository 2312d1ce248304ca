#include "tests/cuda_sim/fiber.h"

#include <sys/mman.h>

#include <cstdint>
#include <new>

#if defined(__has_feature)
#if __has_feature(address_sanitizer)
#define __SANITIZE_ADDRESS__ 1
#endif
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
#endif

namespace simt {
namespace {

constexpr size_t page = 4096;
Fiber* leaving =
    nullptr;  // the fiber of the last switch, whose bounds the arriving one learns from ASan

#if defined(__x86_64__)
constexpr bool hand_made = true;
#else
constexpr bool hand_made = false;
#endif

}  // namespace

#if defined(__x86_64__)
// Saves the registers that a callee must keep and the stack pointer, loads the other fiber's: 5–20
// ns, where swapcontext takes a system call for the signal mask.
extern "C" void simt_switch_stack(void** save, void* load);
asm(R"(
.text
.globl simt_switch_stack
.type simt_switch_stack, @function
simt_switch_stack:
  .cfi_startproc
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
  .cfi_endproc
.size simt_switch_stack, .-simt_switch_stack
)");
constexpr int saved_registers = 6;
#endif

Fiber::Fiber(size_t stack_bytes, int colour, bool portable)
    : bytes_((stack_bytes + page - 1) / page * page),
      colour_(static_cast<size_t>(colour) * 5 % 32 * 128),
      portable_(portable || !hand_made),
      owned_(true) {
  void* memory = mmap(nullptr,
                      bytes_ + page,
                      PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE,
                      -1,
                      0);
  if (memory == MAP_FAILED)
    throw std::bad_alloc();
  mprotect(memory, page, PROT_NONE);
  stack_ = static_cast<char*>(memory) + page;
}

Fiber::~Fiber() {
  if (owned_)
    munmap(stack_ - page, bytes_ + page);
}

void Fiber::restart(void (*entry)()) {
#if defined(__SANITIZE_ADDRESS__)
  __asan_unpoison_memory_region(stack_, bytes_);
#endif
  char* top = stack_ + bytes_ - colour_;
  if (portable_) {
    getcontext(&context_);
    context_.uc_stack.ss_sp = stack_;
    context_.uc_stack.ss_size = bytes_ - colour_;
    context_.uc_link = nullptr;
    makecontext(&context_, entry, 0);
    return;
  }
#if defined(__x86_64__)
  void** frame = reinterpret_cast<void**>(reinterpret_cast<uintptr_t>(top) & ~uintptr_t(15));
  *--frame = nullptr;  // entry's return address: it never returns, and the stack is aligned as
                       // after a call
  *--frame = reinterpret_cast<void*>(entry);
  for (int i = 0; i < saved_registers; ++i)
    *--frame = nullptr;
  stack_pointer_ = frame;
#endif
}

void Fiber::switch_to(Fiber& next, bool ending) {
  leaving = this;
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_start_switch_fiber(ending ? nullptr : &asan_fake_stack_, next.stack_, next.bytes_);
#else
  (void)ending;
#endif
  // The host thread's fiber is switched by the means of the one it meets.
  if (portable_ || next.portable_)
    swapcontext(&context_, &next.context_);
#if defined(__x86_64__)
  else
    simt_switch_stack(&stack_pointer_, next.stack_pointer_);
#endif
#if defined(__SANITIZE_ADDRESS__)
  __sanitizer_finish_switch_fiber(asan_fake_stack_, nullptr, nullptr);
#endif
}

void Fiber::entered() {
#if defined(__SANITIZE_ADDRESS__)
  const void* bottom = nullptr;
  size_t bytes = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &bytes);
  if (!leaving->owned_) {
    leaving->stack_ = static_cast<char*>(const_cast<void*>(bottom));
    leaving->bytes_ = bytes;
  }
#endif
}

}  // namespace simt
