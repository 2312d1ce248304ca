// What tests ask of errors.
#pragma once
#include <gtest/gtest.h>

#include <string>

#include "core/error.h"

namespace sg::test {

// The message of the Error of this kind that fn must throw; a failed expectation when it throws
// none.
template <class F>
std::string error_of(ErrorKind kind, F fn) {
  try {
    fn();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), kind) << e.what();
    return e.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return {};
}

}  // namespace sg::test
