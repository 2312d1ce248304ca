// Compares what backward computes with central differences, in f64.
#pragma once
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "autograd/variable.h"

namespace sg {

struct GradcheckOptions {
  double step = 1e-5;       // times max(1, |x|)
  double tolerance = 1e-7;  // times max(1, |difference quotient|)
};
struct GradcheckResult {
  bool ok = true;
  std::string message;  // the first wrong element: "input 1, element (0, 3): 0.25 by backward, 0.5
                        // by differences"
  explicit operator bool() const { return ok; }
};
// `f` is called often and must be a function of its inputs alone; its result may have any shape,
// its elements are added with weights of their own. The inputs are dense f64 and are left as they
// were.
GradcheckResult gradcheck(const std::function<Variable(std::span<const Variable>)>& f,
                          const std::vector<Tensor>& inputs,
                          const GradcheckOptions& options = {});

}  // namespace sg
