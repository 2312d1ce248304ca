#include "autograd/collective.h"

#include "autograd/backward.h"

namespace sg {
namespace {

using Move = Tensor (Collective::*)(const std::string& call, const Tensor& x);

// The collective `move` of a gradient, as a backward function.
auto backward_by(Move move, Collective& group, const std::string& call) {
  return [move, &group, name = call + ".backward"](const Tensor& g) -> Gradients {
    return {(group.*move)(name, g)};
  };
}

}  // namespace

Variable all_reduce(const Variable& x, Collective& group, const std::string& call) {
  Tensor sum = group.all_reduce(call, x.tensor());
  return record(
      "all_reduce", std::move(sum), {x}, backward_by(&Collective::all_reduce, group, call));
}

Variable all_gather(const Variable& x, Collective& group, const std::string& call) {
  Tensor all = group.all_gather(call, x.tensor());
  return record(
      "all_gather", std::move(all), {x}, backward_by(&Collective::reduce_scatter, group, call));
}

Variable reduce_scatter(const Variable& x, Collective& group, const std::string& call) {
  Tensor part = group.reduce_scatter(call, x.tensor());
  return record(
      "reduce_scatter", std::move(part), {x}, backward_by(&Collective::all_gather, group, call));
}

Variable copy_to_ranks(const Variable& x, Collective& group, const std::string& call) {
  return record(
      "copy_to_ranks", x.tensor(), {x}, backward_by(&Collective::all_reduce, group, call));
}

Variable reduce_from_ranks(const Variable& x, Collective& group, const std::string& call) {
  Tensor sum = group.all_reduce(call, x.tensor());
  return record(
      "reduce_from_ranks", std::move(sum), {x}, [](const Tensor& g) -> Gradients { return {g}; });
}

}  // namespace sg
