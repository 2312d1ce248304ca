// A stack of its own for each CUDA thread, and the switch from one to another.
#pragma once
#include <ucontext.h>

#include <cstddef>

namespace simt {

class Fiber {
 public:
  Fiber() = default;  // the host thread's own stack
  // `colour` staggers the tops of stacks, which would otherwise fall on the same cache sets.
  Fiber(size_t stack_bytes, int colour, bool portable);
  ~Fiber();
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;

  // The next switch to this fiber calls entry on an empty stack; what was on it is forgotten,
  // without destructors.
  void restart(void (*entry)());

  // Saves this fiber, which is running, and continues `next`. Returns when something switches back.
  // A fiber that is `ending` is never continued, only restarted.
  void switch_to(Fiber& next, bool ending = false);

  // What entry must call first.
  static void entered();

 private:
  char* stack_ = nullptr;  // lowest usable address; the guard page lies below. The host thread's is
                           // learnt from ASan
  size_t bytes_ = 0;
  size_t colour_ = 0;
  bool portable_ = false;
  bool owned_ = false;
  void* stack_pointer_ = nullptr;
  [[maybe_unused]] void* asan_fake_stack_ = nullptr;
  ucontext_t context_;
};

}  // namespace simt
