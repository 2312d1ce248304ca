// Arrays that lie both in host memory and on the software device, for tests that run one kernel on
// both backends.
#pragma once
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/table.h"
#include "tests/cuda_sim/random.h"
#include "tests/cuda_sim/views.h"

namespace simt {

// A dense array twice. Views of both can be changed alike.
struct Twin {
  std::vector<char> memory;
  sg::View cpu, cuda;
  void* device = nullptr;  // where the array begins there, whatever becomes of the view

  template <class T>
  const T* host() const {
    return reinterpret_cast<const T*>(memory.data());
  }
  // What the device has.
  std::vector<char> found() const {
    std::vector<char> copy(memory.size());
    EXPECT_EQ(cudaDeviceSynchronize(), cudaSuccess);
    if (copy.empty())
      return copy;
    const auto error = cudaMemcpy(copy.data(), device, copy.size(), cudaMemcpyDeviceToHost);
    EXPECT_EQ(error, cudaSuccess);
    return copy;
  }
};

// From values, or unwritten where there are none.
template <class T>
Twin twin(const std::vector<int64_t>& shape, const std::vector<T>& values) {
  Twin t;
  sg::View& v = t.cpu;
  v.dtype = sg::dtype_of<T>;
  v.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), v.shape);
  int64_t stride = 1;
  for (int d = v.rank - 1; d >= 0; --d) {
    v.strides[d] = stride;
    stride *= v.shape[d];
  }
  t.memory.resize(static_cast<size_t>(stride) * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T value = values[i];
    std::memcpy(t.memory.data() + i * sizeof(T), &value, sizeof(T));
  }
  t.cuda = v;
  EXPECT_EQ(cudaMalloc(&t.cuda.data, std::max<size_t>(t.memory.size(), 1)), cudaSuccess);
  t.device = t.cuda.data;
  v.data = t.memory.data();
  if (values.empty())
    return t;
  const auto error = cudaMemcpy(t.cuda.data, v.data, t.memory.size(), cudaMemcpyHostToDevice);
  EXPECT_EQ(error, cudaSuccess);
  return t;
}
template <class T>
Twin unwritten(const std::vector<int64_t>& shape) {
  return twin<T>(shape, {});
}

template <class T>
T narrow(double x) {
  if constexpr (sizeof(T) == 2)
    return T(static_cast<float>(x));
  else
    return static_cast<T>(x);
}
template <class T>
double wide(T x) {
  if constexpr (sizeof(T) == 2)
    return static_cast<float>(x);
  else
    return static_cast<double>(x);
}

// Values between low and high.
template <class T>
Twin random_twin(const std::vector<int64_t>& shape,
                 uint64_t seed,
                 double low = -1,
                 double high = 1) {
  int64_t count = 1;
  for (const int64_t n : shape)
    count *= n;
  Random random(seed);
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(
        narrow<T>(low + (high - low) * static_cast<double>(random.below(1 << 20)) / (1 << 20)));
  return twin(shape, values);
}

// Values of every exponent that T's f32 has.
template <class T>
Twin any_exponent(int64_t count, uint64_t seed) {
  Random random(seed);
  std::vector<T> values;
  for (int64_t i = 0; i < count; ++i) {
    const double mantissa = 1 + static_cast<double>(random.below(1 << 24)) / (1 << 24);
    const double sign = random.below(2) == 0 ? 1 : -1;
    values.push_back(
        narrow<T>(sign * std::ldexp(mantissa, static_cast<int>(random.below(276)) - 149)));
  }
  return twin<T>({count}, values);
}

inline void expect_same_bits(const Twin& t, const std::string& what) {
  const std::vector<char> found = t.found();
  const size_t item = size_of(t.cpu.dtype);
  for (size_t i = 0; i < found.size(); i += item)
    ASSERT_EQ(std::memcmp(found.data() + i, t.memory.data() + i, item), 0)
        << what << ", element " << i / item << " of " << name_of(t.cpu.dtype);
}

template <class T>
void expect_near(const Twin& t, double tolerance, const std::string& what) {
  const std::vector<char> found = t.found();
  for (size_t i = 0; i < found.size() / sizeof(T); ++i) {
    const double expected = wide(t.host<T>()[i]);
    const double is = wide(reinterpret_cast<const T*>(found.data())[i]);
    if (expected == is || (std::isnan(expected) && std::isnan(is)))
      continue;
    ASSERT_NEAR(is, expected, tolerance * (1 + std::abs(expected)))
        << what << ", element " << i << " of " << sg::name_of(t.cpu.dtype);
  }
}

// Workspaces of both backends' sizes.
struct Scratch {
  std::vector<char> memory;
  sg::Workspace cpu, cuda;
  Scratch(size_t of_cpu, size_t of_cuda) : memory(of_cpu + 64) {
    auto* const at =
        reinterpret_cast<char*>((reinterpret_cast<uintptr_t>(memory.data()) + 63) / 64 * 64);
    cpu = {at, of_cpu};
    cuda.bytes = of_cuda;
    EXPECT_EQ(cudaMalloc(&cuda.data, std::max<size_t>(of_cuda, 1)), cudaSuccess);
  }
};

}  // namespace simt
