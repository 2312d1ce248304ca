#include <cmath>

#include "core/launch.h"
#include "core/ops.h"

namespace sg {
namespace {

bool broadcasts_to(const Shape& from, const Shape& to) {
  if (from.rank() > to.rank())
    return false;
  for (int d = 1; d <= from.rank(); ++d) {
    if (from[-d] != to[-d] && from[-d] != 1)
      return false;
  }
  return true;
}

bool same_view(const Tensor& a, const Tensor& b) {
  return a.storage() == b.storage() && a.offset() == b.offset() && a.dtype() == b.dtype() &&
         a.shape() == b.shape() && a.strides() == b.strides();
}

// What an op reads while it writes `out`: x itself, or a copy where the two overlap.
Tensor apart_from(const Tensor& out, const Tensor& x) {
  return detail::overlap(out, x) ? clone(x) : x;
}

}  // namespace

void fill_(const Tensor& x, double value) {
  detail::check_arguments("fill", {{"the output", &x}});
  const auto fill = detail::kernel("fill", x.device(), &KernelTable::fill);
  if (x.numel() > 0)
    detail::launch("fill", x.device(), [&](StreamHandle s) { fill(x.view(), value, s); });
  x.bump_version();
}

void copy_(const Tensor& out, const Tensor& in) {
  detail::check_arguments("copy", {{"the output", &out}});
  detail::check_arguments("copy", {{"the input", &in}});
  check(in.device().type != DeviceType::meta || out.device().type == DeviceType::meta,
        "copy: {} holds no values that could go to {}",
        in.device(),
        out.device());
  // the device that computes before memory beside it
  const Device runs_on = in.device().type == DeviceType::cpu ? in.device() : out.device();
  Backend& runner = backend(runs_on);
  const bool backed = backend(out.device()).backed();
  check(!backed || (runner.reaches(in.device()) && runner.reaches(out.device())),
        "copy: no way from {} to {}",
        in.device(),
        out.device());
  check(broadcasts_to(in.shape(), out.shape()), "copy: {} into {}", in.shape(), out.shape());
  detail::check_writable("copy", out);
  const auto copy = detail::kernel("copy", runs_on, &KernelTable::copy);
  if (backed && out.numel() > 0 && !same_view(out, in)) {
    const Tensor source = apart_from(out, in).expand(out.shape());
    const bool bytes = in.device() != out.device() && in.dtype() == out.dtype() &&
                       source.contiguous() && out.contiguous();
    detail::launch("copy", runs_on, [&](StreamHandle s) {
      if (bytes)
        runner.copy(out.view().data, source.view().data, out.bytes(), s);
      else
        copy(source.view(), out.view(), s);
    });
  }
  out.bump_version();
}

Tensor clone(const Tensor& x) {
  detail::check_arguments("clone", {{"the input", &x}});
  Tensor out = empty_like(x);
  copy_(out, x);
  return out;
}

Tensor contiguous(const Tensor& x) {
  return x.contiguous() ? x : clone(x);
}

Tensor cast(const Tensor& x, DType dtype) {
  detail::check_arguments("cast", {{"the input", &x}});
  if (x.dtype() == dtype)
    return x;
  Tensor out = empty(x.shape(), dtype, x.device());
  copy_(out, x);
  return out;
}

Tensor to(const Tensor& x, Device device) {
  detail::check_arguments("to", {{"the input", &x}});
  if (x.device() == device)
    return x;
  Tensor out = empty(x.shape(), x.dtype(), device);
  copy_(out, x);
  return out;
}

Tensor concatenate(std::span<const Tensor> parts, int d) {
  check(!parts.empty(), "concatenate: no tensors");
  for (const Tensor& part : parts)
    detail::check_arguments("concatenate", {{"a part", &part}, {"another", &parts[0]}});
  Shape shape = parts[0].shape();
  d = shape.wrap(d);
  int64_t size = 0;
  for (const Tensor& part : parts) {
    Shape expected = shape;
    if (part.rank() == shape.rank())
      expected.set(d, part.size(d));
    check(part.shape() == expected && part.dtype() == parts[0].dtype(),
          "concatenate: {} {} after {} {} along dimension {}",
          name_of(part.dtype()),
          part.shape(),
          name_of(parts[0].dtype()),
          parts[0].shape(),
          d);
    size += part.size(d);
  }
  shape.set(d, size);
  Tensor out = empty(shape, parts[0].dtype(), parts[0].device());
  int64_t begin = 0;
  for (const Tensor& part : parts) {
    copy_(out.slice(d, begin, begin + part.size(d)), part);
    begin += part.size(d);
  }
  return out;
}

Tensor gather_rows(const Tensor& x, const Tensor& indices) {
  detail::check_arguments("gather_rows", {{"x", &x}, {"indices", &indices}});
  check(x.rank() == 2 && indices.rank() == 1,
        "gather_rows: x (n, c) and indices (m) are needed: {} and {}",
        x.shape(),
        indices.shape());
  detail::check_indices("gather_rows", "index", indices, x.size(0));
  return embedding(contiguous(x), indices);
}

Tensor random_uniform(const Shape& shape, const RandomKey& key, float low, float high) {
  check(std::isfinite(low) && std::isfinite(high) && low <= high,
        "random_uniform: no range: [{}, {})",
        low,
        high);
  const auto draw =
      detail::kernel("random_uniform", current_device(), &KernelTable::random_uniform);
  Tensor out = empty(shape);
  if (out.numel() == 0)
    return out;
  detail::launch(
      "random_uniform", out.device(), [&](StreamHandle s) { draw(out.view(), key, low, high, s); });
  return out;
}

Tensor random_normal(const Shape& shape, const RandomKey& key, float mean, float deviation) {
  check(std::isfinite(mean) && std::isfinite(deviation) && deviation >= 0,
        "random_normal: mean {} and deviation {} are no distribution",
        mean,
        deviation);
  const auto draw = detail::kernel("random_normal", current_device(), &KernelTable::random_normal);
  Tensor out = empty(shape);
  if (out.numel() == 0)
    return out;
  detail::launch("random_normal", out.device(), [&](StreamHandle s) {
    draw(out.view(), key, mean, deviation, s);
  });
  return out;
}

}  // namespace sg
