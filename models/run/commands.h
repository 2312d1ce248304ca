// The subcommands of a family's program.
#pragma once
#include "dist/comm/comm.h"
#include "models/family.h"
#include "models/run/options.h"

namespace sg::models {

// The subcommands, once per rank. Options are resolved by then.
void train(const Family& family, const TrainOptions& options, dist::Comm& comm);
void evaluate(const Family& family, const EvalOptions& options, dist::Comm& comm);
void generate(const Family& family, const GenerateOptions& options, dist::Comm& comm);
void compare(const Family& family, const CompareOptions& options, dist::Comm& comm);
void bench(const Family& family, const BenchOptions& options, dist::Comm& comm);
void export_model(const Family& family, const ExportOptions& options);  // needs no group
void import_model(const Family& family, const ImportOptions& options);  // needs no group
void plan(const Family& family, const PlanOptions& options);            // needs no group

}  // namespace sg::models
