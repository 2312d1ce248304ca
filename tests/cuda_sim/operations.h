// A kernel that uses each barrier and warp operation once, so that their meaning can be checked.
#pragma once
#include <cuda_runtime.h>

namespace simt {

// Per thread of one block, in out[5·thread…]: the block's positive values of in; those of lower
// lanes in its warp; the sum of its warp's values up to itself, and from itself on; the value of
// the thread opposite in the block.
void run_operations(const int* in, int* out, unsigned threads);

}  // namespace simt
