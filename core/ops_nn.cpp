#include <cmath>

#include "core/launch.h"
#include "core/ops.h"

namespace sg {
namespace {

void check_vector(const char* op, const char* what, const Tensor& v, const Tensor& x) {
  check(v.shape() == Shape{x.size(-1)} && v.dtype() == x.dtype() && v.contiguous(),
        "{}: {} {} {} for x {} {}",
        op,
        what,
        name_of(v.dtype()),
        v.shape(),
        name_of(x.dtype()),
        x.shape());
}

void check_like(const char* op, const char* what, const Tensor& t, const Tensor& x) {
  check(t.shape() == x.shape() && t.dtype() == x.dtype(),
        "{}: {} is {} {}, x is {} {}",
        op,
        what,
        name_of(t.dtype()),
        t.shape(),
        name_of(x.dtype()),
        x.shape());
}

Tensor rows_or_undefined(const char* op, const Tensor& x) {
  return x.defined() ? detail::as_rows(op, x) : Tensor{};
}

void fill_all(std::initializer_list<const Tensor*> tensors, double value) {
  for (const Tensor* t : tensors) {
    if (t->defined())
      fill_(*t, value);
  }
}

void check_activation(const char* op, PointwiseOp f) {
  using enum PointwiseOp;
  check(f == gelu || f == gelu_tanh || f == silu || f == relu,
        "{}: {} is none of gelu, gelu_tanh, silu, relu",
        op,
        name_of(f));
}

// Memory for the gradient that is made of dy: the kernels read an element of dy before they write
// it.
Tensor in_place_of(const Tensor& dy) {
  return unique(dy) && dy.storage()->bytes() == dy.bytes()
             ? dy
             : empty(dy.shape(), dy.dtype(), dy.device());
}

// What layernorm and rmsnorm share: the outputs, and x's and the residual's rows.
struct NormRows {
  Tensor x, residual;
  Normalised out;
};

NormRows prepare_norm(const char* op,
                      const Tensor& x,
                      const Tensor& gain,
                      const Tensor& bias,
                      const Tensor& residual,
                      float eps,
                      bool mean) {
  detail::check_arguments(
      op, {{"x", &x}, {"the gain", &gain}}, {{"the bias", &bias}, {"the residual", &residual}});
  check(x.rank() >= 1, "{}: x of at least one dimension is needed: {}", op, x.shape());
  check(eps >= 0 && std::isfinite(eps), "{}: eps must not be negative: {}", op, eps);
  check_vector(op, "gain", gain, x);
  if (bias.defined())
    check_vector(op, "bias", bias, x);
  if (residual.defined())
    check_like(op, "residual", residual, x);
  NormRows n{detail::as_rows(op, x), rows_or_undefined(op, residual), {}};
  const Shape statistics = detail::without_last(x.shape());
  const DType dtype = detail::statistics_dtype(x.dtype());
  n.out.y = empty(x.shape(), x.dtype(), x.device());
  if (mean)
    n.out.mean = empty(statistics, dtype, x.device());
  n.out.rstd = empty(statistics, dtype, x.device());
  n.out.sum = x;
  if (residual.defined()) {
    n.out.sum = empty(x.shape(), x.dtype(), x.device());
  }
  if (x.numel() == 0)
    fill_all({&n.out.mean, &n.out.rstd}, 0);  // of rows of no elements, if any
  return n;
}

View sum_view(const NormRows& n) {
  return n.residual.defined() ? n.out.sum.reshape(n.x.shape()).view() : View{};
}

// What the backward of layernorm (mean given) and rmsnorm has in common.
NormGradients prepare_norm_backward(const char* op,
                                    const Tensor& dy,
                                    const Tensor& x,
                                    const Tensor& gain,
                                    const Tensor& mean,
                                    const Tensor& rstd,
                                    bool has_bias,
                                    const Tensor& d_sum) {
  detail::check_arguments(op,
                          {{"dy", &dy}, {"x", &x}, {"the gain", &gain}, {"rstd", &rstd}},
                          {{"the mean", &mean}, {"d_sum", &d_sum}});
  check_like(op, "dy", dy, x);
  if (d_sum.defined())
    check_like(op, "d_sum", d_sum, x);
  check(x.rank() >= 1, "{}: x of at least one dimension is needed: {}", op, x.shape());
  check_vector(op, "gain", gain, x);
  for (const Tensor* statistic : {&mean, &rstd}) {
    check(!statistic->defined() || (statistic->shape() == detail::without_last(x.shape()) &&
                                    statistic->dtype() == detail::statistics_dtype(x.dtype()) &&
                                    statistic->contiguous()),
          "{}: statistics {} {} for x {} {}",
          op,
          name_of(statistic->dtype()),
          statistic->shape(),
          name_of(x.dtype()),
          x.shape());
  }
  NormGradients out{in_place_of(dy), empty_like(gain), has_bias ? empty_like(gain) : Tensor{}};
  if (x.numel() == 0)
    fill_all({&out.d_gain, &out.d_bias}, 0);
  return out;
}

void check_rope(const RopeOptions& o) {
  const auto positive = [](float x) { return x > 0 && std::isfinite(x); };
  check(positive(o.theta), "rope: theta must be positive: {}", o.theta);
  check(positive(o.magnitude), "rope: the magnitude must be positive: {}", o.magnitude);
  if (o.scaling == RopeScaling::none)
    return;
  check(positive(o.factor) && positive(o.original_context),
        "rope: factor and original context must be positive: {}, {}",
        o.factor,
        o.original_context);
  check(positive(o.slow) && o.slow < o.fast,
        "rope: the ramp of frequencies goes from {} to {} turns; it must rise from above 0",
        o.slow,
        o.fast);
}

}  // namespace

Tensor softmax(const Tensor& x) {
  detail::check_arguments("softmax", {{"the input", &x}});
  const auto softmax = detail::kernel("softmax", x.device(), &KernelTable::softmax, x.dtype());
  const Tensor rows = detail::as_rows("softmax", x);
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  if (y.numel() == 0)
    return y;
  detail::launch("softmax", x.device(), [&](StreamHandle s) {
    softmax(rows.view(), y.reshape(rows.shape()).view(), s);
  });
  return y;
}

Tensor softmax_backward(const Tensor& y, const Tensor& dy) {
  constexpr const char* op = "softmax_backward";
  detail::check_arguments(op, {{"y", &y}, {"dy", &dy}});
  check_like(op, "dy", dy, y);
  const auto backward = detail::kernel(op, y.device(), &KernelTable::softmax_backward, y.dtype());
  const Tensor rows = detail::as_rows(op, y), d_rows = detail::as_rows(op, dy);
  Tensor dx = empty(y.shape(), y.dtype(), y.device());
  if (dx.numel() == 0)
    return dx;
  detail::launch(op, y.device(), [&](StreamHandle s) {
    backward(rows.view(), d_rows.view(), dx.reshape(rows.shape()).view(), s);
  });
  return dx;
}

Normalised layernorm(
    const Tensor& x, const Tensor& gain, const Tensor& bias, float eps, const Tensor& residual) {
  NormRows n = prepare_norm("layernorm", x, gain, bias, residual, eps, true);
  const auto norm = detail::kernel("layernorm", x.device(), &KernelTable::layernorm, x.dtype());
  if (x.numel() == 0)
    return std::move(n.out);
  detail::launch("layernorm", x.device(), [&](StreamHandle s) {
    norm(n.x.view(),
         detail::view_or_null(n.residual),
         gain.view(),
         detail::view_or_null(bias),
         eps,
         sum_view(n),
         n.out.y.reshape(n.x.shape()).view(),
         n.out.mean.flatten().view(),
         n.out.rstd.flatten().view(),
         s);
  });
  return std::move(n.out);
}

Normalised rmsnorm(const Tensor& x, const Tensor& gain, float eps, const Tensor& residual) {
  NormRows n = prepare_norm("rmsnorm", x, gain, {}, residual, eps, false);
  const auto norm = detail::kernel("rmsnorm", x.device(), &KernelTable::rmsnorm, x.dtype());
  if (x.numel() == 0)
    return std::move(n.out);
  detail::launch("rmsnorm", x.device(), [&](StreamHandle s) {
    norm(n.x.view(),
         detail::view_or_null(n.residual),
         gain.view(),
         eps,
         sum_view(n),
         n.out.y.reshape(n.x.shape()).view(),
         n.out.rstd.flatten().view(),
         s);
  });
  return std::move(n.out);
}

NormGradients layernorm_backward(Tensor dy,
                                 const Tensor& x,
                                 const Tensor& gain,
                                 const Tensor& mean,
                                 const Tensor& rstd,
                                 bool has_bias,
                                 const Tensor& d_sum) {
  constexpr const char* op = "layernorm_backward";
  check(mean.defined(), "{}: the mean is undefined", op);
  NormGradients out = prepare_norm_backward(op, dy, x, gain, mean, rstd, has_bias, d_sum);
  const auto backward = detail::kernel(op, x.device(), &KernelTable::layernorm_backward, x.dtype());
  if (x.numel() == 0)
    return out;
  const Tensor rows = detail::as_rows(op, x), d_rows = detail::as_rows(op, dy);
  const Tensor d_sum_rows = rows_or_undefined(op, d_sum);
  const detail::Scratch scratch(
      x.device(),
      detail::workspace_bytes(
          kernel_table(x.device()).layernorm_backward_workspace, rows.view(), threads(x.device())));
  detail::launch(op, x.device(), [&](StreamHandle s) {
    backward(d_rows.view(),
             detail::view_or_null(d_sum_rows),
             rows.view(),
             gain.view(),
             mean.flatten().view(),
             rstd.flatten().view(),
             out.dx.reshape(rows.shape()).view(),
             out.d_gain.view(),
             detail::view_or_null(out.d_bias),
             scratch,
             s);
  });
  return out;
}

NormGradients rmsnorm_backward(
    Tensor dy, const Tensor& x, const Tensor& gain, const Tensor& rstd, const Tensor& d_sum) {
  constexpr const char* op = "rmsnorm_backward";
  NormGradients out = prepare_norm_backward(op, dy, x, gain, {}, rstd, false, d_sum);
  const auto backward = detail::kernel(op, x.device(), &KernelTable::rmsnorm_backward, x.dtype());
  if (x.numel() == 0)
    return out;
  const Tensor rows = detail::as_rows(op, x), d_rows = detail::as_rows(op, dy);
  const Tensor d_sum_rows = rows_or_undefined(op, d_sum);
  const detail::Scratch scratch(
      x.device(),
      detail::workspace_bytes(
          kernel_table(x.device()).layernorm_backward_workspace, rows.view(), threads(x.device())));
  detail::launch(op, x.device(), [&](StreamHandle s) {
    backward(d_rows.view(),
             detail::view_or_null(d_sum_rows),
             rows.view(),
             gain.view(),
             rstd.flatten().view(),
             out.dx.reshape(rows.shape()).view(),
             out.d_gain.view(),
             scratch,
             s);
  });
  return out;
}

ActivationGradients activation_backward(PointwiseOp f, const Tensor& x, Tensor dy, bool want_bias) {
  constexpr const char* op = "activation_backward";
  detail::check_arguments(op, {{"x", &x}, {"dy", &dy}});
  check_activation(op, f);
  check_like(op, "dy", dy, x);
  const auto backward =
      detail::kernel(op, x.device(), &KernelTable::activation_backward, x.dtype());
  ActivationGradients out{in_place_of(dy), {}};
  const Tensor rows = detail::as_rows(op, x), d_rows = detail::as_rows(op, dy);
  if (want_bias)
    out.d_bias = empty({x.size(-1)}, x.dtype(), x.device());
  if (x.numel() == 0) {
    fill_all({&out.d_bias}, 0);
    return out;
  }
  const detail::Scratch scratch(
      x.device(),
      detail::workspace_bytes(
          kernel_table(x.device()).column_sum_workspace, rows.view(), threads(x.device())));
  detail::launch(op, x.device(), [&](StreamHandle s) {
    backward(f,
             rows.view(),
             d_rows.view(),
             out.dx.reshape(rows.shape()).view(),
             detail::view_or_null(out.d_bias),
             scratch,
             s);
  });
  return out;
}

Tensor column_sum(const Tensor& dy) {
  detail::check_arguments("column_sum", {{"dy", &dy}});
  const auto sum = detail::kernel("column_sum", dy.device(), &KernelTable::column_sum, dy.dtype());
  const Tensor rows = detail::as_rows("column_sum", dy);
  Tensor out = empty({dy.size(-1)}, dy.dtype(), dy.device());
  if (dy.numel() == 0) {
    fill_(out, 0);
    return out;
  }
  const detail::Scratch scratch(
      dy.device(),
      detail::workspace_bytes(
          kernel_table(dy.device()).column_sum_workspace, rows.view(), threads(dy.device())));
  detail::launch(
      "column_sum", dy.device(), [&](StreamHandle s) { sum(rows.view(), out.view(), scratch, s); });
  return out;
}

Tensor rope(const Tensor& x, const Tensor& positions, const RopeOptions& options, bool inverse) {
  detail::check_arguments("rope", {{"x", &x}, {"the positions", &positions}});
  check(x.rank() == 4 && x.size(3) % 2 == 0,
        "rope: (b, t, h, d) with even d is needed: {}",
        x.shape());
  detail::check_integers("rope", "positions", positions);
  check(positions.shape() == Shape{x.size(1)},
        "rope: positions {} for x {}",
        positions.shape(),
        x.shape());
  check_rope(options);
  const auto rope = detail::kernel("rope", x.device(), &KernelTable::rope, x.dtype());
  const Tensor in = x.strides()[-1] == 1 ? x : contiguous(x),
               at = contiguous(cast(positions, DType::i64));
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  if (y.numel() == 0)
    return y;
  detail::launch("rope", x.device(), [&](StreamHandle s) {
    rope(in.view(), at.view(), options, inverse, y.view(), s);
  });
  return y;
}

Tensor dropout(const Tensor& x, float probability, const RandomKey& key) {
  detail::check_arguments("dropout", {{"the input", &x}});
  check(0 <= probability && probability < 1,
        "dropout: a probability in [0, 1) is needed: {}",
        probability);
  const auto dropout = detail::kernel("dropout", x.device(), &KernelTable::dropout, x.dtype());
  const Tensor dense = contiguous(x);
  Tensor y = empty(x.shape(), x.dtype(), x.device());
  if (y.numel() == 0)
    return y;
  detail::launch("dropout", x.device(), [&](StreamHandle s) {
    dropout(dense.view(), y.view(), probability, key, s);
  });
  return y;
}

Tensor embedding(const Tensor& table, const Tensor& ids) {
  detail::check_arguments("embedding", {{"the table", &table}, {"the ids", &ids}});
  check(table.rank() == 2 && table.contiguous(),
        "embedding: a dense (v, c) table is needed: {}",
        table.shape());
  const auto embed =
      detail::kernel("embedding", table.device(), &KernelTable::embedding, table.dtype());
  detail::check_indices("embedding", "id", ids, table.size(0));
  const Tensor flat = contiguous(ids).flatten();
  Shape shape = ids.shape();
  shape.push_back(table.size(1));
  Tensor out = empty(shape, table.dtype(), table.device());
  if (out.numel() == 0)
    return out;
  detail::launch("embedding", table.device(), [&](StreamHandle s) {
    embed(table.view(), flat.view(), out.reshape({flat.size(0), table.size(1)}).view(), s);
  });
  return out;
}

void embedding_backward_(const Tensor& d_table,
                         const Tensor& ids,
                         const Tensor& dy,
                         bool accumulate) {
  constexpr const char* op = "embedding_backward";
  detail::check_arguments(op, {{"d_table", &d_table}, {"the ids", &ids}, {"dy", &dy}});
  check(d_table.rank() == 2 && d_table.contiguous(),
        "embedding_backward: a dense (v, c) table is needed: {}",
        d_table.shape());
  const auto backward =
      detail::kernel(op, d_table.device(), &KernelTable::embedding_backward, d_table.dtype());
  check(ids.numel() < int64_t{1} << 31,
        "{}: {} ids at once, at most 2^31 - 1: split the batch",
        op,
        ids.numel());
  detail::check_indices(op, "id", ids, d_table.size(0));
  const Tensor flat = contiguous(ids).flatten(), rows = detail::as_rows(op, dy);
  check(rows.shape() == Shape({flat.size(0), d_table.size(1)}) && rows.dtype() == d_table.dtype(),
        "embedding_backward: dy {} {} for {} ids and table {} {}",
        name_of(dy.dtype()),
        dy.shape(),
        flat.size(0),
        name_of(d_table.dtype()),
        d_table.shape());
  if (flat.numel() == 0) {
    if (!accumulate)
      fill_(d_table, 0);
    return;
  }
  const Device device = d_table.device();
  const detail::Scratch scratch(
      device,
      detail::workspace_bytes(kernel_table(device).embedding_backward_workspace,
                              flat.view(),
                              d_table.view(),
                              threads(device)));
  if (d_table.numel() > 0) {
    detail::launch(op, device, [&](StreamHandle s) {
      backward(flat.view(), rows.view(), d_table.view(), accumulate, scratch, s);
    });
  }
  d_table.bump_version();
}

}  // namespace sg
