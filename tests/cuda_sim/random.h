// A small generator for orders that depend on a seed (xorshift64).
#pragma once
#include <cstddef>
#include <cstdint>

namespace simt {

class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15ull | 1) {}
  size_t below(size_t n) {
    state_ ^= state_ << 13;
    state_ ^= state_ >> 7;
    state_ ^= state_ << 17;
    return (state_ >> 32) % n;
  }

 private:
  uint64_t state_;
};

}  // namespace simt
