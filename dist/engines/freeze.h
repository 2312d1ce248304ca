// Parameters that a run doesn't train, by the patterns of Options::freeze.
#pragma once
#include <string>
#include <vector>

#include "autograd/hooks.h"

namespace sg::dist {

// `patterns` by commas, each a name with * for any text, ? for any character, [0-3] for one of
// several. Usage error for one that names no parameter.
void check_patterns(const std::vector<Unit>& units, const std::string& patterns);
// Takes requires_grad from all parameters that one of them names, as a program may itself before
// initialize; it isn't given back.
void freeze(const std::vector<Unit>& units, const std::string& patterns);

}  // namespace sg::dist
