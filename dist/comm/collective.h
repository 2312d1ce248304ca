// A group of ranks as autograd's collectives see it (autograd/collective.h).
#pragma once
#include <string>

#include "autograd/collective.h"
#include "dist/comm/comm.h"

namespace sg::dist {

// Sums by `ordered`, so their bits are the numerics' rule 3; every call is booked in `phase` under
// the operation asked for. `comm` must outlive it. Errors are Comm's; a usage error too for a
// tensor that ranks can't share evenly.
class CommCollective final : public Collective {
 public:
  CommCollective(Comm& comm, Phase phase) : comm_(comm), phase_(phase) {}

  int rank() const override { return comm_.rank(); }
  int size() const override { return comm_.size(); }
  Tensor all_reduce(const std::string& call, const Tensor& x) override;
  Tensor all_gather(const std::string& call, const Tensor& x) override;
  Tensor reduce_scatter(const std::string& call, const Tensor& x) override;

 private:
  Comm& comm_;
  const Phase phase_;
};

}  // namespace sg::dist
