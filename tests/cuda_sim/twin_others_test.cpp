// Attention, reductions, copies and index checks on the software device beside the CPU's kernels.
#include "tests/cuda_sim/software_device.h"
#include "tests/cuda_sim/twins.h"

namespace {

using sg::bf16, sg::f16, sg::ReduceOp, sg::View;
using simt::expect_near, simt::expect_same_bits, simt::random_twin, simt::Scratch, simt::twin,
    simt::Twin, simt::unwritten;

const sg::KernelTable& cuda = *sg::cuda_kernels();
const sg::KernelTable& cpu = *sg::cpu_kernels();

class TwinOthers : public testing::TestWithParam<simt::Order> {
 protected:
  void SetUp() override { simt::reset({.order = GetParam(), .seed = 5}); }
  void TearDown() override { EXPECT_EQ(simt::take_faults(), std::vector<std::string>{}); }
};
INSTANTIATE_TEST_SUITE_P(Orders,
                         TwinOthers,
                         testing::Values(simt::Order::forward,
                                         simt::Order::reverse,
                                         simt::Order::random));

struct Heads {
  int64_t h, hk, t, s, d;
};

// Gradients of 16-bit types hang on rounded outputs, which differ.
template <class T>
void check_attention(const Heads& n, sg::AttentionOptions options, const Twin* mask) {
  constexpr auto dtype = sg::dtype_of<T>;
  using S = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const double near = sizeof(T) == 2 ? 3e-2 : 1e-5;
  const Twin q = random_twin<T>({2, n.h, n.t, n.d}, 1);
  const Twin k = random_twin<T>({2, n.hk, n.s, n.d}, 2);
  const Twin v = random_twin<T>({2, n.hk, n.s, n.d}, 3);
  const Twin d_out = random_twin<T>({2, n.h, n.t, n.d}, 4);
  Twin out = unwritten<T>({2, n.h, n.t, n.d});
  Twin lse = unwritten<S>({2, n.h, n.t});
  Twin dq = unwritten<T>({2, n.h, n.t, n.d});
  Twin dk = unwritten<T>({2, n.hk, n.s, n.d});
  Twin dv = unwritten<T>({2, n.hk, n.s, n.d});
  options.scale = 0.4f;
  const auto run = [&](const sg::KernelTable& table, View Twin::*on, bool on_cpu) {
    sg::AttentionOptions o = options;
    o.mask = mask ? &(mask->*on) : nullptr;
    for (const bool backward : {false, true}) {
      const size_t bytes = table.attention_workspace(q.*on, k.*on, backward, 1);
      const Scratch scratch(on_cpu ? bytes : 0, on_cpu ? 0 : bytes);
      const sg::Workspace w = on_cpu ? scratch.cpu : scratch.cuda;
      if (backward)
        table.attention_backward[dtype](
            q.*on, k.*on, v.*on, out.*on, lse.*on, d_out.*on, dq.*on, dk.*on, dv.*on, o, w, {});
      else
        table.attention[dtype](q.*on, k.*on, v.*on, out.*on, lse.*on, o, w, {});
    }
  };
  run(cpu, &Twin::cpu, true);
  run(cuda, &Twin::cuda, false);
  expect_near<T>(out, near, "attention");
  expect_near<S>(lse, 1e-5, "attention: lse");
  expect_near<T>(dq, near, "attention: dq");
  expect_near<T>(dk, near, "attention: dk");
  expect_near<T>(dv, near, "attention: dv");
}

TEST_P(TwinOthers, BothWaysWithHeadsMasksWindowsAndDropout) {
  const Heads small{2, 2, 5, 7, 4};
  const Heads tiles{2, 1, 35, 40, 3};
  sg::AttentionOptions causal;
  causal.causal = true;
  check_attention<float>(small, {}, nullptr);
  check_attention<double>(small, causal, nullptr);
  check_attention<f16>(small, causal, nullptr);
  check_attention<bf16>(tiles, causal, nullptr);
  check_attention<float>({2, 2, 9, 5, 4}, causal, nullptr);  // some queries see no key
  sg::AttentionOptions windowed = causal;
  windowed.window = 6;
  check_attention<float>(tiles, windowed, nullptr);
  sg::AttentionOptions dropping = causal;
  dropping.dropout = 0.3f;
  dropping.random = {.seed = 5, .op = 2, .step = 1, .first_sample = 3};
  check_attention<float>(tiles, dropping, nullptr);
  std::vector<float> biases(5 * 7);
  for (size_t i = 0; i < biases.size(); ++i)
    biases[i] = i % 5 == 2 ? -INFINITY : 0.1f * static_cast<float>(i % 7);
  Twin mask = twin<float>({1, 1, 5, 7}, biases);
  for (View* x : {&mask.cpu, &mask.cuda}) {
    x->shape[0] = x->shape[1] = 2;
    x->strides[0] = x->strides[1] = 0;
  }
  check_attention<float>(small, {}, &mask);
}

// x (shape) by dimensions that `out` has of size 1, on x as it lies and with its ends turned.
template <class T>
void check_reduce(const std::vector<int64_t>& shape, const std::vector<int64_t>& out_shape) {
  Twin x = random_twin<T>(shape, 1, -50, 50);
  for (const bool turned : {false, true}) {
    if (turned) {
      for (View* v : {&x.cpu, &x.cuda}) {
        if (shape.front() != shape.back())
          return;
        std::swap(v->strides[0], v->strides[v->rank - 1]);
      }
    }
    for (const auto op : {ReduceOp::sum, ReduceOp::mean, ReduceOp::max, ReduceOp::min}) {
      Twin y = unwritten<T>(out_shape);
      cpu.reduce[sg::dtype_of<T>](op, x.cpu, y.cpu, {});
      cuda.reduce[sg::dtype_of<T>](op, x.cuda, y.cuda, {});
      expect_near<T>(y, sizeof(T) == 2 ? 1e-2 : 1e-5, "reduce");
    }
  }
}

template <class T>
void check_reductions() {
  check_reduce<T>({3, 5, 70}, {3, 5, 1});
  check_reduce<T>({40, 3, 40}, {1, 3, 40});
  check_reduce<T>({4, 300}, {1, 1});
  check_reduce<T>({4, 6}, {4, 6});
}

TEST_P(TwinOthers, ReductionsOverAnyDimensions) {
  check_reductions<float>();
  check_reductions<double>();
  check_reductions<f16>();
  check_reductions<bf16>();
  check_reductions<int32_t>();
  check_reductions<int64_t>();
  check_reduce<float>({0, 4}, {1, 4});
}

TEST_P(TwinOthers, ArgmaxIsTheFirstOfEquals) {
  const float nan = NAN;
  const Twin x =
      twin<float>({5, 3}, {1, 3, 3, nan, 2, 9, -1, nan, 4, -INFINITY, nan, nan, 0, 0, 0});
  Twin y = unwritten<int64_t>({5});
  cpu.argmax.f32(x.cpu, y.cpu, {});
  cuda.argmax.f32(x.cuda, y.cuda, {});
  expect_same_bits(y, "argmax");
}

TEST_P(TwinOthers, TheFirstIdOutsideIsFound) {
  std::vector<int32_t> ids(700, 3);
  for (const size_t bad : {size_t{699}, size_t{513}, size_t{300}}) {
    ids[bad] = bad % 2 == 0 ? -2 : 10;
    const Twin x = twin<int32_t>({700}, ids);
    Twin first = unwritten<int64_t>({1});
    cpu.find_outside.i32(x.cpu, -1, 10, first.cpu, {});
    cuda.find_outside.i32(x.cuda, -1, 10, first.cuda, {});
    EXPECT_EQ(*first.host<int64_t>(), static_cast<int64_t>(bad));
    expect_same_bits(first, "find_outside");
  }
}

// From every dtype to every dtype: dense, turned, and every second element.
template <class From, class To>
void check_copy() {
  Twin x = random_twin<From>({33, 34}, 1, 0, 90);
  Twin y = unwritten<To>({33, 34});
  const auto run = [&](const char* what) {
    cpu.copy(x.cpu, y.cpu, {});
    cuda.copy(x.cuda, y.cuda, {});
    expect_same_bits(y, what);
  };
  run("dense");
  for (View* v : {&x.cpu, &x.cuda}) {
    v->strides[0] = 1;
    v->strides[1] = 33;
  }
  run("turned");
  for (Twin* t : {&x, &y}) {
    for (View* v : {&t->cpu, &t->cuda})
      v->shape[0] = 3, v->shape[1] = 11, v->strides[0] = 40, v->strides[1] = 2;
  }
  for (View* v : {&y.cpu, &y.cuda})
    v->strides[0] = 11, v->strides[1] = 1, v->data = static_cast<To*>(v->data) + 1;
  run("strided");
}
template <class From>
void check_copies() {
  check_copy<From, float>();
  check_copy<From, double>();
  check_copy<From, f16>();
  check_copy<From, bf16>();
  check_copy<From, int32_t>();
  check_copy<From, int64_t>();
  check_copy<From, uint8_t>();
  check_copy<From, bool>();
}

TEST_P(TwinOthers, CopiesFromEveryTypeToEveryType) {
  check_copies<float>();
  check_copies<double>();
  check_copies<f16>();
  check_copies<bf16>();
  check_copies<int32_t>();
  check_copies<int64_t>();
  check_copies<uint8_t>();
  check_copies<bool>();
}

template <class T>
void check_fill() {
  for (const int64_t n : {1, 37, 1030}) {
    Twin y = unwritten<T>({n, 2});
    cpu.fill(y.cpu, 1.75, {});
    cuda.fill(y.cuda, 1.75, {});
    for (View* v : {&y.cpu, &y.cuda})
      v->shape[1] = 1;
    cpu.fill(y.cpu, 3, {});
    cuda.fill(y.cuda, 3, {});
    expect_same_bits(y, "fill");
  }
}

TEST_P(TwinOthers, FillsEveryType) {
  check_fill<float>();
  check_fill<double>();
  check_fill<f16>();
  check_fill<bf16>();
  check_fill<int32_t>();
  check_fill<int64_t>();
  check_fill<uint8_t>();
  check_fill<bool>();
}

}  // namespace
