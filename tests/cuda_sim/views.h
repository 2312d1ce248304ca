// Arrays on the software device and views of them, for tests.
#pragma once
#include <cuda_runtime.h>
#include <gtest/gtest.h>

#include <initializer_list>
#include <memory>
#include <vector>

#include "kernels/view.h"

namespace simt {

// Dense, row-major, on the current device; freed by the next reset().
template <class T>
sg::View device_view(std::initializer_list<int64_t> shape) {
  sg::View v;
  v.dtype = sg::dtype_of<T>;
  v.rank = static_cast<int>(shape.size());
  std::copy(shape.begin(), shape.end(), v.shape);
  int64_t stride = 1;
  for (int d = v.rank - 1; d >= 0; --d)
    v.strides[d] = stride, stride *= v.shape[d];
  EXPECT_EQ(cudaMalloc(&v.data, static_cast<size_t>(stride) * sizeof(T)), cudaSuccess);
  return v;
}

// The same from values, which are rounded to T where it is narrower.
template <class T>
sg::View device_view(std::initializer_list<int64_t> shape, const std::vector<double>& values) {
  const sg::View v = device_view<T>(shape);
  const auto rounded = std::make_unique<T[]>(values.size());  // vector<bool> has no bytes
  for (size_t i = 0; i < values.size(); ++i) {
    if constexpr (sizeof(T) == 2)
      rounded[i] = T(static_cast<float>(values[i]));
    else
      rounded[i] = static_cast<T>(values[i]);
  }
  EXPECT_EQ(static_cast<int64_t>(values.size()), v.numel());
  EXPECT_EQ(cudaMemcpy(v.data, rounded.get(), values.size() * sizeof(T), cudaMemcpyHostToDevice),
            cudaSuccess);
  return v;
}

// What lies in a dense view, once everything queued on the stream is done.
template <class T>
std::vector<double> values(const sg::View& v, cudaStream_t stream = nullptr) {
  const auto count = static_cast<size_t>(v.numel());
  const auto raw = std::make_unique<T[]>(count);
  EXPECT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
  EXPECT_EQ(cudaMemcpy(raw.get(), v.data, count * sizeof(T), cudaMemcpyDeviceToHost), cudaSuccess);
  std::vector<double> result;
  for (size_t i = 0; i < count; ++i) {
    if constexpr (sizeof(T) == 2)
      result.push_back(static_cast<float>(raw[i]));
    else
      result.push_back(static_cast<double>(raw[i]));
  }
  return result;
}

}  // namespace simt
