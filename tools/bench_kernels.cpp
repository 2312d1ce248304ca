// Speed of the products: our fixed tile grid on a pool of threads against oneDNN's own threading of
// the whole product; and of causal attention, against the speed of a product. Or, without any
// timing, how evenly the tasks of a training step share out among threads, computed from the
// kernels' plans. usage: bench_kernels [threads [products|attention]], or bench_kernels --balance
#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>

#include "kernels/cpu/runtime/parallel.h"
#include "kernels/table.h"
#include "tools/balance.h"

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

// Linear layers y = x·wᵀ (forward), dx = dy·w, dw = dyᵀ·x of GPT-2 124M at 256 and 1,024 tokens,
// and of nano.
constexpr Shape shapes[] = {
    {"qkv forward", 256, 2304, 768, false, true},
    {"qkv dx", 256, 768, 2304, false, false},
    {"qkv dw", 2304, 768, 256, true, false},
    {"proj forward", 256, 768, 768, false, true},
    {"proj dx", 256, 768, 768, false, false},
    {"proj dw", 768, 768, 256, true, false},
    {"fc forward", 256, 3072, 768, false, true},
    {"fc dx", 256, 768, 3072, false, false},
    {"fc dw", 3072, 768, 256, true, false},
    {"fc2 forward", 256, 768, 3072, false, true},
    {"fc2 dx", 256, 3072, 768, false, false},
    {"fc2 dw", 768, 3072, 256, true, false},
    {"qkv forward", 1024, 2304, 768, false, true},
    {"qkv dx", 1024, 768, 2304, false, false},
    {"qkv dw", 2304, 768, 1024, true, false},
    {"proj forward", 1024, 768, 768, false, true},
    {"proj dx", 1024, 768, 768, false, false},
    {"proj dw", 768, 768, 1024, true, false},
    {"fc forward", 1024, 3072, 768, false, true},
    {"fc dx", 1024, 768, 3072, false, false},
    {"fc dw", 3072, 768, 1024, true, false},
    {"fc2 forward", 1024, 768, 3072, false, true},
    {"fc2 dx", 1024, 3072, 768, false, false},
    {"fc2 dw", 768, 3072, 1024, true, false},
    {"nano qkv forward", 768, 384, 128, false, true},
    {"nano qkv dx", 768, 128, 384, false, false},
    {"nano qkv dw", 384, 128, 768, true, false},
    {"nano proj forward", 768, 128, 128, false, true},
    {"nano proj dw", 128, 128, 768, true, false},
    {"nano fc dw", 512, 128, 768, true, false},
};

using Clock = std::chrono::steady_clock;

// Seconds of one call, threads awake and operands in cache as far as they fit.
template <class F>
double seconds(int repeats, F&& call) {
  call();
  const auto start = Clock::now();
  for (int i = 0; i < repeats; ++i)
    call();
  return std::chrono::duration<double>(Clock::now() - start).count() / repeats;
}

// Memory as a device's pool gives it, in large pages.
class Array {
 public:
  Array(int64_t n, float value)
      : data_(allocate(sizeof(float) * static_cast<size_t>(n)), std::free) {
    std::fill_n(data(), n, value);
  }
  float* data() const { return static_cast<float*>(data_.get()); }

 private:
  static void* allocate(size_t bytes) {
    constexpr size_t page = size_t{2} << 20;
    const size_t size = (bytes + page - 1) / page * page;
    void* const block = std::aligned_alloc(page, size);
    if (block)
      madvise(block, size, MADV_HUGEPAGE);
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
  const std::unique_ptr<void, decltype(&std::free)> scratch(
      std::aligned_alloc(64, (bytes + 64) / 64 * 64), std::free);
  const auto ours = [&] { table.matmul.f32(va, vb, vc, {}, {scratch.get(), bytes}, {&pool}); };
  const auto whole = [&] {
#ifdef SG_ONEDNN
    dnnl_sgemm(s.a_transposed ? 'T' : 'N',
               s.b_transposed ? 'T' : 'N',
               s.m,
               s.n,
               s.k,
               1.0f,
               a.data(),
               s.a_transposed ? s.m : s.k,
               b.data(),
               s.b_transposed ? s.k : s.n,
               0.0f,
               c.data(),
               s.n);
#endif
  };
  const int repeats = static_cast<int>(std::clamp(2e9 / (2.0 * s.m * s.n * s.k), 1.0, 100.0));
  Timing best{1e9, 1e9};
  for (int round = 0; round < 20; ++round) {
    best.ours = std::min(best.ours, seconds(repeats, ours));
    set_openmp_threads(pool.threads());
    best.onednn = std::min(best.onednn, seconds(repeats, whole));
    set_openmp_threads(1);
    std::this_thread::sleep_for(
        std::chrono::milliseconds(20));  // OpenMP's threads spin for a while after their work
  }
  return best;
}

void products(kernels::ThreadPool& pool) {
  fmt::print(
      "f32 products, {} threads, {}: GFLOP/s on the fixed tile grid, by oneDNN's own threading, "
      "ratio\n",
      pool.threads(),
      cpu_kernels()->name);
  double flops = 0, ours = 0, onednn = 0;
  for (const Shape& s : shapes) {
    const double work = 2.0 * s.m * s.n * s.k;
    const Timing t = measure(s, pool);
    flops += work, ours += t.ours, onednn += t.onednn;
    fmt::print("{:18} {:5} × {:5} × {:5}  {:6.1f}  {:6.1f}  {:5.2f}\n",
               s.name,
               s.m,
               s.n,
               s.k,
               work / t.ours / 1e9,
               work / t.onednn / 1e9,
               t.onednn / t.ours);
  }
  fmt::print("{:42}  {:6.1f}  {:6.1f}  {:5.2f}\n",
             "all",
             flops / ours / 1e9,
             flops / onednn / 1e9,
             onednn / ours);
}

struct Heads {
  const char* name;
  int64_t b, h, t, d;
};

constexpr Heads heads[] = {
    {"nano", 12, 4, 64, 32},
    {"nano 256", 4, 4, 256, 32},
    {"124m", 4, 12, 64, 64},
    {"124m 1024", 1, 12, 1024, 64},
};

// One of the three parts of rows (b, t, 3, h, d), as a model's qkv layer writes them; alone with
// parts = 1.
View head_view(const Array& data, const Heads& x, int64_t parts, int64_t part) {
  View v;
  v.data = data.data() + part * x.h * x.d;
  v.rank = 4;
  const int64_t row = parts * x.h * x.d;
  v.shape[0] = x.b, v.shape[1] = x.h, v.shape[2] = x.t, v.shape[3] = x.d;
  v.strides[0] = x.t * row, v.strides[1] = x.d, v.strides[2] = row, v.strides[3] = 1;
  return v;
}

struct AttentionTiming {
  double forward = 1e9, backward = 1e9;  // seconds
};

AttentionTiming measure(const Heads& x, kernels::ThreadPool& pool) {
  const int64_t n = x.b * x.h * x.t * x.d;
  const Array qkv(3 * n, 0), d_qkv(3 * n, 0), out(n, 0), d_out(n, 0), lse(x.b * x.h * x.t, 0);
  for (int64_t i = 0; i < 3 * n; ++i)
    qkv.data()[i] = static_cast<float>(i * 2654435761 % 1001 - 500) / 300;
  for (int64_t i = 0; i < n; ++i)
    d_out.data()[i] = static_cast<float>(i * 40503 % 1001 - 500) / 300;
  const auto part = [&](const Array& a, int64_t i) { return head_view(a, x, 3, i); };
  const View q = part(qkv, 0), k = part(qkv, 1), v = part(qkv, 2), vo = head_view(out, x, 1, 0);
  View vl;
  vl.data = lse.data(), vl.rank = 3;
  vl.shape[0] = x.b, vl.shape[1] = x.h, vl.shape[2] = x.t;
  vl.strides[0] = x.h * x.t, vl.strides[1] = x.t, vl.strides[2] = 1;
  AttentionOptions options;
  options.scale = 1 / std::sqrt(static_cast<float>(x.d)), options.causal = true;
  const KernelTable& table = *cpu_kernels();
  const size_t bytes = std::max(table.attention_workspace(q, k, false, pool.threads()),
                                table.attention_workspace(q, k, true, pool.threads()));
  const Array scratch(static_cast<int64_t>(bytes / sizeof(float) + 1), 0);
  const Workspace workspace{scratch.data(), bytes};
  const int repeats =
      static_cast<int>(std::clamp(1e8 / (4.0 * static_cast<double>(n * x.t)), 1.0, 50.0));
  AttentionTiming best;
  for (int round = 0; round < 30; ++round) {
    best.forward = std::min(best.forward, seconds(repeats, [&] {
                              table.attention.f32(q, k, v, vo, vl, options, workspace, {&pool});
                            }));
    best.backward = std::min(best.backward, seconds(repeats, [&] {
                               table.attention_backward.f32(q,
                                                            k,
                                                            v,
                                                            vo,
                                                            vl,
                                                            head_view(d_out, x, 1, 0),
                                                            part(d_qkv, 0),
                                                            part(d_qkv, 1),
                                                            part(d_qkv, 2),
                                                            options,
                                                            workspace,
                                                            {&pool});
                             }));
  }
  return best;
}

void attention(kernels::ThreadPool& pool) {
  constexpr Shape whole = {"", 1024, 768, 768, false, true};
  const double limit = 2.0 * whole.m * whole.n * whole.k / measure(whole, pool).ours;
  fmt::print(
      "f32 causal attention, {} threads, {}: µs and GFLOP/s on visible pairs, forward and "
      "backward; share of the "
      "{:.1f} "
      "GFLOP/s of a product of {} × {} × {}\n",
      pool.threads(),
      cpu_kernels()->name,
      limit / 1e9,
      whole.m,
      whole.n,
      whole.k);
  for (const Heads& x : heads) {
    const AttentionTiming t = measure(x, pool);
    const double products = static_cast<double>(x.b * x.h * x.t * (x.t + 1) / 2 * x.d) * 2;
    const double forward = 2 * products / t.forward, backward = 5 * products / t.backward;
    fmt::print(
        "{:10} {:3} × {:2} × {:4} × {:2}  {:8.1f} {:6.1f} {:5.2f}  {:8.1f} {:6.1f} {:5.2f}\n",
        x.name,
        x.b,
        x.h,
        x.t,
        x.d,
        t.forward * 1e6,
        forward / 1e9,
        forward / limit,
        t.backward * 1e6,
        backward / 1e9,
        backward / limit);
  }
}

void balance() {
  for (const int64_t batch : {1, 4}) {
    fmt::print(
        "GPT-2 124M, a step on {} × 1,024 tokens: the busiest thread's part in fair shares, on\n",
        batch);
    fmt::print("{:32}", "");
    for (const int threads : kernels::plan::even_threads)
      fmt::print("{:>7}", threads);
    fmt::print("  threads\n");
    for (const tools::Kernel& kernel : tools::gpt2_124m_step(batch, sizeof(float))) {
      fmt::print("{:32}", kernel.name);
      for (const int threads : kernels::plan::even_threads) {
        fmt::print("{:7.2f}", tools::busiest_share(kernel, threads));
      }
      fmt::print("\n");
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 2 && std::string(argv[1]) == "--balance") {
    balance();
    return 0;
  }
  const int threads =
      argc > 1 ? std::atoi(argv[1]) : static_cast<int>(std::thread::hardware_concurrency());
  const std::string what = argc > 2 ? argv[2] : "";
  if (threads < 1 || argc > 3 || (!what.empty() && what != "products" && what != "attention")) {
    fmt::print(stderr,
               "usage: bench_kernels [threads [products|attention]]      (default: every "
               "processor, both)\n"
               "       bench_kernels --balance\n");
    return 2;
  }
  kernels::ThreadPool pool(threads);
  if (what != "attention")
    products(pool);
  if (what != "products")
    attention(pool);
}
