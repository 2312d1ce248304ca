#include "tools/balance.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <utility>

#include "kernels/cpu/runtime/plan.h"
#include "kernels/cpu/runtime/turning.h"

namespace sg::tools {
namespace {

using namespace kernels;
using Deal = ThreadPool::Deal;

// Costs are in elements that a row-wise kernel reads or writes once; a core multiplies some tens of
// numbers meanwhile.
constexpr double products_a_touch = 60;

double number(int64_t x) {
  return static_cast<double>(x);
}

// `each` for every item of a chunk.
Phase chunks(const plan::Chunks& c, double each) {
  return {c.count(), [c, each](int64_t i) { return number(c.size(i)) * each; }, Deal::shares};
}

Phase alone(double cost) {
  return {1, [cost](int64_t) { return cost; }, Deal::shares};
}

// Each of `arrays` is touched once.
Kernel row_wise(const std::string& name, int64_t rows, int64_t n, int arrays) {
  return {name, {chunks(plan::rows(rows, n), number(n) * arrays)}};
}

Kernel pointwise(const std::string& name, int64_t rows, int64_t n, int arrays) {
  const plan::Chunks row = plan::elements(n);
  const plan::Chunks pieces = plan::rows(rows * row.count(), row.size(0));
  return {name, {chunks(pieces, number(row.size(0)) * arrays)}};
}

Kernel update(const std::string& name, int64_t n, int arrays) {
  return {name, {chunks(plan::update(n), arrays)}};
}

Kernel column_sums(const std::string& name, int64_t rows, int64_t n, int arrays, int sums) {
  const plan::ColumnSums cuts = plan::column_sums(rows, n);
  return {name,
          {chunks(cuts.rows, number(n) * (arrays + sums)),
           chunks(cuts.columns, number(cuts.rows.count() * sums))}};
}

Kernel product(const std::string& name, const plan::Product& p) {
  const plan::Tiles t = plan::tiles(p);
  const auto cost = [p, t](int64_t tile) {
    const int64_t all = p.batch * t.tiles_m * t.tiles_n, part = tile / all;
    const int64_t row = tile % t.tiles_m, column = tile % all / t.tiles_m % t.tiles_n;
    const int64_t m = plan::Chunks{p.m, t.tile_m}.size(row);
    const int64_t n = plan::Chunks{p.n, t.tile_n}.size(column);
    const int64_t k = part == 0 ? t.depth(p.k) : p.k - t.depth(p.k);
    return number(m) * number(n) * number(k) / products_a_touch;
  };
  Kernel kernel{name, {{p.batch * t.tiles_m * t.tiles_n * t.parts(), cost, Deal::shares}}};
  if (plan::turns_first(p, t)) {
    if (p.a_transposed)
      kernel.phases.push_back(
          chunks(plan::turned(std::max(p.m, p.k)), number(2 * std::min(p.m, p.k))));
    if (p.b_transposed)
      kernel.phases.push_back(
          chunks(plan::turned(std::max(p.n, p.k)), number(2 * std::min(p.n, p.k))));
  }
  if (t.halved)
    kernel.phases.push_back(chunks(plan::second_halves(p.m, p.n), number(3 * p.n)));
  return kernel;
}

// A linear layer's three: y = x·wᵀ, dx = dy·w, dw = dyᵀ·x.
void append_linear(std::vector<Kernel>& out,
                   const std::string& name,
                   int64_t rows,
                   int64_t from,
                   int64_t to,
                   size_t item) {
  out.push_back(product(name + " forward", {1, rows, to, from, false, true, item}));
  out.push_back(product(name + " dx", {1, rows, from, to, false, false, item}));
  out.push_back(product(name + " dw", {1, to, from, rows, true, false, item}));
}

// Queries from `first` on and the keys between `begin` and `end`, in visible pairs, and half of
// those hidden in the strips of panels along the diagonal.
double pairs(const plan::Heads& h, int64_t first, int64_t queries, int64_t begin, int64_t end) {
  constexpr double hidden = 8;
  double sum = 0;
  for (int64_t i = first; i < std::min(first + queries, h.t); ++i) {
    const int64_t visible = std::clamp(h.visible(i), begin, end);
    sum += number(visible - begin) + (visible > begin && visible < end ? hidden : 0);
  }
  return sum;
}

// Two products of d for every pair, with what exponentials cost in such products.
Kernel attention(const plan::Heads& h) {
  constexpr double exponentials = 32;
  const int64_t block = plan::query_block(h), blocks = divide_up(h.t, block);
  const auto cost = [=](int64_t task) {
    int64_t end = blocks, begin = end / 2;  // as the kernel orders them
    for (; task >= h.heads * (end - begin); begin = end / 2)
      task -= h.heads * (end - begin), end = begin;
    const int64_t i = (end - 1 - task % (end - begin)) * block;
    const double copied =
        number(h.visible(std::min(i + block, h.t) - 1) * h.d * 4 + block * h.d * 4);
    return pairs(h, i, block, 0, h.s) * (2 * number(h.d) + exponentials) / products_a_touch +
           copied;
  };
  return {"attention", {{h.heads * blocks, cost, Deal::in_order}}};
}

Kernel attention_backward(const plan::Heads& h) {
  constexpr double exponentials = 48;
  const plan::KeyGroups groups = plan::key_groups(h);
  const auto cost = [=](int64_t task) {
    const int64_t begin = groups.begin[task % groups.count],
                  end = groups.begin[task % groups.count + 1];
    const double copied = number((h.viewers(begin) * 8 + (end - begin) * 8) * h.d);
    return pairs(h, 0, h.t, begin, end) * (5 * number(h.d) + exponentials) / products_a_touch +
           copied;
  };
  Kernel kernel{"attention backward", {{h.heads * groups.count, cost, Deal::shares}}};
  if (groups.count == 1)
    return kernel;
  const int64_t blocks = divide_up(h.t, plan::joined_queries);
  kernel.phases.push_back({h.heads * blocks,
                           [=](int64_t task) {
                             const int64_t i =
                                 std::min((task % blocks + 1) * plan::joined_queries, h.t) - 1;
                             int64_t parts = 1;
                             while (parts < groups.count && groups.begin[parts] < h.visible(i))
                               ++parts;
                             return number((parts + 1) * plan::joined_queries * h.d);
                           },
                           Deal::shares});
  return kernel;
}

Kernel classifier(int64_t rows, int64_t c, int64_t v) {
  const plan::Classifier cuts = plan::classifier(rows, v);
  Kernel kernel{"classifier with its loss", {}};
  const plan::Chunks words{v, cuts.width}, grouped{v, cuts.width * cuts.group};
  for (int64_t chunk = 0; chunk < cuts.chunks; ++chunk) {
    const int64_t r = plan::Chunks{rows, cuts.chunk}.size(chunk);
    const double logits = number(r) * (number(c) / products_a_touch + 3);
    kernel.phases.push_back(chunks(words, logits));
    kernel.phases.push_back(chunks({r, cuts.tile_rows.each}, number(4 * cuts.tiles)));
    kernel.phases.push_back(chunks(grouped, number(r) * (2 * number(c) / products_a_touch + 2)));
    kernel.phases.push_back(chunks({r, cuts.group_rows.each}, number(cuts.groups * c)));
  }
  return kernel;
}

// The lists of rows by id are made by one thread; ids are taken to be all different.
Kernel embedding_backward(const std::string& name, int64_t rows, int64_t n) {
  constexpr double list = 40;
  const plan::Chunks strips = plan::strips(n);
  const auto cost = [=](int64_t task) { return number(3 * strips.size(task % strips.count())); };
  return {name, {alone(number(rows) * list), {rows * strips.count(), cost, Deal::shares}}};
}

}  // namespace

double busiest(const Phase& phase, int threads) {
  std::vector<int64_t> next, end;
  for (int64_t worker = 0; worker < threads; ++worker) {
    next.push_back(ThreadPool::first_task(phase.tasks, worker, threads, phase.deal));
    end.push_back(ThreadPool::first_task(phase.tasks, worker + 1, threads, phase.deal));
  }
  using Free = std::pair<double, int64_t>;  // when a worker is free
  std::priority_queue<Free, std::vector<Free>, std::greater<>> workers;
  for (int64_t worker = 0; worker < threads; ++worker)
    workers.emplace(0.0, worker);
  double last = 0;
  while (!workers.empty()) {
    const auto [time, worker] = workers.top();
    workers.pop();
    last = std::max(last, time);
    for (int64_t offset = 0; offset < threads; ++offset) {  // its own share, then the others'
      const auto from = static_cast<size_t>((worker + offset) % threads);
      if (next[from] == end[from])
        continue;
      workers.emplace(time + phase.cost(next[from]++), worker);
      break;
    }
  }
  return last;
}

double busiest_share(const Kernel& kernel, int threads) {
  double time = 0, work = 0;
  for (const Phase& phase : kernel.phases) {
    time += busiest(phase, threads);
    for (int64_t i = 0; i < phase.tasks; ++i)
      work += phase.cost(i);
  }
  return time * threads / work;
}

std::vector<Kernel> gpt2_124m_step(int64_t batch, size_t item) {
  constexpr int64_t length = 1024, width = 768, heads = 12, vocabulary = 50257;
  const int64_t rows = batch * length;
  const plan::Heads all_heads{batch * heads, length, length, width / heads, true};
  std::vector<Kernel> out;
  out.push_back(row_wise("embedding", rows, width, 2));
  out.push_back(pointwise("tokens + positions", batch, length * width, 3));
  out.push_back(row_wise("norm of a sum", rows, width, 5));
  append_linear(out, "qkv", rows, width, 3 * width, item);
  out.push_back(attention(all_heads));
  append_linear(out, "attention.out", rows, width, width, item);
  append_linear(out, "mlp.in", rows, width, 4 * width, item);
  out.push_back(pointwise("gelu", 1, rows * 4 * width, 4));
  append_linear(out, "mlp.out", rows, 4 * width, width, item);
  out.push_back(classifier(rows, width, vocabulary));
  out.push_back(column_sums("norm backward", rows, width, 6, 2));
  out.push_back(column_sums("gelu backward with its bias", rows, 4 * width, 6, 1));
  out.push_back(column_sums("bias gradient of 768", rows, width, 1, 1));
  out.push_back(column_sums("bias gradient of 2304", rows, 3 * width, 1, 1));
  out.push_back(attention_backward(all_heads));
  out.push_back(embedding_backward("gradient of the tokens' table", rows, width));
  out.push_back(embedding_backward("gradient of the positions", length, width));
  out.push_back(pointwise("gradient added", 1, 4 * width * width, 3));
  out.push_back(pointwise("gradients zeroed", 1, 4 * width * width, 1));
  out.push_back(update("sum of squares", 4 * width * width, 1));
  out.push_back(update("optimizer, a square weight", width * width, 7));
  out.push_back(update("optimizer, a qkv weight", 3 * width * width, 7));
  out.push_back(update("optimizer, an mlp weight", 4 * width * width, 7));
  out.push_back(update("optimizer, the tokens' table", vocabulary * width, 7));
  out.push_back(update("optimizer, a vector of 3072", 4 * width, 7));
  out.push_back({"mean of the losses", {alone(number(rows))}});
  return out;
}

}  // namespace sg::tools
