#include <vector>

#include "core/launch.h"
#include "core/ops.h"

namespace sg {
namespace {

// Every array is dense, one-dimensional and as long as the master; moments are f32, the parameter
// copy 16-bit.
void check_update(const char* op,
                  const Tensor& master,
                  std::initializer_list<const Tensor*> moments,
                  const Tensor& gradient,
                  const Tensor& parameter) {
  detail::check_arguments(op,
                          {{"the master", &master}, {"the gradient", &gradient}},
                          {{"the 16-bit copy", &parameter}});
  for (const Tensor* moment : moments)
    detail::check_arguments(op, {{"the master", &master}}, {{"a moment", moment}});
  check(master.dtype() == DType::f32 && master.rank() == 1 && master.contiguous(),
        "{}: the master must be dense f32 (n): {} {}",
        op,
        name_of(master.dtype()),
        master.shape());
  for (const Tensor* moment : moments) {
    check(!moment->defined() || (moment->dtype() == DType::f32 &&
                                 moment->shape() == master.shape() && moment->contiguous()),
          "{}: moment {} {} for master {}",
          op,
          name_of(moment->dtype()),
          moment->shape(),
          master.shape());
  }
  check(gradient.shape() == master.shape() && gradient.contiguous(),
        "{}: gradient {} for master {}",
        op,
        gradient.shape(),
        master.shape());
  check(!parameter.defined() || (is_16bit(parameter.dtype()) &&
                                 parameter.shape() == master.shape() && parameter.contiguous()),
        "{}: the 16-bit copy is {} for master {}",
        op,
        parameter.shape(),
        master.shape());
}

void changed(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* t : tensors) {
    if (t->defined())
      t->bump_version();
  }
}

}  // namespace

void adam_(const Tensor& master,
           const Tensor& gradient,
           const Tensor& moment1,
           const Tensor& moment2,
           const Tensor& parameter,
           const AdamOptions& options) {
  check_update("adam", master, {&moment1, &moment2}, gradient, parameter);
  detail::check_arguments("adam", {{"moment 1", &moment1}, {"moment 2", &moment2}});
  const auto update = detail::kernel("adam", master.device(), &KernelTable::adam, gradient.dtype());
  detail::launch("adam", master.device(), [&](StreamHandle s) {
    update(master.view(),
           gradient.view(),
           moment1.view(),
           moment2.view(),
           detail::view_or_null(parameter),
           options,
           s);
  });
  changed({&master, &moment1, &moment2, &parameter});
}

void sgd_(const Tensor& master,
          const Tensor& gradient,
          const Tensor& momentum,
          const Tensor& parameter,
          const SgdOptions& options) {
  check_update("sgd", master, {&momentum}, gradient, parameter);
  check(momentum.defined() || options.momentum == 0,
        "sgd: the array of a momentum of {} is undefined",
        options.momentum);
  const auto update = detail::kernel("sgd", master.device(), &KernelTable::sgd, gradient.dtype());
  detail::launch("sgd", master.device(), [&](StreamHandle s) {
    update(master.view(),
           gradient.view(),
           detail::view_or_null(momentum),
           detail::view_or_null(parameter),
           options,
           s);
  });
  changed({&master, &momentum, &parameter});
}

void lion_(const Tensor& master,
           const Tensor& gradient,
           const Tensor& momentum,
           const Tensor& parameter,
           const LionOptions& options) {
  check_update("lion", master, {&momentum}, gradient, parameter);
  detail::check_arguments("lion", {{"the momentum", &momentum}});
  const auto update = detail::kernel("lion", master.device(), &KernelTable::lion, gradient.dtype());
  detail::launch("lion", master.device(), [&](StreamHandle s) {
    update(master.view(),
           gradient.view(),
           momentum.view(),
           detail::view_or_null(parameter),
           options,
           s);
  });
  changed({&master, &momentum, &parameter});
}

Tensor sum_squares(const Tensor& x) {
  detail::check_arguments("sum_squares", {{"the input", &x}});
  check(x.rank() == 1 && x.contiguous(),
        "sum_squares: a dense one-dimensional tensor is needed: {}",
        x.shape());
  const auto sum = detail::kernel("sum_squares", x.device(), &KernelTable::sum_squares, x.dtype());
  Tensor out = empty({(x.numel() + norm_chunk - 1) / norm_chunk}, DType::f64, x.device());
  detail::launch("sum_squares", x.device(), [&](StreamHandle s) { sum(x.view(), out.view(), s); });
  return out;
}

Tensor tree_sum(std::span<const Tensor> inputs, float scale, DType dtype) {
  check(!inputs.empty(), "tree_sum: no tensors");
  std::vector<View> views;
  for (const Tensor& x : inputs) {
    detail::check_arguments("tree_sum", {{"an input", &x}, {"another", &inputs[0]}});
    check(x.shape() == inputs[0].shape() && x.dtype() == inputs[0].dtype() && x.contiguous(),
          "tree_sum: {} {} beside {} {}",
          name_of(x.dtype()),
          x.shape(),
          name_of(inputs[0].dtype()),
          inputs[0].shape());
    views.push_back(x.view());
  }
  check(dtype == inputs[0].dtype() || (dtype == DType::f32 && is_16bit(inputs[0].dtype())),
        "tree_sum: {} from {}",
        name_of(dtype),
        name_of(inputs[0].dtype()));
  const auto sum =
      detail::kernel("tree_sum", inputs[0].device(), &KernelTable::tree_sum, inputs[0].dtype());
  Tensor out = empty(inputs[0].shape(), dtype, inputs[0].device());
  if (out.numel() == 0)
    return out;
  detail::launch("tree_sum", out.device(), [&](StreamHandle s) {
    const View result = out.view();
    sum(views.data(), static_cast<int>(views.size()), &result, 1, scale, {}, s);
  });
  return out;
}

Tensor find_nonfinite(const Tensor& x) {
  detail::check_arguments("find_nonfinite", {{"x", &x}});
  check(x.contiguous(), "find_nonfinite: a dense tensor is needed: strides {}", x.strides());
  const auto find =
      detail::kernel("find_nonfinite", x.device(), &KernelTable::find_nonfinite, x.dtype());
  Tensor first = empty({1}, DType::i64, x.device());
  detail::launch("find_nonfinite", x.device(), [&](StreamHandle s) {
    find(flat_range(x.view(), 0, x.numel()), first.view(), s);
  });
  return first;
}

double tree_sum(std::span<const double> values) {
  if (values.empty())
    return 0;
  std::vector<double> level(values.begin(), values.end());
  while (level.size() > 1) {
    size_t kept = 0;
    for (size_t i = 0; i + 1 < level.size(); i += 2)
      level[kept++] = level[i] + level[i + 1];
    if (level.size() % 2)
      level[kept++] = level.back();
    level.resize(kept);
  }
  return level[0];
}

}  // namespace sg
