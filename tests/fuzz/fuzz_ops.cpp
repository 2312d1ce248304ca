// Ops on random views (zero sizes, slices with steps, permutations, broadcasts; every dtype)
// against plain loops in f64, and the gradients of random chains of differentiable ops against
// central differences. Test: Fuzz.StridedOps
// --count 6000
#include <cmath>
#include <functional>
#include <vector>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace sg;
using fuzz::Random;
using PO = PointwiseOp;

// ---- a reference tensor: values in row-major order

struct Plain {
  Shape shape;
  std::vector<double> values;
};

Dims position_of(int64_t i, const Shape& shape) {
  Dims at = shape;
  for (int d = shape.rank() - 1; d >= 0; --d) {
    at.set(d, i % shape[d]);
    i /= shape[d];
  }
  return at;
}

// The element that position `at` of a larger shape sees of x, which is broadcast.
double seen(const Plain& x, const Dims& at) {
  int64_t i = 0;
  for (int d = 0; d < x.shape.rank(); ++d) {
    const int64_t index = at[at.rank() - x.shape.rank() + d];
    i = i * x.shape[d] + (x.shape[d] == 1 ? 0 : index);
  }
  return x.values[static_cast<size_t>(i)];
}

Plain plain(const Tensor& x) {
  return {x.shape(), cast(x, DType::f64).to_vector<double>()};
}

template <class F>
Plain built(const Shape& shape, F&& value) {
  Plain out{shape, {}};
  for (int64_t i = 0; i < numel(shape); ++i)
    out.values.push_back(value(position_of(i, shape)));
  return out;
}

void expect_near(const Tensor& found,
                 const Plain& expected,
                 double tolerance,
                 const std::string& what) {
  fuzz::expect(
      found.shape() == expected.shape, "{}: shape {}, not {}", what, found.shape(), expected.shape);
  const Plain values = plain(found);
  for (size_t i = 0; i < values.values.size(); ++i) {
    const double a = values.values[i], b = expected.values[i];
    const bool same =
        std::isnan(b) ? std::isnan(a) : std::abs(a - b) <= tolerance * std::max(1.0, std::abs(b));
    fuzz::expect(same,
                 "{}: {} at {}, not {}",
                 what,
                 a,
                 position_of(static_cast<int64_t>(i), found.shape()),
                 b);
  }
}

double tolerance_of(DType t) {
  switch (t) {
    case DType::f64: return 1e-12;
    case DType::f32: return 2e-5;
    case DType::f16: return 4e-3;
    case DType::bf16: return 3e-2;
    default: return 0;
  }
}

// ---- random views

Shape random_shape(Random& random, int most_rank = 4) {
  Shape shape;
  const int64_t rank = random.between(0, most_rank);
  for (int64_t d = 0; d < rank; ++d)
    shape.push_back(random.chance(0.06) ? 0 : random.between(1, 6));
  return shape;
}

// Small whole numbers, which every dtype holds and sums exactly.
Tensor dense(Random& random, const Shape& shape, DType dtype) {
  std::vector<double> values(static_cast<size_t>(numel(shape)));
  for (double& value : values)
    value = static_cast<double>(random.between(dtype == DType::u8 ? 0 : -4, 4));
  return cast(from_vector(values, shape), dtype);
}

// A tensor of this shape that lies in a larger one: permuted, a slice, every other element,
// broadcast.
Tensor view_of(Random& random, const Shape& shape, DType dtype, bool may_broadcast = true) {
  Dims order = shape, inverse = shape;
  for (int d = 0; d < shape.rank(); ++d)
    order.set(d, d);
  for (int d = shape.rank() - 1; d > 0; --d) {
    const auto other = static_cast<int>(random.between(0, d));
    const int64_t kept = order[d];
    order.set(d, order[other]), order.set(other, kept);
  }
  Shape larger = shape;
  std::vector<int64_t> begin(static_cast<size_t>(shape.rank()));
  std::vector<bool> broadcast(begin.size());
  for (int d = 0; d < shape.rank(); ++d) {
    const int64_t size = shape[static_cast<int>(order[d])];
    const auto at = static_cast<size_t>(d);
    broadcast[at] = may_broadcast && random.chance(0.1);
    begin[at] = broadcast[at] ? 0 : random.between(0, 2);
    larger.set(d, broadcast[at] ? 1 : begin[at] + size + random.between(0, 2));
    inverse.set(static_cast<int>(order[d]), d);
  }
  const bool every_other = shape.rank() < max_rank && random.chance(0.3);
  if (every_other)
    larger.push_back(2);
  Tensor x = dense(random, larger, dtype);
  if (every_other)
    x = x.select(-1, random.between(0, 1));
  for (int d = 0; d < shape.rank(); ++d) {
    const auto at = static_cast<size_t>(d);
    if (!broadcast[at])
      x = x.slice(d, begin[at], begin[at] + shape[static_cast<int>(order[d])]);
  }
  return x.permute(inverse).expand(shape);
}

// A shape that broadcasts to this one.
Shape narrowed(Random& random, const Shape& shape) {
  Shape out;
  const auto first = static_cast<int>(random.chance(0.3) ? random.between(0, shape.rank()) : 0);
  for (int d = first; d < shape.rank(); ++d)
    out.push_back(random.chance(0.2) ? 1 : shape[d]);
  return out;
}

constexpr DType dtypes[] = {DType::f32,
                            DType::f64,
                            DType::f16,
                            DType::bf16,
                            DType::i32,
                            DType::i64,
                            DType::u8,
                            DType::boolean};
DType random_dtype(Random& random, int count = dtype_count) {
  return dtypes[random.between(0, count - 1)];
}

// ---- forward cases

double applied(PO op, double a, double b, double c) {
  switch (op) {
    case PO::add: return a + b;
    case PO::sub: return a - b;
    case PO::mul: return a * b;
    case PO::maximum: return std::max(a, b);
    case PO::minimum: return std::min(a, b);
    case PO::less: return a < b;
    case PO::equal: return a == b;
    case PO::neg: return -a;
    case PO::abs: return std::abs(a);
    case PO::relu: return std::max(a, 0.0);
    case PO::exp: return std::exp(a);
    case PO::tanh: return std::tanh(a);
    case PO::add_scalar: return a + 2;
    case PO::mul_scalar: return a * 2;
    case PO::mul_add: return a * b + c;
    case PO::where: return a != 0 ? b : c;
    default: throw Bug("no reference");
  }
}

void pointwise_case(Random& random) {
  const PO op = random.pick({PO::add,
                             PO::sub,
                             PO::mul,
                             PO::maximum,
                             PO::minimum,
                             PO::less,
                             PO::equal,
                             PO::neg,
                             PO::abs,
                             PO::relu,
                             PO::exp,
                             PO::tanh,
                             PO::add_scalar,
                             PO::mul_scalar,
                             PO::mul_add,
                             PO::where});
  const DType dtype = random_dtype(random);
  const bool wraps = dtype == DType::u8 && (op == PO::sub || op == PO::neg || op == PO::mul_add);
  if (!supports(op, dtype) || wraps)
    return;
  const Shape shape = random_shape(random);
  const auto input = [&](int i) {
    const DType t = op == PO::where && i == 0 ? DType::boolean : dtype;
    const bool narrow = i > 0 && random.chance(0.3);
    return view_of(random, narrow ? narrowed(random, shape) : shape, t);
  };
  const Tensor a = input(0), b = input(1), c = input(2);
  const int n = inputs_of(op);
  const Plain x = plain(a), y = plain(b), z = plain(c);
  const Plain expected = built(shape, [&](const Dims& at) {
    return applied(op, seen(x, at), n > 1 ? seen(y, at) : 0, n > 2 ? seen(z, at) : 0);
  });
  const std::string what =
      fmt::format("{} of {} {} strides {}", name_of(op), name_of(dtype), shape, a.strides());
  const Tensor found = n == 1   ? pointwise(op, {a}, 2)
                       : n == 2 ? pointwise(op, {a, b})
                                : pointwise(op, {a, b, c});
  expect_near(found, expected, tolerance_of(dtype), what);
  const Tensor out = view_of(random, shape, found.dtype(), false);
  if (n == 1)
    pointwise_(op, out, {a}, 2);
  else if (n == 2)
    pointwise_(op, out, {a, b});
  else
    pointwise_(op, out, {a, b, c});
  expect_near(out, expected, tolerance_of(dtype), what + " in place");
}

void copy_case(Random& random) {
  const Shape shape = random_shape(random);
  const DType from = random_dtype(random), to = random_dtype(random);
  const Tensor in = view_of(random, random.chance(0.3) ? narrowed(random, shape) : shape, from);
  const Tensor out = view_of(random, shape, to, false);
  const Plain x = plain(in);
  const bool negative =
      std::any_of(x.values.begin(), x.values.end(), [](double v) { return v < 0; });
  if (to == DType::u8 && negative)
    return;
  const Plain expected = built(shape, [&](const Dims& at) {
    const double value = seen(x, at);
    return to == DType::boolean ? static_cast<double>(value != 0) : value;
  });
  copy_(out, in);
  expect_near(out,
              expected,
              0,
              fmt::format("copy of {} {} to {} {}", name_of(from), in.shape(), name_of(to), shape));
  const double value = static_cast<double>(random.between(0, 3));
  fill_(out, value);
  expect_near(out,
              built(shape, [&](const Dims&) { return to == DType::boolean ? value != 0 : value; }),
              0,
              "fill");
}

void reduce_case(Random& random) {
  const Shape shape = random_shape(random);
  const DType dtype = random_dtype(random, 6);
  const Tensor x = view_of(random, shape, dtype);
  Dims dims;
  Shape kept = shape;
  for (int d = 0; d < shape.rank(); ++d) {
    if (random.chance(0.5))
      dims.push_back(d);
  }
  for (int d = 0; d < shape.rank(); ++d) {
    if (dims.empty())
      kept.set(d, 1);
  }
  for (const int64_t d : dims)
    kept.set(static_cast<int>(d), 1);
  const Plain values = plain(x);
  const bool largest = random.chance(0.3) && x.numel() > 0;
  Plain expected = built(kept, [&](const Dims&) { return largest ? -100.0 : 0.0; });
  for (int64_t i = 0; i < x.numel(); ++i) {
    const Dims at = position_of(i, shape);
    int64_t to = 0;
    for (int d = 0; d < shape.rank(); ++d)
      to = to * kept[d] + (kept[d] == 1 ? 0 : at[d]);
    double& total = expected.values[static_cast<size_t>(to)];
    const double value = values.values[static_cast<size_t>(i)];
    total = largest ? std::max(total, value) : total + value;
  }
  const Tensor found = reduce(largest ? ReduceOp::max : ReduceOp::sum, x, dims, true);
  expect_near(found,
              expected,
              tolerance_of(dtype),
              fmt::format("reduce of {} {} over {}", name_of(dtype), shape, dims));
}

void matmul_case(Random& random) {
  const DType dtype = random_dtype(random, 4);
  const auto side = [&] { return random.chance(0.06) ? 0 : random.between(1, 9); };
  const int64_t m = side(), k = side(), n = side();
  Shape lead = random_shape(random, 2), a_shape = narrowed(random, lead),
        b_shape = narrowed(random, lead);
  a_shape.push_back(m), a_shape.push_back(k), b_shape.push_back(k), b_shape.push_back(n);
  const Tensor a = view_of(random, a_shape, dtype), b = view_of(random, b_shape, dtype);
  const bool biased = random.chance(0.3);
  const Tensor bias = biased ? dense(random, {n}, dtype) : Tensor();
  const Tensor found = matmul(a, b, bias);
  const Plain x = plain(a), y = plain(b), z = biased ? plain(bias) : Plain{};
  const Plain expected = built(found.shape(), [&](const Dims& at) {
    double sum = biased ? z.values[static_cast<size_t>(at[-1])] : 0;
    Dims left = at, right = at;
    for (int64_t p = 0; p < k; ++p) {
      left.set(-1, p), right.set(-2, p);
      sum += seen(x, left) * seen(y, right);
    }
    return sum;
  });
  const std::string what = fmt::format("matmul {} {} x {}", name_of(dtype), a_shape, b_shape);
  expect_near(found, expected, tolerance_of(dtype), what);
  const Tensor twice = clone(found);
  if (biased)
    return;
  matmul_(twice, a, b, true);
  expect_near(twice,
              built(found.shape(), [&](const Dims& at) { return 2 * seen(expected, at); }),
              tolerance_of(dtype),
              what + " accumulated");
}

void accumulate_case(Random& random) {
  const Shape shape = random_shape(random);
  const DType dtype = random_dtype(random, 4),
              sum = is_16bit(dtype) && random.chance(0.5) ? DType::f32 : dtype;
  const Tensor acc = dense(random, shape, sum), x = view_of(random, shape, dtype);
  const Plain a = plain(acc), b = plain(x);
  accumulate_(acc, x);
  expect_near(
      acc,
      built(shape, [&](const Dims& at) { return seen(a, at) + seen(b, at); }),
      tolerance_of(dtype),
      fmt::format(
          "accumulate {} {} strides {} to {}", name_of(dtype), shape, x.strides(), name_of(sum)));
}

void rows_case(Random& random) {
  const int64_t v = random.between(1, 9), c = random.between(0, 9), n = random.between(0, 12);
  const DType dtype = random_dtype(random, 4), id = random.pick({DType::i32, DType::i64});
  std::vector<int64_t> values(static_cast<size_t>(n));
  for (int64_t& value : values)
    value = random.between(0, v - 1);
  const Tensor table = dense(random, {v, c}, dtype), ids = cast(from_vector(values), id);
  const Plain rows = plain(table);
  const auto row = [&](const Dims& at) {
    return rows.values[static_cast<size_t>(values[static_cast<size_t>(at[0])] * c + at[1])];
  };
  expect_near(embedding(table, ids), built({n, c}, row), 0, "embedding");
  const Tensor dy = view_of(random, {n, c}, dtype);
  const Plain g = plain(dy), before = rows;
  const bool accumulate = random.chance(0.5);
  embedding_backward_(table, ids, dy, accumulate);
  const Plain expected = built({v, c}, [&](const Dims& at) {
    double sum = accumulate ? seen(before, at) : 0;
    for (int64_t i = 0; i < n; ++i) {
      if (values[static_cast<size_t>(i)] == at[0])
        sum += g.values[static_cast<size_t>(i * c + at[1])];
    }
    return sum;
  });
  expect_near(table,
              expected,
              tolerance_of(dtype),
              fmt::format("embedding_backward of {} {}", name_of(dtype), n));
}

// ---- gradients: a chain of ops on views of f64 inputs

Tensor reals(Random& random, const Shape& shape) {
  std::vector<double> values(static_cast<size_t>(numel(shape)));
  for (double& value : values)
    value = random.real(0.2, 1.5);
  return from_vector(values, shape);
}

using Step = std::function<Variable(const Variable&, const Variable&)>;

Step random_step(Random& random, const Shape& shape) {
  const auto d = static_cast<int>(random.between(0, shape.rank() - 1));
  const int64_t half = shape[d] / 2;
  switch (random.between(0, 12)) {
    case 0: return [](const Variable& x, const Variable& w) { return x * w; };
    case 1: return [](const Variable& x, const Variable& w) { return x / w + w; };
    case 2: return [d](const Variable& x, const Variable&) { return transpose(x, 0, d); };
    case 3:
      return [d, half](const Variable& x, const Variable&) { return slice(x, d, half, x.size(d)); };
    case 4: return [d](const Variable& x, const Variable&) { return concatenate({x, x}, d); };
    case 5: return [d](const Variable& x, const Variable&) { return mean(x, {d}, true); };
    case 6: return [](const Variable& x, const Variable&) { return softmax(x); };
    case 7: return [](const Variable& x, const Variable&) { return tanh(x); };
    case 8: return [](const Variable& x, const Variable&) { return pow(x, 2) * 0.5; };
    case 9: return [](const Variable& x, const Variable&) { return reshape(x, {x.numel()}); };
    case 10: return [](const Variable& x, const Variable& w) { return mul_add(x, w, x); };
    case 11: return [](const Variable& x, const Variable&) { return gelu(x); };
    default: return [d](const Variable& x, const Variable&) { return sum(x, {d}, true); };
  }
}

void gradient_case(Random& random) {
  Shape shape = random_shape(random, 3);
  if (shape.rank() == 0)
    shape.push_back(random.between(0, 4));
  const Tensor x = reals(random, shape), w = reals(random, Shape{1});
  std::vector<Step> steps;
  Variable y(x);
  for (int64_t i = random.between(1, 4); i > 0; --i) {
    steps.push_back(random_step(random, y.shape()));
    y = steps.back()(y, Variable(w));
  }
  for (const double value : y.tensor().to_vector<double>()) {
    if (!std::isfinite(value))
      return;  // the mean of nothing
  }
  const GradcheckResult result = gradcheck(
      [&](std::span<const Variable> in) {
        Variable value = in[0];
        for (const Step& step : steps)
          value = step(value, in[1]);
        return value;
      },
      {x, w},
      {.step = 1e-5, .tolerance = 1e-6});
  fuzz::expect(result.ok, "gradient of {} steps from {}: {}", steps.size(), shape, result.message);
}

void one_case(Random& random) {
  constexpr void (*cases[])(Random&) = {pointwise_case,
                                        pointwise_case,
                                        copy_case,
                                        reduce_case,
                                        matmul_case,
                                        accumulate_case,
                                        rows_case,
                                        gradient_case};
  cases[random.between(0, 7)](random);
}

}  // namespace

int main(int argc, char** argv) {
  return sg::fuzz::run(argc, argv, {}, one_case);
}
