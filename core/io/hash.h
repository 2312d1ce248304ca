// SHA-256, fed piece by piece: of files, and of parameters for receipts.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace sg {

class Tensor;

class Sha256 {
 public:
  Sha256();
  ~Sha256();
  Sha256(Sha256&&) noexcept;
  Sha256& operator=(Sha256&&) noexcept;

  void update(const void* data, uint64_t bytes);
  void update(std::string_view text) { update(text.data(), text.size()); }
  std::string hex();  // of everything so far, 64 digits; afterwards the object starts anew

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

std::string sha256(std::string_view text);

// Adds x's elements in row-major order as f32 little-endian; x is of any float dtype, any strides,
// in readable memory. Over all parameters in registration order, a tied one once, this is a
// receipt's params_sha256.
void hash_as_f32(Sha256& hash, const Tensor& x);

}  // namespace sg
