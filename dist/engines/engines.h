// The engines, each in its own file; initialize() makes them by kind.
#pragma once
#include <memory>
#include <vector>

#include "dist/engines/bucket_engine.h"

namespace sg::dist {

std::unique_ptr<BucketEngine> make_ddp(std::vector<Unit> units, const Options& options, Comm& comm);
std::unique_ptr<BucketEngine> make_zero1(std::vector<Unit> units,
                                         const Options& options,
                                         Comm& comm);
std::unique_ptr<BucketEngine> make_zero2(std::vector<Unit> units,
                                         const Options& options,
                                         Comm& comm);
std::unique_ptr<BucketEngine> make_zero3(std::vector<Unit> units,
                                         const Options& options,
                                         Comm& comm);
std::unique_ptr<BucketEngine> make_dp(std::vector<Unit> units, const Options& options, Comm& comm);

}  // namespace sg::dist
