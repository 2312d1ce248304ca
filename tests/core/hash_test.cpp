#include "core/io/hash.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "core/ops.h"

namespace sg {
namespace {

// FIPS 180-4's examples.
TEST(Sha256, KnownDigests) {
  EXPECT_EQ(sha256(""), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
  EXPECT_EQ(sha256("abc"), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
  EXPECT_EQ(sha256(std::string(1'000'000, 'a')),
            "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(Sha256, PiecesGiveTheDigestOfTheWholeAndItStartsAnew) {
  Sha256 hash;
  hash.update("a");
  hash.update("");
  hash.update("bc");
  EXPECT_EQ(hash.hex(), sha256("abc"));
  EXPECT_EQ(hash.hex(), sha256(""));
}

TEST(HashAsF32, DependsOnValuesAloneNotOnDtypeOrStrides) {
  const Tensor x = from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  Sha256 hash;
  hash_as_f32(hash, x);
  const std::string digest = hash.hex();
  const float values[] = {1, 2, 3, 4, 5, 6};
  EXPECT_EQ(digest, sha256({reinterpret_cast<const char*>(values), sizeof values}));

  hash_as_f32(hash, cast(x, DType::bf16));
  EXPECT_EQ(hash.hex(), digest);
  hash_as_f32(hash, clone(x.transposed()).transposed());
  EXPECT_EQ(hash.hex(), digest);
  EXPECT_THROW(hash_as_f32(hash, cast(x, DType::i32)), Error);
}

}  // namespace
}  // namespace sg
