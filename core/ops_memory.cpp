#include <cstring>

#include "core/launch.h"
#include "core/ops.h"

namespace sg {
namespace {

bool shares_address_space(Device a, Device b) {
  const auto host_memory = [](Device d) { return d.type == DeviceType::cpu || d.type == DeviceType::host; };
  return a == b || (host_memory(a) && host_memory(b)) || a.type == DeviceType::meta || b.type == DeviceType::meta;
}

}  // namespace

void fill_(const Tensor& x, double value) {
  detail::launch("fill", x.device(), [&](const KernelTable& k, StreamHandle s) { k.fill(x.view(), value, s); });
  x.bump_version();
}

void copy_(const Tensor& out, const Tensor& in) {
  check(shares_address_space(out.device(), in.device()), "copy: no way from {} to {}", in.device(), out.device());
  const Tensor source = in.shape() == out.shape() ? in : in.expand(out.shape());
  const Device runs_on =
      in.device().type == DeviceType::meta || in.device().type == DeviceType::cpu ? in.device() : out.device();
  if (out.device().type != DeviceType::meta) {
    detail::launch("copy", runs_on,
                   [&](const KernelTable& k, StreamHandle s) { k.copy(source.view(), out.view(), s); });
  }
  out.bump_version();
}

Tensor clone(const Tensor& x) {
  Tensor out = empty_like(x);
  copy_(out, x);
  return out;
}

Tensor contiguous(const Tensor& x) { return x.contiguous() ? x : clone(x); }

Tensor cast(const Tensor& x, DType dtype) {
  if (x.dtype() == dtype) return x;
  Tensor out = empty(x.shape(), dtype, x.device());
  copy_(out, x);
  return out;
}

Tensor to(const Tensor& x, Device device) {
  if (x.device() == device) return x;
  Tensor out = empty(x.shape(), x.dtype(), device);
  copy_(out, x);
  return out;
}

Tensor concatenate(std::span<const Tensor> parts, int d) {
  check(!parts.empty(), "concatenate: no tensors");
  Shape shape = parts[0].shape();
  d = shape.wrap(d);
  int64_t size = 0;
  for (const Tensor& part : parts) {
    Shape expected = shape;
    if (part.rank() == shape.rank()) expected.set(d, part.size(d));
    check(part.shape() == expected && part.dtype() == parts[0].dtype(),
          "concatenate: {} {} after {} {} along dimension {}", name_of(part.dtype()), part.shape(),
          name_of(parts[0].dtype()), parts[0].shape(), d);
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
  check(indices.rank() == 1, "gather_rows: indices must be one-dimensional: {}", indices.shape());
  return embedding(x, indices);
}

Tensor random_uniform(const Shape& shape, const RandomKey& key, float low, float high) {
  Tensor out = empty(shape);
  detail::launch("random_uniform", out.device(),
                 [&](const KernelTable& k, StreamHandle s) { k.random_uniform(out.view(), key, low, high, s); });
  return out;
}

Tensor random_normal(const Shape& shape, const RandomKey& key, float mean, float deviation) {
  Tensor out = empty(shape);
  detail::launch("random_normal", out.device(),
                 [&](const KernelTable& k, StreamHandle s) { k.random_normal(out.view(), key, mean, deviation, s); });
  return out;
}

}  // namespace sg
