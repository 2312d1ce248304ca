#include "core/io/hash.h"

#include <openssl/evp.h>

#include <array>
#include <bit>

#include "core/error.h"
#include "core/ops.h"

namespace sg {

static_assert(std::endian::native == std::endian::little, "files and hashes are little-endian");

struct Sha256::Context {
  EVP_MD_CTX* md = EVP_MD_CTX_new();
  Context() { begin(); }
  ~Context() { EVP_MD_CTX_free(md); }
  void begin() {
    invariant(md && EVP_DigestInit_ex(md, EVP_sha256(), nullptr) == 1,
              "sha256: OpenSSL refuses to start");
  }
};

Sha256::Sha256() : context_(std::make_unique<Context>()) {}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(const void* data, uint64_t bytes) {
  invariant(
      EVP_DigestUpdate(context_->md, data, bytes) == 1, "sha256: OpenSSL refuses {} bytes", bytes);
}

std::string Sha256::hex() {
  std::array<unsigned char, 32> digest;
  invariant(EVP_DigestFinal_ex(context_->md, digest.data(), nullptr) == 1,
            "sha256: OpenSSL refuses to finish");
  context_->begin();
  std::string text;
  for (const unsigned char byte : digest) {
    text += "0123456789abcdef"[byte >> 4];
    text += "0123456789abcdef"[byte & 15];
  }
  return text;
}

std::string sha256(std::string_view text) {
  Sha256 hash;
  hash.update(text);
  return hash.hex();
}

void hash_as_f32(Sha256& hash, const Tensor& x) {
  check(is_float(x.dtype()), "hash: parameters are floats, not {}", name_of(x.dtype()));
  constexpr int64_t chunk = int64_t{1} << 20;  // elements converted at a time
  const Tensor flat = contiguous(x).flatten();
  for (int64_t begin = 0; begin < flat.numel(); begin += chunk) {
    const Tensor part =
        cast(flat.slice(0, begin, std::min(begin + chunk, flat.numel())), DType::f32);
    hash.update(part.data<float>(), part.bytes());
  }
}

}  // namespace sg
