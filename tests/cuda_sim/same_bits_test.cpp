// What moves with the gradients when they are offloaded has the same bits on CPU and CUDA:
// optimizer passes, sums of squares, sums of micro-steps and of ranks, scans, casts, dropout and
// random numbers.
#include "tests/cuda_sim/software_device.h"
#include "tests/cuda_sim/twins.h"

namespace {

using sg::bf16, sg::f16, sg::View;
using simt::any_exponent, simt::expect_same_bits, simt::random_twin, simt::twin, simt::Twin;

const sg::KernelTable& cuda = *sg::cuda_kernels();
const sg::KernelTable& cpu = *sg::cpu_kernels();
const View absent;

// Odd and longer than a block takes at once, an even one, one element, and nothing.
constexpr int64_t counts[] = {5003, 1024, 1, 0};

class SameBits : public testing::Test {
 protected:
  void SetUp() override { simt::reset({}); }
  void TearDown() override { EXPECT_EQ(simt::take_faults(), std::vector<std::string>{}); }
};

// One step of Adam, of momentum SGD and of Lion from the same start.
template <class G, class P>
void check_optimizers(int64_t n, bool first) {
  Twin master = any_exponent<float>(n, 1);
  Twin m = random_twin<float>({n}, 2);
  Twin v = random_twin<float>({n}, 3, 0, 1);
  const Twin g = any_exponent<G>(n, 4);
  Twin p = simt::unwritten<P>({n});
  const bool rounds = sizeof(P) == 2;
  const View& on_cpu = rounds ? p.cpu : absent;
  const View& on_cuda = rounds ? p.cuda : absent;
  const std::string what = std::string("n = ") + std::to_string(n);
  const sg::AdamOptions adam{
      1e-3f, 0.9f, 0.95f, 1e-8f, 0.1f, 0.37f, 0.271f, 0.142625f, n % 2 == 0, first};
  cpu.adam[sg::dtype_of<G>](master.cpu, g.cpu, m.cpu, v.cpu, on_cpu, adam, {});
  cuda.adam[sg::dtype_of<G>](master.cuda, g.cuda, m.cuda, v.cuda, on_cuda, adam, {});
  for (const Twin* t : {&master, &m, &v})
    expect_same_bits(*t, "adam, " + what);
  const sg::SgdOptions sgd{1e-2f, 0.9f, 0.01f, 0.37f, n % 2 == 1, first};
  cpu.sgd[sg::dtype_of<G>](master.cpu, g.cpu, m.cpu, on_cpu, sgd, {});
  cuda.sgd[sg::dtype_of<G>](master.cuda, g.cuda, m.cuda, on_cuda, sgd, {});
  cpu.sgd[sg::dtype_of<G>](master.cpu, g.cpu, absent, on_cpu, sgd, {});
  cuda.sgd[sg::dtype_of<G>](master.cuda, g.cuda, absent, on_cuda, sgd, {});
  const sg::LionOptions lion{1e-2f, 0.9f, 0.99f, 0.1f, 0.37f};
  cpu.lion[sg::dtype_of<G>](master.cpu, g.cpu, m.cpu, on_cpu, lion, {});
  cuda.lion[sg::dtype_of<G>](master.cuda, g.cuda, m.cuda, on_cuda, lion, {});
  for (const Twin* t : {&master, &m})
    expect_same_bits(*t, "sgd and lion, " + what);
  if (rounds)
    expect_same_bits(p, "parameters, " + what);
}

TEST_F(SameBits, OptimizersOfEveryGradientAndParameter) {
  for (const int64_t n : counts) {
    check_optimizers<float, float>(n, false);
    check_optimizers<bf16, bf16>(n, false);
    check_optimizers<f16, f16>(n, true);
    check_optimizers<float, bf16>(n, false);
    check_optimizers<bf16, float>(n, true);
  }
}

template <class T, class A>
void check_accumulate(int64_t n) {
  const Twin x = any_exponent<T>(n, 1);
  Twin acc = any_exponent<A>(n, 2);
  cpu.accumulate[sg::dtype_of<T>](x.cpu, acc.cpu, {});
  cuda.accumulate[sg::dtype_of<T>](x.cuda, acc.cuda, {});
  expect_same_bits(acc, "accumulate");
}

TEST_F(SameBits, SumsOfMicroSteps) {
  for (const int64_t n : counts) {
    check_accumulate<float, float>(n);
    check_accumulate<double, double>(n);
    check_accumulate<bf16, float>(n);
    check_accumulate<f16, float>(n);
    check_accumulate<bf16, bf16>(n);
    check_accumulate<f16, f16>(n);
  }
}

template <class T>
void check_sum_squares(int64_t n) {
  const Twin x = any_exponent<T>(n, 1);
  Twin partial = simt::unwritten<double>({(n + sg::norm_chunk - 1) / sg::norm_chunk});
  cpu.sum_squares[sg::dtype_of<T>](x.cpu, partial.cpu, {});
  cuda.sum_squares[sg::dtype_of<T>](x.cuda, partial.cuda, {});
  expect_same_bits(partial, "sum_squares of " + std::to_string(n));
}

TEST_F(SameBits, SumsOfSquares) {
  for (const int64_t n : {int64_t{20'000}, counts[0], counts[1], counts[2], counts[3]}) {
    check_sum_squares<float>(n);
    check_sum_squares<bf16>(n);
    check_sum_squares<f16>(n);
  }
}

template <class T, class Out>
void check_tree_sum(int n, int64_t count, bool nonfinite) {
  std::vector<Twin> inputs;
  for (int i = 0; i < n; ++i)
    inputs.push_back(random_twin<T>({count}, static_cast<uint64_t>(i) + 1));
  if (nonfinite) {
    auto* const data = reinterpret_cast<T*>(inputs[static_cast<size_t>(n / 2)].memory.data());
    data[count / 2] = simt::narrow<T>(INFINITY);
    data[count - 1] = simt::narrow<T>(NAN);
    Twin& t = inputs[static_cast<size_t>(n / 2)];
    cudaMemcpy(t.cuda.data, t.memory.data(), t.memory.size(), cudaMemcpyHostToDevice);
  }
  Twin outs[2] = {simt::unwritten<Out>({count}), simt::unwritten<Out>({count})};
  Twin first = simt::unwritten<int64_t>({2});
  std::vector<View> on_cpu;
  std::vector<View> on_cuda;
  for (const Twin& t : inputs) {
    on_cpu.push_back(t.cpu);
    on_cuda.push_back(t.cuda);
  }
  const View cpu_outs[] = {outs[0].cpu, outs[1].cpu};
  const View cuda_outs[] = {outs[0].cuda, outs[1].cuda};
  const float scale = 1.0f / static_cast<float>(n);
  cpu.tree_sum[sg::dtype_of<T>](on_cpu.data(), n, cpu_outs, 2, scale, first.cpu, {});
  cuda.tree_sum[sg::dtype_of<T>](on_cuda.data(), n, cuda_outs, 2, scale, first.cuda, {});
  expect_same_bits(first, "tree_sum: first of " + std::to_string(n));
  if (nonfinite)
    return;  // a NaN's sign is nobody's
  expect_same_bits(outs[0], "tree_sum of " + std::to_string(n));
  expect_same_bits(outs[1], "tree_sum of " + std::to_string(n) + ": second place");
}

TEST_F(SameBits, OrderedSumsOfRanks) {
  for (const int n : {1, 2, 3, 4, 7, 12}) {
    check_tree_sum<float, float>(n, 515, false);
    check_tree_sum<bf16, bf16>(n, 515, false);
    check_tree_sum<f16, float>(n, 64, false);
    check_tree_sum<double, double>(n, 65, false);
    check_tree_sum<float, float>(n, 515, true);
    check_tree_sum<bf16, float>(n, 515, true);
  }
}

TEST_F(SameBits, ScansForValuesThatArentFinite) {
  for (const int64_t at : {int64_t{-1}, int64_t{0}, int64_t{700}, int64_t{1002}}) {
    std::vector<f16> values(1003, f16(1.0f));
    for (int64_t i = at; i >= 0 && i < 1003; i += 150)
      values[static_cast<size_t>(i)] = f16(INFINITY);
    const Twin x = twin<f16>({1003}, values);
    Twin first = simt::unwritten<int64_t>({1});
    cpu.find_nonfinite.f16(x.cpu, first.cpu, {});
    cuda.find_nonfinite.f16(x.cuda, first.cuda, {});
    EXPECT_EQ(*first.host<int64_t>(), at);
    expect_same_bits(first, "find_nonfinite");
  }
}

template <class To, class From>
void check_cast(const Twin& x) {
  Twin y = simt::unwritten<To>({x.cpu.shape[0]});
  cpu.copy(x.cpu, y.cpu, {});
  cuda.copy(x.cuda, y.cuda, {});
  expect_same_bits(y, std::string("cast from ") + name_of(x.cpu.dtype));
}

TEST_F(SameBits, CastsOfAllSixteenBitValuesAndOfEveryExponent) {
  std::vector<f16> all_f16(1 << 16);
  std::vector<bf16> all_bf16(1 << 16);
  for (uint32_t i = 0; i < 1 << 16; ++i) {
    const bool nan_f16 = (i & 0x7c00u) == 0x7c00u && (i & 0x3ffu) != 0;
    const bool nan_bf16 = (i & 0x7f80u) == 0x7f80u && (i & 0x7fu) != 0;
    all_f16[i].bits = static_cast<uint16_t>(nan_f16 ? 0 : i);
    all_bf16[i].bits = static_cast<uint16_t>(nan_bf16 ? 0 : i);
  }
  check_cast<float, f16>(twin<f16>({1 << 16}, all_f16));
  check_cast<bf16, f16>(twin<f16>({1 << 16}, all_f16));
  check_cast<float, bf16>(twin<bf16>({1 << 16}, all_bf16));
  check_cast<f16, bf16>(twin<bf16>({1 << 16}, all_bf16));
  const Twin x = any_exponent<float>(100'003, 1);
  check_cast<f16, float>(x);
  check_cast<bf16, float>(x);
  check_cast<double, float>(x);
  check_cast<float, double>(any_exponent<double>(20'001, 2));
}

TEST_F(SameBits, RandomNumbers) {
  const sg::RandomKey key{.seed = 11, .op = 5, .step = 3, .first_sample = 9};
  const std::vector<std::vector<int64_t>> shapes = {{3, 1021}, {16, 2048}, {1}, {0, 4}, {2, 3}};
  for (const auto& shape : shapes) {
    Twin x = simt::unwritten<float>(shape);
    cpu.random_uniform(x.cpu, key, -0.3f, 2.5f, {});
    cuda.random_uniform(x.cuda, key, -0.3f, 2.5f, {});
    expect_same_bits(x, "random_uniform");
    cpu.random_normal(x.cpu, key, 0.25f, 0.02f, {});
    cuda.random_normal(x.cuda, key, 0.25f, 0.02f, {});
    expect_same_bits(x, "random_normal");
  }
}

template <class T>
void check_dropout(const std::vector<int64_t>& shape) {
  const sg::RandomKey key{.seed = 3, .op = 8, .step = 1, .first_sample = 2};
  const Twin x = random_twin<T>(shape, 1);
  Twin y = simt::unwritten<T>(shape);
  cpu.dropout[sg::dtype_of<T>](x.cpu, y.cpu, 0.3f, key, {});
  cuda.dropout[sg::dtype_of<T>](x.cuda, y.cuda, 0.3f, key, {});
  expect_same_bits(y, "dropout");
}

TEST_F(SameBits, Dropout) {
  const std::vector<std::vector<int64_t>> shapes = {{3, 1021}, {4, 256}, {1}, {0, 4}};
  for (const auto& shape : shapes) {
    check_dropout<float>(shape);
    check_dropout<double>(shape);
    check_dropout<f16>(shape);
    check_dropout<bf16>(shape);
  }
}

}  // namespace
