// Speed of the products: our fixed tile grid on a pool of threads against oneDNN's own threading of the whole product.
// usage: bench_kernels [threads]
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <thread>

#include "kernels/cpu/runtime/parallel.h"
#include "kernels/table.h"

#ifdef SG_ONEDNN
#include <omp.h>

#include <dnnl.hpp>
#endif

namespace {

using namespace sg;

struct Shape {
  const char* name;
  int64_t m, n, k;
  bool a_transposed, b_transposed;
};

// Linear layers y = x·wᵀ (forward), dx = dy·w, dw = dyᵀ·x of GPT-2 124M at 256 and 1,024 tokens, and of nano.
constexpr Shape shapes[] = {
    {"qkv forward", 256, 2304, 768, false, true},     {"qkv dx", 256, 768, 2304, false, false},
    {"qkv dw", 2304, 768, 256, true, false},          {"proj forward", 256, 768, 768, false, true},
    {"proj dx", 256, 768, 768, false, false},         {"proj dw", 768, 768, 256, true, false},
    {"fc forward", 256, 3072, 768, false, true},      {"fc dx", 256, 768, 3072, false, false},
    {"fc dw", 3072, 768, 256, true, false},           {"fc2 forward", 256, 768, 3072, false, true},
    {"fc2 dx", 256, 3072, 768, false, false},         {"fc2 dw", 768, 3072, 256, true, false},
    {"qkv forward", 1024, 2304, 768, false, true},    {"qkv dx", 1024, 768, 2304, false, false},
    {"qkv dw", 2304, 768, 1024, true, false},         {"proj forward", 1024, 768, 768, false, true},
    {"proj dx", 1024, 768, 768, false, false},        {"proj dw", 768, 768, 1024, true, false},
    {"fc forward", 1024, 3072, 768, false, true},     {"fc dx", 1024, 768, 3072, false, false},
    {"fc dw", 3072, 768, 1024, true, false},          {"fc2 forward", 1024, 768, 3072, false, true},
    {"fc2 dx", 1024, 3072, 768, false, false},        {"fc2 dw", 768, 3072, 1024, true, false},
    {"nano qkv forward", 768, 384, 128, false, true}, {"nano qkv dx", 768, 128, 384, false, false},
    {"nano qkv dw", 384, 128, 768, true, false},      {"nano proj forward", 768, 128, 128, false, true},
    {"nano proj dw", 128, 128, 768, true, false},     {"nano fc dw", 512, 128, 768, true, false},
};

using Clock = std::chrono::steady_clock;

// Seconds of one call, threads awake and operands in cache as far as they fit.
template <class F>
double seconds(int repeats, F&& call) {
  call();
  const auto start = Clock::now();
  for (int i = 0; i < repeats; ++i) call();
  return std::chrono::duration<double>(Clock::now() - start).count() / repeats;
}

// Memory as a device's pool gives it, in large pages.
class Array {
 public:
  Array(int64_t n, float value) : data_(allocate(sizeof(float) * static_cast<size_t>(n)), std::free) {
    std::fill_n(data(), n, value);
  }
  float* data() const { return static_cast<float*>(data_.get()); }

 private:
  static void* allocate(size_t bytes) {
    constexpr size_t page = size_t{2} << 20;
    const size_t size = (bytes + page - 1) / page * page;
    void* const block = std::aligned_alloc(page, size);
    if (block) madvise(block, size, MADV_HUGEPAGE);
    return block;
  }
  std::unique_ptr<void, decltype(&std::free)> data_;
};

View matrix(const Array& data, int64_t rows, int64_t columns, bool transposed) {
  View v;
  v.data = data.data();
  v.rank = 2;
  v.shape[0] = rows, v.shape[1] = columns;
  v.strides[0] = transposed ? 1 : columns, v.strides[1] = transposed ? rows : 1;
  return v;
}

void set_openmp_threads([[maybe_unused]] int threads) {
#ifdef SG_ONEDNN
  omp_set_num_threads(threads);
#endif
}

struct Timing {
  double ours, onednn;  // seconds
};

// The best of many short rounds, in turn, so that a busy machine disturbs both alike.
Timing measure(const Shape& s, kernels::ThreadPool& pool) {
  const Array a(s.m * s.k, 0.5f), b(s.k * s.n, 0.25f), c(s.m * s.n, 0);
  const View va = matrix(a, s.m, s.k, s.a_transposed), vb = matrix(b, s.k, s.n, s.b_transposed);
  const View vc = matrix(c, s.m, s.n, false);
  const KernelTable& table = *cpu_kernels();
  const size_t bytes = table.matmul_workspace(va, vb, vc, pool.threads());
  const std::unique_ptr<void, decltype(&std::free)> scratch(std::aligned_alloc(64, (bytes + 64) / 64 * 64), std::free);
  const auto ours = [&] { table.matmul.f32(va, vb, vc, {}, {scratch.get(), bytes}, {&pool}); };
  const auto whole = [&] {
#ifdef SG_ONEDNN
    dnnl_sgemm(s.a_transposed ? 'T' : 'N', s.b_transposed ? 'T' : 'N', s.m, s.n, s.k, 1.0f, a.data(),
               s.a_transposed ? s.m : s.k, b.data(), s.b_transposed ? s.k : s.n, 0.0f, c.data(), s.n);
#endif
  };
  const int repeats = static_cast<int>(std::clamp(2e9 / (2.0 * s.m * s.n * s.k), 1.0, 100.0));
  Timing best{1e9, 1e9};
  for (int round = 0; round < 20; ++round) {
    best.ours = std::min(best.ours, seconds(repeats, ours));
    set_openmp_threads(pool.threads());
    best.onednn = std::min(best.onednn, seconds(repeats, whole));
    set_openmp_threads(1);
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // OpenMP's threads spin for a while after their work
  }
  return best;
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
  if (threads < 1 || argc > 2) {
    fmt::print(stderr, "usage: bench_kernels [threads]      (default: every processor)\n");
    return 2;
  }
  kernels::ThreadPool pool(threads);
  fmt::print("f32 products, {} threads, {}: GFLOP/s on the fixed tile grid, by oneDNN's own threading, ratio\n",
             threads, cpu_kernels()->name);
  double flops = 0, ours = 0, onednn = 0;
  for (const Shape& s : shapes) {
    const double work = 2.0 * s.m * s.n * s.k;
    const Timing t = measure(s, pool);
    flops += work, ours += t.ours, onednn += t.onednn;
    fmt::print("{:18} {:5} × {:5} × {:5}  {:6.1f}  {:6.1f}  {:5.2f}\n", s.name, s.m, s.n, s.k, work / t.ours / 1e9,
               work / t.onednn / 1e9, t.onednn / t.ours);
  }
  fmt::print("{:42}  {:6.1f}  {:6.1f}  {:5.2f}\n", "all", flops / ours / 1e9, flops / onednn / 1e9, onednn / ours);
}
