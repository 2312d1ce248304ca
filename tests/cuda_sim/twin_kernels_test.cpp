// Every other kernel of the table on the software device beside the CPU's, of every dtype: odd and
// even rows, long ones that don't fit into shared memory, strides, empty ones.
#include "tests/cuda_sim/software_device.h"
#include "tests/cuda_sim/twins.h"

namespace {

using sg::bf16, sg::f16, sg::View;
using simt::expect_near, simt::expect_same_bits, simt::random_twin, simt::Scratch, simt::twin,
    simt::Twin, simt::unwritten;
using Shape = std::vector<int64_t>;

const sg::KernelTable& cuda = *sg::cuda_kernels();
const sg::KernelTable& cpu = *sg::cpu_kernels();
const View absent;

template <class T>
using Statistic = std::conditional_t<std::is_same_v<T, double>, double, float>;
template <class T>
constexpr double tolerance = sizeof(T) == 8           ? 1e-7  // eps and scales are f32
                             : sizeof(T) == 4         ? 4e-6
                             : std::is_same_v<T, f16> ? 2e-3
                                                      : 1.6e-2;

struct Order {
  const char* name;
  simt::Order order;
};
void PrintTo(const Order& order, std::ostream* out) {
  *out << order.name;
}
class TwinKernels : public testing::TestWithParam<Order> {
 protected:
  void SetUp() override { simt::reset({.order = GetParam().order, .seed = 5}); }
  void TearDown() override { EXPECT_EQ(simt::take_faults(), std::vector<std::string>{}); }
};
INSTANTIATE_TEST_SUITE_P(Orders,
                         TwinKernels,
                         testing::Values(Order{"Forward", simt::Order::forward},
                                         Order{"Reverse", simt::Order::reverse},
                                         Order{"Random", simt::Order::random}),
                         [](const auto& order) { return order.param.name; });

// check<T>(arguments…) of every float type.
#define SG_EVERY_FLOAT(check, ...) \
  check<float>(__VA_ARGS__);       \
  check<double>(__VA_ARGS__);      \
  check<f16>(__VA_ARGS__);         \
  check<bf16>(__VA_ARGS__)

template <class T>
void check_softmax(int64_t rows, int64_t n) {
  constexpr auto t = sg::dtype_of<T>;
  const Twin x = random_twin<T>({rows, n}, 1, -4, 4);
  const Twin dy = random_twin<T>({rows, n}, 2);
  Twin y = unwritten<T>({rows, n});
  Twin dx = unwritten<T>({rows, n});
  cpu.softmax[t](x.cpu, y.cpu, {});
  cuda.softmax[t](x.cuda, y.cuda, {});
  expect_near<T>(y, tolerance<T>, "softmax");
  cpu.softmax_backward[t](x.cpu, dy.cpu, dx.cpu, {});
  cuda.softmax_backward[t](x.cuda, dy.cuda, dx.cuda, {});
  expect_near<T>(dx, 100 * tolerance<T>, "softmax_backward");
}

TEST_P(TwinKernels, Softmax) {
  for (const int64_t n : {1, 5, 64, 300, 769}) {
    SG_EVERY_FLOAT(check_softmax, 3, n);
  }
  SG_EVERY_FLOAT(check_softmax, 0, 7);
  check_softmax<float>(2, 13'000);
  check_softmax<f16>(270, 5);  // some blocks have two rows, which begin at other sectors
}

template <class T>
void check_norms(int64_t rows, int64_t n, bool with_residual) {
  constexpr auto t = sg::dtype_of<T>;
  using S = Statistic<T>;
  const Twin x = random_twin<T>({rows, n}, 1, -2, 3);
  const Twin r = random_twin<T>({rows, n}, 2);
  const Twin gain = random_twin<T>({n}, 3, 0.5, 2);
  const Twin bias = random_twin<T>({n}, 4);
  const Twin dy = random_twin<T>({rows, n}, 5);
  Twin sum = unwritten<T>({rows, n});
  Twin y = unwritten<T>({rows, n});
  Twin mean = unwritten<S>({rows});
  Twin rstd = unwritten<S>({rows});
  Twin dx = unwritten<T>({rows, n});
  Twin d_gain = unwritten<T>({n});
  Twin d_bias = unwritten<T>({n});
  const auto run = [&](const sg::KernelTable& table, View Twin::*on, sg::Workspace w, bool layer) {
    const View residual = with_residual ? r.*on : absent;
    const View stored = with_residual ? sum.*on : absent;
    const View through = with_residual ? r.*on : absent;
    if (layer) {
      table.layernorm[t](
          x.*on, residual, gain.*on, bias.*on, 1e-5f, stored, y.*on, mean.*on, rstd.*on, {});
      table.layernorm_backward[t](dy.*on,
                                  through,
                                  x.*on,
                                  gain.*on,
                                  mean.*on,
                                  rstd.*on,
                                  dx.*on,
                                  d_gain.*on,
                                  d_bias.*on,
                                  w,
                                  {});
    } else {
      table.rmsnorm[t](x.*on, residual, gain.*on, 1e-5f, stored, y.*on, rstd.*on, {});
      table.rmsnorm_backward[t](
          dy.*on, through, x.*on, gain.*on, rstd.*on, dx.*on, d_gain.*on, w, {});
    }
  };
  const Scratch scratch(cpu.layernorm_backward_workspace(x.cpu, 1),
                        cuda.layernorm_backward_workspace(x.cuda, 1));
  const double near = 10 * tolerance<T>;
  for (const bool layer : {true, false}) {
    const std::string what = (layer ? "layernorm of " : "rmsnorm of ") + std::to_string(n);
    run(cpu, &Twin::cpu, scratch.cpu, layer);
    run(cuda, &Twin::cuda, scratch.cuda, layer);
    if (with_residual)
      expect_same_bits(sum, what + ": sum");
    expect_near<T>(y, near, what + ": y");
    expect_near<S>(rstd, 1e-5, what + ": rstd");
    expect_near<T>(dx, near, what + ": dx");
    expect_near<T>(d_gain, near, what + ": d_gain");
  }
  expect_near<S>(mean, 1e-5, "layernorm: mean");
  expect_near<T>(d_bias, near, "layernorm: d_bias");
}

TEST_P(TwinKernels, NormsBothWays) {
  for (const int64_t n : {1, 5, 64, 257}) {
    SG_EVERY_FLOAT(check_norms, 5, n, true);
    SG_EVERY_FLOAT(check_norms, 5, n, false);
  }
  check_norms<float>(0, 8, true);
  check_norms<f16>(270, 5, true);  // some blocks have two rows, which begin at other sectors
  check_norms<float>(2, 5001, true);
}

template <class T>
void check_column_sums(int64_t rows, int64_t n) {
  constexpr auto t = sg::dtype_of<T>;
  const Twin x = random_twin<T>({rows, n}, 1, -2, 2);
  const Twin dy = random_twin<T>({rows, n}, 2);
  Twin dx = unwritten<T>({rows, n});
  Twin d_bias = unwritten<T>({n});
  const Scratch scratch(cpu.column_sum_workspace(x.cpu, 1), cuda.column_sum_workspace(x.cuda, 1));
  cpu.column_sum[t](dy.cpu, d_bias.cpu, scratch.cpu, {});
  cuda.column_sum[t](dy.cuda, d_bias.cuda, scratch.cuda, {});
  expect_near<T>(d_bias, 10 * tolerance<T>, "column_sum");
  using enum sg::PointwiseOp;
  for (const auto f : {gelu, gelu_tanh, silu, relu}) {
    cpu.activation_backward[t](f, x.cpu, dy.cpu, dx.cpu, d_bias.cpu, scratch.cpu, {});
    cuda.activation_backward[t](f, x.cuda, dy.cuda, dx.cuda, d_bias.cuda, scratch.cuda, {});
    expect_near<T>(dx, tolerance<T>, "activation_backward: dx");
    expect_near<T>(d_bias, 10 * tolerance<T>, "activation_backward: d_bias");
    cuda.activation_backward[t](f, x.cuda, dy.cuda, dx.cuda, absent, {}, {});
    expect_near<T>(dx, tolerance<T>, "activation_backward alone");
  }
}

TEST_P(TwinKernels, ColumnSumsAndActivations) {
  SG_EVERY_FLOAT(check_column_sums, 3, 5);
  SG_EVERY_FLOAT(check_column_sums, 70, 64);
  check_column_sums<float>(0, 5);
  check_column_sums<bf16>(3, 1100);
}

template <class T>
void check_rope(int64_t d, bool inverse) {
  constexpr auto t = sg::dtype_of<T>;
  Twin x = random_twin<T>({2, 3, 5, d}, 1);  // (b,h,t,d), seen as (b,t,h,d)
  for (View* v : {&x.cpu, &x.cuda}) {
    std::swap(v->shape[1], v->shape[2]);
    std::swap(v->strides[1], v->strides[2]);
  }
  Twin y = unwritten<T>({2, 5, 3, d});
  const Twin positions = twin<int64_t>({5}, {0, 1, 17, 300, 2047});
  const sg::RopeOptions options{.theta = 10'000};
  cpu.rope[t](x.cpu, positions.cpu, options, inverse, y.cpu, {});
  cuda.rope[t](x.cuda, positions.cuda, options, inverse, y.cuda, {});
  expect_near<T>(y, tolerance<T>, "rope");
}

TEST_P(TwinKernels, Rope) {
  for (const int64_t d : {2, 10, 32}) {
    SG_EVERY_FLOAT(check_rope, d, false);
    SG_EVERY_FLOAT(check_rope, d, true);
  }
}

template <class T>
void check_embedding(int64_t rows, int64_t v, int64_t n, bool accumulate) {
  constexpr auto t = sg::dtype_of<T>;
  simt::Random random(4);
  std::vector<int64_t> ids;
  for (int64_t i = 0; i < rows; ++i)
    ids.push_back(static_cast<int64_t>(random.below(static_cast<uint64_t>(v))));
  const Twin id = twin<int64_t>({rows}, ids);
  const Twin table = random_twin<T>({v, n}, 1);
  const Twin dy = random_twin<T>({rows, n}, 2);
  Twin out = unwritten<T>({rows, n});
  Twin d_table = random_twin<T>({v, n}, 3);
  cpu.embedding[t](table.cpu, id.cpu, out.cpu, {});
  cuda.embedding[t](table.cuda, id.cuda, out.cuda, {});
  expect_same_bits(out, "embedding");
  const Scratch scratch(cpu.embedding_backward_workspace(id.cpu, d_table.cpu, 1),
                        cuda.embedding_backward_workspace(id.cuda, d_table.cuda, 1));
  cpu.embedding_backward[t](id.cpu, dy.cpu, d_table.cpu, accumulate, scratch.cpu, {});
  cuda.embedding_backward[t](id.cuda, dy.cuda, d_table.cuda, accumulate, scratch.cuda, {});
  expect_same_bits(d_table, "embedding_backward");
}

TEST_P(TwinKernels, EmbeddingAndItsGradientHaveTheSameBits) {
  for (const bool accumulate : {false, true}) {
    SG_EVERY_FLOAT(check_embedding, 40, 7, 5, accumulate);
    SG_EVERY_FLOAT(check_embedding, 17, 3000, 16, accumulate);
    check_embedding<float>(2100, 300, 4, accumulate);  // several blocks of the sort
    check_embedding<float>(0, 7, 5, accumulate);
    check_embedding<float>(5, 1, 5, accumulate);
  }
}

template <class T>
void check_losses(int64_t rows, int64_t v, int64_t c) {
  constexpr auto t = sg::dtype_of<T>;
  using S = Statistic<T>;
  std::vector<int32_t> targets;
  for (int64_t i = 0; i < rows; ++i)
    targets.push_back(i % 4 == 3 ? -1 : static_cast<int32_t>(i * 5 % v));
  const Twin target = twin<int32_t>({rows}, targets);
  const Twin logits = random_twin<T>({rows, v}, 1, -3, 3);
  Twin losses = unwritten<S>({rows});
  Twin d_logits = unwritten<T>({rows, v});
  cpu.cross_entropy[t](logits.cpu, target.cpu, losses.cpu, d_logits.cpu, 0.25f, {});
  cuda.cross_entropy[t](logits.cuda, target.cuda, losses.cuda, d_logits.cuda, 0.25f, {});
  expect_near<S>(losses, 4e-6, "cross_entropy");
  expect_near<T>(d_logits, tolerance<T>, "cross_entropy: gradient");
  const Twin x = random_twin<T>({rows, c}, 2);
  const Twin weight = random_twin<T>({v, c}, 3);
  Twin dx = unwritten<T>({rows, c});
  Twin d_weight = unwritten<T>({v, c});
  const Scratch scratch(cpu.classifier_workspace(x.cpu, weight.cpu, true, 1),
                        cuda.classifier_workspace(x.cuda, weight.cuda, true, 1));
  cpu.classifier[t](
      x.cpu, weight.cpu, target.cpu, losses.cpu, dx.cpu, d_weight.cpu, 0.25f, scratch.cpu, {});
  cuda.classifier[t](x.cuda,
                     weight.cuda,
                     target.cuda,
                     losses.cuda,
                     dx.cuda,
                     d_weight.cuda,
                     0.25f,
                     scratch.cuda,
                     {});
  expect_near<S>(losses, 4e-6, "classifier");
  expect_near<T>(dx, tolerance<T>, "classifier: dx");
  expect_near<T>(d_weight, tolerance<T>, "classifier: d_weight");
  cuda.classifier[t](
      x.cuda, weight.cuda, target.cuda, losses.cuda, absent, absent, 0.25f, scratch.cuda, {});
  expect_near<S>(losses, 4e-6, "classifier forward alone");
}

TEST_P(TwinKernels, Losses) {
  SG_EVERY_FLOAT(check_losses, 5, 7, 3);
  SG_EVERY_FLOAT(check_losses, 6, 64, 8);
}

}  // namespace
