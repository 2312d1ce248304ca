// How core checks its arguments and calls a kernel: on meta never, else with the handle of the
// stream that this thread works for. Internal to core/ops_*.cpp.
#pragma once
#include <initializer_list>
#include <type_traits>

#include "core/device.h"
#include "core/tensor.h"
#include "core/trace.h"

namespace sg::detail {

// An argument of an op, and what messages call it. A literal, since arguments are checked in every
// call.
struct Argument {
  const char* name;
  const Tensor* tensor;
};
// Each of `needed` is defined, those of `optional` may be; all lie on one device. To be called
// before anything else.
void check_arguments(const char* op,
                     std::initializer_list<Argument> needed,
                     std::initializer_list<Argument> optional = {});
void check_same_dtype(const char* op, std::initializer_list<const Tensor*> tensors);
void check_integers(const char* op, const char* what, const Tensor& x);
// No element of x lies on another, as a broadcast's do: an op may write into it.
void check_writable(const char* op, const Tensor& x);
// Each of x, i32 or i64, lies in [0, size); where `minus_one` is given, -1 passes too and means
// what it says. A cpu device looks at once; a backend for which looking costs a wait leaves the
// position in its memory (find_outside) until the step's results are read. On meta there are no
// values.
void check_indices(const char* op,
                   const char* what,
                   const Tensor& x,
                   int64_t size,
                   const char* minus_one = nullptr);
// The two views of one storage have bytes in common.
bool overlap(const Tensor& a, const Tensor& b);

// The device's entry for a dtype, or the error that names op, backend and dtype: on meta too, so
// that a dry run is refused what the run would be.
template <class F>
F* kernel(const char* op, Device device, ByDType<F> KernelTable::*entry, DType dtype) {
  const KernelTable& table = kernel_table(device);
  F* found = (table.*entry)[dtype];
  check(found != nullptr, "{}: no {} kernel for {}", op, table.name, name_of(dtype));
  return found;
}
template <class F>
F* kernel(const char* op, Device device, F* KernelTable::*entry) {
  const KernelTable& table = kernel_table(device);
  check(table.*entry != nullptr, "{}: no {} kernel", op, table.name);
  return table.*entry;
}

// Calls body(handle) under a trace span, unless the device is meta.
template <class F>
void launch(const char* op, Device device, F&& body) {
  if (device.type == DeviceType::meta)
    return;
  trace::Span span(op);
  body(stream_handle(device));
}

// What an entry of the table asks for; nothing where the backend lacks it, since `kernel` says so.
template <class... Args>
size_t workspace_bytes(size_t (*entry)(Args...), std::type_identity_t<Args>... args) {
  return entry ? entry(args...) : 0;
}

// Scratch memory for one call, booked as workspace: on meta too, so that a dry run's books hold.
class Scratch {
 public:
  Scratch(Device device, size_t bytes);
  operator Workspace() const;

 private:
  Tensor buffer_;
};

// (…, n) → (rows, n), dense.
Tensor as_rows(const char* op, const Tensor& x);
View view_or_null(const Tensor& x);  // null data for an undefined tensor
DType statistics_dtype(DType x);     // f64 for f64, else f32
Shape without_last(const Shape& shape);

}  // namespace sg::detail
