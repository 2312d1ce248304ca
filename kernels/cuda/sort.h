// A stable radix sort of ids with the positions that they came from.
#pragma once
#include "kernels/device.h"
#include "kernels/view.h"

namespace sg::kernels::cuda {

struct SortedIds {
  const uint32_t* ids;        // (n), rising
  const uint32_t* positions;  // (n): where each stood; equal ids in the order in which they stood
};

// Bytes of workspace for n ids.
size_t sort_workspace(int64_t n);

// ids (n) i32|i64 in [0, limit), n and limit below 2^32. The result lies in the workspace. Eight
// bits a pass, three kernels each; every pass counts, adds up and moves in a fixed order.
SortedIds sort_ids(const View& ids, int64_t limit, Workspace workspace, StreamHandle stream);

}  // namespace sg::kernels::cuda
