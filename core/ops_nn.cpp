#include "core/launch.h"
#include "core/ops.h"

namespace sg {
namespace {

void check_vector(const char* op, const char* what, const Tensor& v, const Tensor& x) {
  check(v.shape() == Shape{x.size(-1)} && v.dtype() == x.dtype() && v.contiguous(), "{}: {} {} {} for x {} {}", op,
        what, name_of(v.dtype()), v.shape(), name_of(x.dtype()), x.shape());
}

void check_like(const char* op, const char* what, const Tensor& t, const Tensor& x) {
  check(t.shape() == x.shape() && t.dtype() == x.dtype(), "{}: {} is {} {}, x is {} {}", op, what, name_of(t.dtype()),
        t.shape(), name_of(x.dtype()), x.shape());
}

Tensor rows_or_undefined(const Tensor& x) { return x.defined() ? detail::as_rows(x) : Tensor{}; }

// Memory for the gradient that is made of dy: the kernels read an element of dy before they write it.
Tensor in_place_of(const Tensor& dy) {
  return unique(dy) && dy.storage()->bytes() == dy.bytes() ? dy : empty(dy.shape(), dy.dtype(), dy.device());
}

// What layernorm and rmsnorm share: the outputs, and x's and the residual's rows.
struct NormRows {
  Tensor x, residual;
  Normalised out;
};

NormRows prepare_norm(const char* op, const Tensor& x, const Tensor& gain, const Tensor& bias, const Tensor& residual,
                      bool mean) {
  detail::check_device(op, {&x, &gain, &bias, &residual});
  check_vector(op, "gain", gain, x);
  if (bias.defined()) check_vector(op, "bias", bias, x);
  NormRows n{detail::as_rows(x), rows_or_undefined(residual), {}};
  const Shape statistics = detail::without_last(x.shape());
  const DType dtype = detail::statistics_dtype(x.dtype());
  n.out.y = empty(x.shape(), x.dtype(), x.device());
  if (mean) n.out.mean = empty(statistics, dtype, x.device());
  n.out.rstd = empty(statistics, dtype, x.device());
  n.out.sum = x;
  if (residual.defined()) {
    check_like(op, "residual", residual, x);
    n.out.sum = empty(x.shape(), x.dtype(), x.device());
  }
  return n;
}

View sum_view(const NormRows& n) { return n.residual.defined() ? detail::as_rows(n.out.sum).view() : View{}; }

}  // namespace

Tensor softmax(const Tensor& x) {
  const Tensor rows = detail::as_rows(x);
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  detail::launch("softmax", x.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.softmax, "softmax", k, x.dtype())(rows.view(), y.reshape(rows.shape()).view(), s);
  });
  return y;
}

Tensor softmax_backward(const Tensor& y, const Tensor& dy) {
  check_like("softmax_backward", "dy", dy, y);
  const Tensor rows = detail::as_rows(y), d_rows = detail::as_rows(dy);
  Tensor dx = empty(y.shape(), y.dtype(), y.device());
  detail::launch("softmax_backward", y.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.softmax_backward, "softmax_backward", k, y.dtype())(rows.view(), d_rows.view(),
                                                                          dx.reshape(rows.shape()).view(), s);
  });
  return dx;
}

Normalised layernorm(const Tensor& x, const Tensor& gain, const Tensor& bias, float eps, const Tensor& residual) {
  NormRows n = prepare_norm("layernorm", x, gain, bias, residual, true);
  detail::launch("layernorm", x.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.layernorm, "layernorm", k, x.dtype())(
        n.x.view(), detail::view_or_null(n.residual), gain.view(), detail::view_or_null(bias), eps, sum_view(n),
        n.out.y.reshape(n.x.shape()).view(), n.out.mean.flatten().view(), n.out.rstd.flatten().view(), s);
  });
  return std::move(n.out);
}

Normalised rmsnorm(const Tensor& x, const Tensor& gain, float eps, const Tensor& residual) {
  NormRows n = prepare_norm("rmsnorm", x, gain, {}, residual, false);
  detail::launch("rmsnorm", x.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.rmsnorm, "rmsnorm", k, x.dtype())(n.x.view(), detail::view_or_null(n.residual), gain.view(), eps,
                                                        sum_view(n), n.out.y.reshape(n.x.shape()).view(),
                                                        n.out.rstd.flatten().view(), s);
  });
  return std::move(n.out);
}

NormGradients layernorm_backward(Tensor dy, const Tensor& x, const Tensor& gain, const Tensor& mean, const Tensor& rstd,
                                 bool has_bias, const Tensor& d_sum) {
  check_like("layernorm_backward", "dy", dy, x);
  NormGradients out{in_place_of(dy), empty_like(gain), has_bias ? empty_like(gain) : Tensor{}};
  const Tensor rows = detail::as_rows(x), d_rows = detail::as_rows(dy), d_sum_rows = rows_or_undefined(d_sum);
  const detail::Scratch scratch(
      x.device(),
      detail::workspace_bytes(kernel_table(x.device()).layernorm_backward_workspace, rows.view(), threads(x.device())));
  detail::launch("layernorm_backward", x.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.layernorm_backward, "layernorm_backward", k, x.dtype())(
        d_rows.view(), detail::view_or_null(d_sum_rows), rows.view(), gain.view(), mean.flatten().view(),
        rstd.flatten().view(), out.dx.reshape(rows.shape()).view(), out.d_gain.view(), detail::view_or_null(out.d_bias),
        scratch, s);
  });
  return out;
}

NormGradients rmsnorm_backward(Tensor dy, const Tensor& x, const Tensor& gain, const Tensor& rstd,
                               const Tensor& d_sum) {
  check_like("rmsnorm_backward", "dy", dy, x);
  NormGradients out{in_place_of(dy), empty_like(gain), {}};
  const Tensor rows = detail::as_rows(x), d_rows = detail::as_rows(dy), d_sum_rows = rows_or_undefined(d_sum);
  const detail::Scratch scratch(
      x.device(),
      detail::workspace_bytes(kernel_table(x.device()).layernorm_backward_workspace, rows.view(), threads(x.device())));
  detail::launch("rmsnorm_backward", x.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.rmsnorm_backward, "rmsnorm_backward", k, x.dtype())(
        d_rows.view(), detail::view_or_null(d_sum_rows), rows.view(), gain.view(), rstd.flatten().view(),
        out.dx.reshape(rows.shape()).view(), out.d_gain.view(), scratch, s);
  });
  return out;
}

ActivationGradients activation_backward(PointwiseOp f, const Tensor& x, Tensor dy, bool want_bias) {
  check_like("activation_backward", "dy", dy, x);
  ActivationGradients out{in_place_of(dy), {}};
  const Tensor rows = detail::as_rows(x), d_rows = detail::as_rows(dy);
  if (want_bias) out.d_bias = empty({x.size(-1)}, x.dtype(), x.device());
  const detail::Scratch scratch(x.device(), detail::workspace_bytes(kernel_table(x.device()).column_sum_workspace,
                                                                    rows.view(), threads(x.device())));
  detail::launch("activation_backward", x.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.activation_backward, "activation_backward", k, x.dtype())(
        f, rows.view(), d_rows.view(), out.dx.reshape(rows.shape()).view(), detail::view_or_null(out.d_bias), scratch,
        s);
  });
  return out;
}

Tensor column_sum(const Tensor& dy) {
  const Tensor rows = detail::as_rows(dy);
  Tensor out = empty({dy.size(-1)}, dy.dtype(), dy.device());
  const detail::Scratch scratch(dy.device(), detail::workspace_bytes(kernel_table(dy.device()).column_sum_workspace,
                                                                     rows.view(), threads(dy.device())));
  detail::launch("column_sum", dy.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.column_sum, "column_sum", k, dy.dtype())(rows.view(), out.view(), scratch, s);
  });
  return out;
}

Tensor rope(const Tensor& x, const Tensor& positions, float theta, bool inverse) {
  check(x.rank() == 4 && x.size(3) % 2 == 0, "rope: (b, t, h, d) with even d is needed: {}", x.shape());
  check(positions.shape() == Shape{x.size(1)} && positions.dtype() == DType::i64, "rope: {} positions {} for x {}",
        name_of(positions.dtype()), positions.shape(), x.shape());
  const Tensor in = x.strides()[-1] == 1 ? x : contiguous(x);
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  detail::launch("rope", x.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.rope, "rope", k, x.dtype())(in.view(), contiguous(positions).view(), theta, inverse, y.view(), s);
  });
  return y;
}

Tensor dropout(const Tensor& x, float probability, const RandomKey& key) {
  check(0 <= probability && probability < 1, "dropout: a probability in [0, 1) is needed: {}", probability);
  const Tensor dense = contiguous(x);
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  detail::launch("dropout", x.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.dropout, "dropout", k, x.dtype())(dense.view(), y.view(), probability, key, s);
  });
  return y;
}

Tensor embedding(const Tensor& table, const Tensor& ids) {
  check(table.rank() == 2 && table.contiguous(), "embedding: a dense (v, c) table is needed: {}", table.shape());
  detail::check_integers("embedding", "ids", ids);
  detail::check_device("embedding", {&table, &ids});
  const Tensor flat = contiguous(ids).flatten();
  Shape shape = ids.shape();
  shape.push_back(table.size(1));
  Tensor out = empty(shape, table.dtype(), table.device());
  detail::launch("embedding", table.device(), [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.embedding, "embedding", k, table.dtype())(table.view(), flat.view(),
                                                                out.reshape({flat.size(0), table.size(1)}).view(), s);
  });
  return out;
}

void embedding_backward_(const Tensor& d_table, const Tensor& ids, const Tensor& dy, bool accumulate) {
  check(d_table.rank() == 2 && d_table.contiguous(), "embedding_backward: a dense (v, c) table is needed: {}",
        d_table.shape());
  detail::check_integers("embedding_backward", "ids", ids);
  const Tensor flat = contiguous(ids).flatten(), rows = detail::as_rows(dy);
  check(rows.shape() == Shape({flat.size(0), d_table.size(1)}) && rows.dtype() == d_table.dtype(),
        "embedding_backward: dy {} {} for {} ids and table {} {}", name_of(dy.dtype()), dy.shape(), flat.size(0),
        name_of(d_table.dtype()), d_table.shape());
  const Device device = d_table.device();
  const detail::Scratch scratch(device, detail::workspace_bytes(kernel_table(device).embedding_backward_workspace,
                                                                flat.view(), d_table.view(), threads(device)));
  detail::launch("embedding_backward", device, [&](const KernelTable& k, StreamHandle s) {
    detail::require(k.embedding_backward, "embedding_backward", k, d_table.dtype())(
        flat.view(), rows.view(), d_table.view(), accumulate, scratch, s);
  });
  d_table.bump_version();
}

}  // namespace sg
