// The loss of rows of logits, which cross-entropy and the classifier share.
#pragma once
#include "kernels/cuda/access.h"
#include "kernels/device.h"
#include "kernels/view.h"

namespace sg::kernels::cuda {

// losses (rows) of logits (rows, n) of L: log Σ e^x − x[target], 0 where the target is −1; unless
// `gradient` is null it receives scale · (softmax − onehot), and may be the logits. targets: i32 or
// i64, of which rows first … first + rows − 1 count. L is T or T's Statistic.
template <class T, class L>
void row_losses(const L* logits,
                int64_t rows,
                int64_t n,
                const View& targets,
                int64_t first,
                Statistic<T>* losses,
                T* gradient,
                float scale,
                StreamHandle stream);

}  // namespace sg::kernels::cuda
