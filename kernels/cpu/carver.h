// Arrays within a workspace.
#pragma once
#include <cstddef>
#include <cstdint>

namespace sg::kernels::SG_ISA {

// Carves 64-byte aligned arrays off a thread's part of the workspace; with no memory it only
// counts.
class Carver {
 public:
  explicit Carver(void* data) : data_(static_cast<char*>(data)) {}
  template <class W>
  W* take(int64_t n) {
    char* at = data_ ? data_ + bytes_ : nullptr;
    bytes_ += (static_cast<size_t>(n) * sizeof(W) + 63) / 64 * 64;
    return reinterpret_cast<W*>(at);
  }
  size_t bytes() const { return bytes_; }

 private:
  char* data_;
  size_t bytes_ = 0;
};

}  // namespace sg::kernels::SG_ISA
