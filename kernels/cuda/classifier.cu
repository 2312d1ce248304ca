// The loss with the classifier's products, by chunks of rows, so that no logits of all rows exist:
// logits of a chunk in the wide type, their losses and gradients in one kernel, then the two
// gradient products. Chunks depend on shapes alone.
#include "kernels/cuda/loss.h"
#include "kernels/cuda/products.h"
#include "kernels/cuda/rows.h"
#include "kernels/entries.h"

namespace sg::kernels::cuda {
namespace {

constexpr int64_t logits_bytes = int64_t{128} << 20;  // of a chunk, about
constexpr int64_t rows_at_least = 64;

// Rows of a chunk: a multiple of 64, so that chunks begin at whole sectors.
int64_t chunk_rows(int64_t rows, int64_t v) {
  const int64_t fitting = logits_bytes / (v * 4) / rows_at_least * rows_at_least;
  return std::min(rows, std::max(fitting, rows_at_least));
}

View matrix(void* data, DType dtype, int64_t rows, int64_t columns) {
  View x;
  x.data = data;
  x.dtype = dtype;
  x.rank = 2;
  x.shape[0] = rows;
  x.shape[1] = columns;
  x.strides[0] = columns;
  x.strides[1] = 1;
  return x;
}
View rows_from(const View& x, int64_t first, int64_t count) {
  View part = x;
  part.data = x.as<char>() + first * x.shape[1] * static_cast<int64_t>(size_of(x.dtype));
  part.shape[0] = count;
  return part;
}
View transposed(View x) {
  std::swap(x.shape[0], x.shape[1]);
  std::swap(x.strides[0], x.strides[1]);
  return x;
}

// The workspace: logits of a chunk; their gradient where it has 16 bits; the sums of d_weight where
// that has 16 bits and there are several chunks; what products need.
template <class T>
struct Buffers {
  static constexpr bool narrow = sizeof(T) == 2;
  int64_t chunk, v, c;
  View logits, gradient, d_weight;
  Workspace products;
  size_t bytes = 0;

  Buffers(const View& x, const View& weight, bool backward, Workspace workspace)
      : chunk(chunk_rows(x.shape[0], weight.shape[0])), v(weight.shape[0]), c(weight.shape[1]) {
    const DType wide_type = dtype_of<Statistic<T>>;
    const bool several = chunk < x.shape[0];
    auto* const memory = static_cast<char*>(workspace.data);
    const auto take = [&](DType dtype, int64_t rows, int64_t columns) {
      const View view = matrix(memory ? memory + bytes : nullptr, dtype, rows, columns);
      bytes += (static_cast<size_t>(rows * columns) * size_of(dtype) + 255) / 256 * 256;
      return view;
    };
    logits = take(wide_type, chunk, v);
    gradient = narrow && backward ? take(dtype_of<T>, chunk, v) : logits;
    if (narrow && backward && several)
      d_weight = take(wide_type, v, c);
    const size_t of_products = product_bytes(x, weight, backward);
    products = {memory ? memory + bytes : nullptr, of_products};
    bytes += of_products;
  }

  // The most that a chunk's products ask for, wherever its rows lie.
  size_t product_bytes(const View& x, const View& weight, bool backward) const {
    View rows = x;
    rows.shape[0] = chunk;
    const auto below = [](View view) {
      view.data = reinterpret_cast<void*>(1);
      return view;
    };
    size_t most = multiply_workspace(below(rows), below(transposed(weight)), logits);
    if (!backward)
      return most;
    most = std::max(most, multiply_workspace(gradient, below(weight), below(rows)));
    return std::max(most, multiply_workspace(transposed(gradient), below(rows), below(weight)));
  }
};

template <class T>
void run(const View& x,
         const View& weight,
         const View& targets,
         const View& losses,
         const View& dx,
         const View& d_weight,
         float scale,
         Workspace workspace,
         StreamHandle stream) {
  const bool backward = d_weight.data != nullptr;
  const int64_t rows = x.shape[0];
  Buffers<T> b(x, weight, backward, workspace);
  const View sums = b.d_weight.data ? b.d_weight : d_weight;
  auto* const loss = losses.as<Statistic<T>>();
  const auto* const logits = static_cast<const Statistic<T>*>(b.logits.data);
  auto* const gradient = backward ? static_cast<T*>(b.gradient.data) : nullptr;
  for (int64_t first = 0; first < rows; first += b.chunk) {
    const int64_t count = std::min(b.chunk, rows - first);
    b.logits.shape[0] = b.gradient.shape[0] = count;
    const View part = rows_from(x, first, count);
    multiply(part, transposed(weight), b.logits, {}, b.products, stream);
    row_losses<T>(logits, count, b.v, targets, first, loss + first, gradient, scale, stream);
    if (!backward)
      continue;
    multiply(b.gradient, weight, rows_from(dx, first, count), {}, b.products, stream);
    const MatmulOptions adding{.accumulate = first > 0};
    multiply(transposed(b.gradient), part, sums, adding, b.products, stream);
  }
  if (backward && rows == 0)
    fill(d_weight, 0, stream);
  else if (b.d_weight.data)
    copy(b.d_weight, d_weight, stream);
}

}  // namespace

template <class T>
void classifier(const View& x,
                const View& weight,
                const View& targets,
                const View& losses,
                const View& dx,
                const View& d_weight,
                float scale,
                Workspace workspace,
                StreamHandle stream) {
  run<T>(x, weight, targets, losses, dx, d_weight, scale, workspace, stream);
}

size_t classifier_workspace(const View& x, const View& weight, bool backward, int) {
  switch (x.dtype) {
    case DType::f64: return Buffers<double>(x, weight, backward, {}).bytes;
    case DType::f16: return Buffers<f16>(x, weight, backward, {}).bytes;
    case DType::bf16: return Buffers<bf16>(x, weight, backward, {}).bytes;
    default: return Buffers<float>(x, weight, backward, {}).bytes;
  }
}

SG_FOR_FLOATS(classifier)

}  // namespace sg::kernels::cuda
