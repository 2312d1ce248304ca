// How core calls a kernel: on meta never, else with the compute stream's handle. Internal to core/ops_*.cpp.
#pragma once
#include <initializer_list>
#include <type_traits>

#include "core/device.h"
#include "core/tensor.h"
#include "core/trace.h"

namespace sg::detail {

// Calls body(table, handle) under a trace span, unless the device is meta.
template <class F>
void launch(const char* op, Device device, F&& body) {
  if (device.type == DeviceType::meta) return;
  trace::Span span(op);
  body(kernel_table(device), compute_handle(device));
}

// The entry for a dtype, or the error that names op, backend and dtype.
template <class F>
F* require(const ByDType<F>& entry, const char* op, const KernelTable& table, DType dtype) {
  F* found = entry[dtype];
  check(found != nullptr, "{}: no {} kernel for {}", op, table.name, name_of(dtype));
  return found;
}

// What an entry of the table asks for; nothing where the backend lacks it, since `require` will say so.
template <class... Args>
size_t workspace_bytes(size_t (*entry)(Args...), std::type_identity_t<Args>... args) {
  return entry ? entry(args...) : 0;
}

// All on one device; undefined tensors are passed over.
void check_device(const char* op, std::initializer_list<const Tensor*> tensors);
void check_same_dtype(const char* op, std::initializer_list<const Tensor*> tensors);
void check_integers(const char* op, const char* what, const Tensor& x);

// Scratch memory for one call, booked as workspace: on meta too, so that a dry run's books hold.
class Scratch {
 public:
  Scratch(Device device, size_t bytes);
  operator Workspace() const;

 private:
  Tensor buffer_;
};

// (…, n) → (rows, n), dense.
Tensor as_rows(const Tensor& x);
View view_or_null(const Tensor& x);  // null data for an undefined tensor
DType statistics_dtype(DType x);     // f64 for f64, else f32
Shape without_last(const Shape& shape);

}  // namespace sg::detail
