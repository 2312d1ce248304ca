// The ops of core/ops.h as a table: for each its arguments, for a batch of any size, and what may
// be asked of them.
#pragma once
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "core/ops.h"

namespace sg::test {

using Tensors = std::vector<Tensor>;

struct OpRow {
  std::string name;                             // of the function
  std::function<Tensors(int64_t)> inputs;       // for a batch of n
  std::function<Tensors(const Tensors&)> call;  // the results, in-place ones too
  std::set<size_t> optional = {};               // may be undefined
  std::set<size_t> integers = {};               // must be i32 or i64
  std::set<size_t> written = {};                // may have to be dense
  bool any_device = false;                      // copies between devices
};

std::vector<OpRow> all_rows();

}  // namespace sg::test
