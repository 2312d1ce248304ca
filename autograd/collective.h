// Collectives inside the graph: what layers that are split over ranks (tensor, sequence and
// vocabulary parallelism) are made of. Such layers see a Collective only; dist::comm makes one of a
// group of ranks (dist/comm/collective.h).
//
// Gradients. The loss that is differentiated is the sum of all ranks' losses, so each collective's
// gradient is its transpose, as in torch.distributed.nn.functional:
//
//   forward          backward
//   all_reduce       all_reduce
//   all_gather       reduce_scatter
//   reduce_scatter   all_gather
//
// Where one loss is computed alike on every rank, it is one loss and not `size` of them.
// Megatron-LM (Shoeybi et al., 2019, §3) puts f where ranks begin to compute different parts and g
// where these are added up again; between them everything is a rank's own, outside of them values
// and gradients are the same on every rank:
//
//   copy_to_ranks       f   identity     all_reduce
//   reduce_from_ranks   g   all_reduce   identity
#pragma once
#include <string>

#include "autograd/variable.h"

namespace sg {

// A group of ranks, seen from one of them. All ranks make the same calls in the same order, under
// the same names, with tensors of the same shape and dtype; the result is there on return, with the
// same bits on every rank that gets it.
class Collective {
 public:
  virtual ~Collective() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  virtual Tensor all_reduce(const std::string& call, const Tensor& x) = 0;  // the sum over ranks
  virtual Tensor all_gather(const std::string& call,
                            const Tensor& x) = 0;  // (n,…) → (size·n,…), in rank order
  virtual Tensor reduce_scatter(const std::string& call,
                                const Tensor& x) = 0;  // (size·n,…) → (n,…): rank's part
};

// `group` must live until the graph has gone. The gradient's call is named `call`.backward.
Variable all_reduce(const Variable& x, Collective& group, const std::string& call);
Variable all_gather(const Variable& x, Collective& group, const std::string& call);
Variable reduce_scatter(const Variable& x, Collective& group, const std::string& call);
Variable copy_to_ranks(const Variable& x, Collective& group, const std::string& call);
Variable reduce_from_ranks(const Variable& x, Collective& group, const std::string& call);

}  // namespace sg
