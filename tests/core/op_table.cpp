#include "tests/core/op_table.h"

#include <cmath>

namespace sg::test {
namespace {

using PO = PointwiseOp;

Tensor wave(const Shape& shape) {
  std::vector<float> values(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = 0.5f + 0.3f * std::sin(static_cast<float>(i) + 1);
  return from_vector(values, shape);
}
Tensor ids(int64_t n) {
  std::vector<int64_t> values(static_cast<size_t>(n));
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<int64_t>(i) % 3;
  return from_vector(values, Shape{n});
}
Tensor statistics(int64_t n) {
  return full({n}, 0.5);
}
Tensor vector(int64_t n) {
  return wave({n});
}

std::vector<OpRow> memory_rows() {
  return {
      {"fill_",
       [](int64_t n) {
         return Tensors{wave({n, 3})};
       },
       [](const Tensors& x) { return fill_(x[0], 2), Tensors{x[0]}; },
       {},
       {},
       {0}},
      {"copy_",
       [](int64_t n) {
         return Tensors{wave({n, 3}), wave({3})};
       },
       [](const Tensors& x) { return copy_(x[0], x[1]), Tensors{x[0]}; },
       {},
       {},
       {0},
       true},
      {"contiguous",
       [](int64_t n) {
         return Tensors{wave({n, 3})};
       },
       [](const Tensors& x) { return Tensors{contiguous(clone(x[0]))}; }},
      {"clone",
       [](int64_t n) {
         return Tensors{wave({n, 3})};
       },
       [](const Tensors& x) { return Tensors{clone(x[0])}; }},
      {"cast",
       [](int64_t n) {
         return Tensors{wave({n, 3})};
       },
       [](const Tensors& x) { return Tensors{cast(x[0], DType::f64)}; }},
      {"to",
       [](int64_t n) {
         return Tensors{wave({n, 3})};
       },
       [](const Tensors& x) { return Tensors{to(x[0], host)}; },
       {},
       {},
       {},
       true},
      {"concatenate",
       [](int64_t n) {
         return Tensors{wave({n, 3}), wave({n, 2})};
       },
       [](const Tensors& x) { return Tensors{concatenate(x, 1)}; }},
      {"gather_rows",
       [](int64_t n) {
         return Tensors{wave({3, 4}), ids(n)};
       },
       [](const Tensors& x) { return Tensors{gather_rows(x[0], x[1])}; },
       {},
       {1}},
  };
}

std::vector<OpRow> pointwise_and_reduce_rows() {
  return {
      {"pointwise_",
       [](int64_t n) {
         return Tensors{wave({n, 3}), wave({n, 3}), wave({3})};
       },
       [](const Tensors& x) {
         return pointwise_(PO::add, x[0], {x[1], x[2]}), Tensors{x[0]};
       },
       {},
       {},
       {0}},
      {"accumulate_",
       [](int64_t n) {
         return Tensors{wave({n, 3}), wave({n, 3})};
       },
       [](const Tensors& x) { return accumulate_(x[0], x[1]), Tensors{x[0]}; },
       {},
       {},
       {0}},
      {"reduce",
       [](int64_t n) {
         return Tensors{wave({n, 3})};
       },
       [](const Tensors& x) {
         return Tensors{sum(x[0]), mean(x[0], {1}), reduce(ReduceOp::max, x[0], {1})};
       }},
      {"sum_to",
       [](int64_t n) {
         return Tensors{wave({n, 3})};
       },
       [](const Tensors& x) { return Tensors{sum_to(x[0], {3})}; }},
      {"argmax",
       [](int64_t n) {
         return Tensors{wave({n, 3})};
       },
       [](const Tensors& x) { return Tensors{argmax(x[0])}; }},
      {"add",
       [](int64_t n) {
         return Tensors{wave({n, 3}), wave({n, 1})};
       },
       [](const Tensors& x) {
         return Tensors{add(x[0], x[1]), sub(x[0], x[1]), mul(x[0], x[1])};
       }},
      {"div",
       [](int64_t n) {
         return Tensors{wave({n, 3}), wave({n, 3})};
       },
       [](const Tensors& x) { return Tensors{div(x[0], x[1])}; }},
      {"scale",
       [](int64_t n) {
         return Tensors{wave({n, 3})};
       },
       [](const Tensors& x) { return Tensors{scale(x[0], 2)}; }},
  };
}

std::vector<OpRow> pointwise_rows() {
  std::vector<OpRow> rows;
#define SG_ROW(op, count)                                                            \
  rows.push_back({"pointwise",                                                       \
                  [](int64_t n) {                                                    \
                    Tensors in(count, wave({n, 3}));                                 \
                    if (PO::op == PO::where)                                         \
                      in[0] = cast(in[0], DType::boolean);                           \
                    return in;                                                       \
                  },                                                                 \
                  [](const Tensors& x) {                                             \
                    if constexpr (count == 1)                                        \
                      return Tensors{pointwise(PO::op, {x[0]}, 2)};                  \
                    else if constexpr (count == 2)                                   \
                      return Tensors{pointwise(PO::op, {x[0], x[1]})};               \
                    else                                                             \
                      return Tensors{pointwise(PO::op, {x[0], x[1], x[count - 1]})}; \
                  }});
  SG_POINTWISE_OPS(SG_ROW)
#undef SG_ROW
  return rows;
}

std::vector<OpRow> product_and_norm_rows() {
  return {
      {"matmul",
       [](int64_t n) {
         return Tensors{wave({2, n, 4}), wave({4, 3}), vector(3)};
       },
       [](const Tensors& x) { return Tensors{matmul(x[0], x[1], x[2])}; },
       {2}},
      {"matmul_",
       [](int64_t n) {
         return Tensors{wave({5, 3}), wave({5, n}), wave({n, 3})};
       },
       [](const Tensors& x) { return matmul_(x[0], x[1], x[2], true), Tensors{x[0]}; },
       {},
       {},
       {0}},
      {"softmax",
       [](int64_t n) {
         return Tensors{wave({n, 4})};
       },
       [](const Tensors& x) { return Tensors{softmax(x[0])}; }},
      {"softmax_backward",
       [](int64_t n) {
         return Tensors{wave({n, 4}), wave({n, 4})};
       },
       [](const Tensors& x) { return Tensors{softmax_backward(x[0], x[1])}; }},
      {"layernorm",
       [](int64_t n) {
         return Tensors{wave({n, 4}), vector(4), vector(4), wave({n, 4})};
       },
       [](const Tensors& x) { return Tensors{layernorm(x[0], x[1], x[2], 1e-5f, x[3]).y}; },
       {2, 3}},
      {"rmsnorm",
       [](int64_t n) {
         return Tensors{wave({n, 4}), vector(4), wave({n, 4})};
       },
       [](const Tensors& x) { return Tensors{rmsnorm(x[0], x[1], 1e-5f, x[2]).y}; },
       {2}},
      {"layernorm_backward",
       [](int64_t n) {
         return Tensors{
             wave({n, 4}), wave({n, 4}), vector(4), statistics(n), statistics(n), wave({n, 4})};
       },
       [](const Tensors& x) {
         const NormGradients g =
             layernorm_backward(clone(x[0]), x[1], x[2], x[3], x[4], true, x[5]);
         return Tensors{g.dx, g.d_gain, g.d_bias};
       },
       {5}},
      {"rmsnorm_backward",
       [](int64_t n) {
         return Tensors{wave({n, 4}), wave({n, 4}), vector(4), statistics(n), wave({n, 4})};
       },
       [](const Tensors& x) {
         const NormGradients g = rmsnorm_backward(clone(x[0]), x[1], x[2], x[3], x[4]);
         return Tensors{g.dx, g.d_gain};
       },
       {4}},
  };
}

std::vector<OpRow> row_rows() {
  return {
      {"activation_backward",
       [](int64_t n) {
         return Tensors{wave({n, 4}), wave({n, 4})};
       },
       [](const Tensors& x) {
         const ActivationGradients g = activation_backward(PO::gelu, x[0], clone(x[1]), true);
         return Tensors{g.dx, g.d_bias};
       }},
      {"column_sum",
       [](int64_t n) {
         return Tensors{wave({n, 4})};
       },
       [](const Tensors& x) { return Tensors{column_sum(x[0])}; }},
      {"rope",
       [](int64_t n) {
         return Tensors{wave({2, n, 2, 4}), ids(n)};
       },
       [](const Tensors& x) { return Tensors{rope(x[0], x[1], {})}; },
       {},
       {1}},
      {"dropout",
       [](int64_t n) {
         return Tensors{wave({n, 4})};
       },
       [](const Tensors& x) { return Tensors{dropout(x[0], 0.5f, {.seed = 1})}; }},
      {"embedding",
       [](int64_t n) {
         return Tensors{wave({3, 4}), ids(n)};
       },
       [](const Tensors& x) { return Tensors{embedding(x[0], x[1])}; },
       {},
       {1}},
      {"embedding_backward_",
       [](int64_t n) {
         return Tensors{wave({3, 4}), ids(n), wave({n, 4})};
       },
       [](const Tensors& x) { return embedding_backward_(x[0], x[1], x[2], true), Tensors{x[0]}; },
       {},
       {1},
       {0}},
  };
}

constexpr AdamOptions adam{1, 0.9f, 0.99f, 1, 0, 1, 1, 1, false, false};

Tensors attend_backward(const Tensors& x) {
  const AttentionParameters p{.mask = x[8]};
  attention_backward_(x[0], x[1], x[2], x[3], x[4], x[5], {x[6], x[7]}, x[9], p);
  return {x[0], x[1], x[2]};
}

std::vector<OpRow> attention_and_loss_rows() {
  const auto heads = [](int64_t n) { return wave({2, 2, n, 4}); };
  return {
      {"attention",
       [=](int64_t n) {
         return Tensors{heads(n), heads(n), heads(n), full({n, n}, 1, DType::boolean)};
       },
       [](const Tensors& x) { return Tensors{attention(x[0], x[1], x[2], {.mask = x[3]}).out}; },
       {3}},
      {"attention_backward_",
       [=](int64_t n) {
         return Tensors{heads(n),
                        heads(n),
                        heads(n),
                        heads(n),
                        heads(n),
                        heads(n),
                        heads(n),
                        full({2, 2, n}, 1),
                        full({n, n}, 1, DType::boolean),
                        heads(n)};
       },
       attend_backward,
       {8},
       {},
       {0, 1, 2}},
      {"cross_entropy",
       [](int64_t n) {
         return Tensors{wave({n, 4}), ids(n)};
       },
       [](const Tensors& x) {
         const Loss loss = cross_entropy(x[0], x[1], true);
         return Tensors{loss.losses, loss.d_logits};
       },
       {},
       {1}},
      {"classifier",
       [](int64_t n) {
         return Tensors{wave({n, 4}), wave({3, 4}), ids(n), wave({3, 4})};
       },
       [](const Tensors& x) {
         const Loss loss = classifier(x[0], x[1], x[2], true, 1, x[3]);
         return Tensors{loss.losses, loss.dx, loss.d_weight};
       },
       {3},
       {2},
       {3}},
  };
}

std::vector<OpRow> update_rows() {
  return {
      {"adam_",
       [](int64_t n) {
         return Tensors{vector(n), vector(n), vector(n), vector(n)};
       },
       [](const Tensors& x) {
         adam_(x[0], x[1], x[2], x[3], {}, adam);
         return Tensors{x[0], x[2], x[3]};
       },
       {},
       {},
       {0, 2, 3}},
      {"sgd_",
       [](int64_t n) {
         return Tensors{vector(n), vector(n), vector(n)};
       },
       [](const Tensors& x) {
         sgd_(x[0], x[1], x[2], {}, SgdOptions{1, 0.5f, 0, 1, false, false});
         return Tensors{x[0], x[2]};
       },
       {},
       {},
       {0, 2}},
      {"lion_",
       [](int64_t n) {
         return Tensors{vector(n), vector(n), vector(n)};
       },
       [](const Tensors& x) {
         lion_(x[0], x[1], x[2], {}, LionOptions{1, 0.9f, 0.99f, 0, 1});
         return Tensors{x[0], x[2]};
       },
       {},
       {},
       {0, 2}},
      {"sum_squares",
       [](int64_t n) { return Tensors{vector(n)}; },
       [](const Tensors& x) { return Tensors{sum_squares(x[0])}; }},
      {"tree_sum",
       [](int64_t n) {
         return Tensors{vector(n), vector(n), vector(n)};
       },
       [](const Tensors& x) { return Tensors{tree_sum(x, 1, DType::f32)}; }},
      {"find_nonfinite",
       [](int64_t n) { return Tensors{vector(n)}; },
       [](const Tensors& x) { return Tensors{find_nonfinite(x[0])}; }},
  };
}

}  // namespace

std::vector<OpRow> all_rows() {
  std::vector<OpRow> rows;
  for (const auto& part : {memory_rows(),
                           pointwise_and_reduce_rows(),
                           pointwise_rows(),
                           product_and_norm_rows(),
                           row_rows(),
                           attention_and_loss_rows(),
                           update_rows()})
    rows.insert(rows.end(), part.begin(), part.end());
  return rows;
}

}  // namespace sg::test
