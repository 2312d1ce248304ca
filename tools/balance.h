// How evenly a kernel's tasks share out among threads, computed from its plan.
#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "kernels/cpu/runtime/parallel.h"

namespace sg::tools {

// Tasks between two waits of all threads. Costs of a kernel's phases are in one unit.
struct Phase {
  int64_t tasks = 1;
  std::function<double(int64_t task)> cost;
  kernels::ThreadPool::Deal deal = kernels::ThreadPool::Deal::shares;
};

struct Kernel {
  std::string name;
  std::vector<Phase> phases;
};

// When the last thread ends that the pool deals tasks to, all threads being equally fast.
double busiest(const Phase&, int threads);

// Time of the kernel times threads, by its work: the busiest thread's part in fair shares, waits
// for others included.
double busiest_share(const Kernel&, int threads);

// The kernels of a training step of GPT-2 124M on `batch` sequences of 1,024 tokens, elements of
// `item` bytes.
std::vector<Kernel> gpt2_124m_step(int64_t batch, size_t item);

}  // namespace sg::tools
