#include "autograd/graph.h"
#include "autograd/ops.h"
#include "autograd/target.h"

namespace sg {
namespace {

// What a norm keeps: its input (the sum, where a residual was added), its gain and its statistics.
struct NormSaved {
  Saved x, gain;
  Tensor mean, rstd;  // mean undefined: rmsnorm
  bool bias;

  NormGradients backward(Tensor dy, const Tensor& d_sum) const {
    if (mean.defined())
      return layernorm_backward(std::move(dy), x.tensor(), gain.tensor(), mean, rstd, bias, d_sum);
    return rmsnorm_backward(std::move(dy), x.tensor(), gain.tensor(), rstd, d_sum);
  }
};

Tensor tensor_or_none(const Variable& x) {
  return x.defined() ? x.tensor() : Tensor();
}

struct NormOptions {
  const char* op;
  float eps;
  bool centred;  // layernorm
};

Normalised normalise(const NormOptions& o,
                     const Tensor& x,
                     const Tensor& gain,
                     const Tensor& bias,
                     const Tensor& residual = {}) {
  return o.centred ? layernorm(x, gain, bias, o.eps, residual) : rmsnorm(x, gain, o.eps, residual);
}

// y is made again of what the norm keeps.
void remake_norm(Variable& y, const NormOptions& o, const NormSaved& kept, const Variable& bias) {
  if (!remakes())
    return;
  set_remake(y, [o, x = kept.x, gain = kept.gain, bias = Saved(bias)] {
    return normalise(o, x.tensor(), gain.tensor(), bias.tensor()).y;
  });
}

Variable norm(const NormOptions& o, const Variable& x, const Variable& gain, const Variable& bias) {
  check_defined(o.op, {{"x", &x}, {"the gain", &gain}});
  const Normalised n = normalise(o, x.tensor(), gain.tensor(), tensor_or_none(bias));
  const NormSaved kept{Saved(x), Saved(gain), n.mean, n.rstd, bias.defined()};
  Variable y = record(o.op, n.y, {x, gain, bias}, [kept](Tensor g) -> Gradients {
    NormGradients d = kept.backward(std::move(g), {});
    return {std::move(d.dx), std::move(d.d_gain), std::move(d.d_bias)};
  });
  remake_norm(y, o, kept, bias);
  return y;
}

NormedSum norm_of_sum(const NormOptions& o,
                      const Variable& x,
                      const Variable& residual,
                      const Variable& gain,
                      const Variable& bias) {
  check_defined(o.op, {{"x", &x}, {"the gain", &gain}});
  const Variable inputs[] = {x, residual, gain, bias};
  const Normalised n =
      normalise(o, x.tensor(), gain.tensor(), tensor_or_none(bias), tensor_or_none(residual));
  const Saved sum = residual.defined() ? Saved(n.sum) : Saved(x);
  const NormSaved kept{sum, Saved(gain), n.mean, n.rstd, bias.defined()};
  auto results = record_all(o.op, {n.y, n.sum}, inputs, [kept](std::span<Tensor> g) -> Gradients {
    if (!g[0].defined())
      return {g[1], g[1], {}, {}};  // only the sum was used
    NormGradients d = kept.backward(std::move(g[0]), g[1]);
    return {d.dx, d.dx, std::move(d.d_gain), std::move(d.d_bias)};
  });
  remake_norm(results[0], o, kept, bias);
  return {std::move(results[0]), std::move(results[1])};
}

}  // namespace

Variable softmax(const Variable& x) {
  check_defined("softmax", {{"the input", &x}});
  Tensor y = softmax(x.tensor());
  return record("softmax", y, {x}, [y = Saved(y)](const Tensor& g) -> Gradients {
    return {softmax_backward(y.tensor(), g)};
  });
}

Variable layernorm(const Variable& x, const Variable& gain, const Variable& bias, float eps) {
  return norm({"layernorm", eps, true}, x, gain, bias);
}

Variable rmsnorm(const Variable& x, const Variable& gain, float eps) {
  return norm({"rmsnorm", eps, false}, x, gain, {});
}

NormedSum layernorm(const Variable& x,
                    const Variable& residual,
                    const Variable& gain,
                    const Variable& bias,
                    float eps) {
  return norm_of_sum({"layernorm", eps, true}, x, residual, gain, bias);
}

NormedSum rmsnorm(const Variable& x, const Variable& residual, const Variable& gain, float eps) {
  return norm_of_sum({"rmsnorm", eps, false}, x, residual, gain, {});
}

Variable embedding(const Variable& table, const Tensor& ids) {
  check_defined("embedding", {{"the table", &table}});
  return record("embedding",
                embedding(table.tensor(), ids),
                {table},
                [table = Target(table), ids = Saved(ids)](const Tensor& g) -> Gradients {
                  return {{table.shape, table.dtype, [g, ids](const Tensor& out, bool accumulate) {
                             embedding_backward_(out, ids.tensor(), g, accumulate);
                           }}};
                });
}

Variable dropout(const Variable& x, float probability, const RandomKey& key) {
  check_defined("dropout", {{"the input", &x}});
  if (probability == 0)
    return x;
  return record(
      "dropout",
      dropout(x.tensor(), probability, key),
      {x},
      [probability, key](const Tensor& g) -> Gradients { return {dropout(g, probability, key)}; });
}

Variable rope(const Variable& x, const Tensor& positions, const RopeOptions& options) {
  check_defined("rope", {{"x", &x}});
  return record("rope",
                rope(x.tensor(), positions, options),
                {x},
                [positions = Saved(positions), options](const Tensor& g) -> Gradients {
                  return {rope(g, positions.tensor(), options, true)};
                });
}

}  // namespace sg
