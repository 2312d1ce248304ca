// Rotary embedding (Su et al., 2021): dimensions (i, i + d/2) of a head turn by position ·
// theta^(−2i/d), or what rope.h makes of that. A block has one position: its angles, made in f64
// since positions run into the thousands, serve all sequences and heads.
#include "kernels/cuda/rows.h"
#include "kernels/element.h"
#include "kernels/entries.h"

namespace sg::kernels::cuda {
namespace {

constexpr int threads = 128;
constexpr int64_t heads_of_block = 32;

template <class T>
struct Rope {
  const T* x;
  T* y;
  const int64_t* positions;
  int64_t batch, heads, half;
  int64_t x_strides[3], y_strides[3];
  RopeOptions options;
  double direction;

  // Where head number `all` of position t begins.
  __device__ int64_t begin(const int64_t (&strides)[3], int64_t all, int64_t t) const {
    return all / heads * strides[0] + t * strides[1] + all % heads * strides[2];
  }
};

template <int W, class T, class S>
__device__ __forceinline__ void turn_pairs(
    const T* x, T* y, int64_t half, int64_t i, const S* cosines, const S* sines) {
  S low[W];
  S high[W];
  load_as<W>(x + i, low);
  load_as<W>(x + half + i, high);
#pragma unroll
  for (int j = 0; j < W; ++j) {
    const S c = read(cosines + i + j);
    const S s = read(sines + i + j);
    const S turned = element::fma(low[j], c, -(high[j] * s));
    high[j] = element::fma(low[j], s, high[j] * c);
    low[j] = turned;
  }
  store_as<W>(y + i, low);
  store_as<W>(y + half + i, high);
}

template <int W, class T>
__global__ void __launch_bounds__(threads) rope_kernel(Rope<T> r) {
  using S = Statistic<T>;
  SG_DYN_SHARED(S, cosines);
  S* const sines = cosines + r.half;
  const int64_t t = blockIdx.x;
  const double position = static_cast<double>(read(r.positions + t)) * r.direction;
  const double magnitude = r.options.magnitude;
  for (int64_t i = threadIdx.x; i < r.half; i += threads) {
    const double angle = position * rope_frequency(r.options, i, r.half);
    write(cosines + i, static_cast<S>(magnitude * std::cos(angle)));
    write(sines + i, static_cast<S>(magnitude * std::sin(angle)));
  }
  __syncthreads();
  const int64_t first = blockIdx.y * heads_of_block;
  const int64_t left = r.batch * r.heads - first;
  const int64_t count = left < heads_of_block ? left : heads_of_block;
  const int64_t lots = r.half / W;
  for (int64_t n = threadIdx.x; n < count * lots; n += threads) {
    const int64_t all = first + n / lots;
    const T* const x = r.x + r.begin(r.x_strides, all, t);
    T* const y = r.y + r.begin(r.y_strides, all, t);
    turn_pairs<W>(x, y, r.half, n % lots * W, cosines, sines);
  }
}

template <class T>
bool by_lots(const Rope<T>& r) {
  int64_t strides = 0;
  for (int d = 0; d < 3; ++d)
    strides |= r.x_strides[d] | r.y_strides[d];
  return strides % wide<T> == 0 && wide_rows<T>(r.half, r.x, r.y);
}

}  // namespace

template <class T>
void rope(const View& x,
          const View& positions,
          const RopeOptions& options,
          bool inverse,
          const View& y,
          StreamHandle stream) {
  Rope<T> r{.x = x.as<T>(),
            .y = y.as<T>(),
            .positions = positions.as<int64_t>(),
            .batch = x.shape[0],
            .heads = x.shape[2],
            .half = x.shape[3] / 2,
            .x_strides = {},
            .y_strides = {},
            .options = options,
            .direction = inverse ? -1.0 : 1.0};
  for (int d = 0; d < 3; ++d) {
    r.x_strides[d] = x.strides[d];
    r.y_strides[d] = y.strides[d];
  }
  if (x.numel() == 0)
    return;
  const dim3 grid(static_cast<unsigned>(x.shape[1]),
                  static_cast<unsigned>(divide_up(r.batch * r.heads, heads_of_block)));
  const size_t shared = static_cast<size_t>(2 * r.half) * sizeof(Statistic<T>);
  const auto kernel = by_lots(r) ? rope_kernel<wide<T>, T> : rope_kernel<1, T>;
  launch(kernel, grid, threads, shared, stream_of(stream), r);
}

SG_FOR_FLOATS(rope)

}  // namespace sg::kernels::cuda
