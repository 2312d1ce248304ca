// What plans of a family's models are made with (dist/plan.h).
#pragma once
#include <string>

#include "dist/plan.h"
#include "models/run/commands.h"

namespace sg::models {

// a100, h100, h200 (the makers' dense figures), or `this`: measured here. Usage error otherwise.
dist::Hardware hardware(const std::string& name, DType precision);

// `options` are resolved; of them sizes and micro-batch count.
dist::MakeDryModel dry_model(const Family& family, const PlanOptions& options);

}  // namespace sg::models
