// The folder of a run: one process writes into it, and only what its run made is ever removed.
#pragma once
#include <cstdint>
#include <optional>
#include <string>

#include "models/run/options.h"

namespace sg::models {

// Held for a process's lifetime by DIR/run.lock, which names host and process. The kernel gives it
// up with the process, however that ends; the file of one that was killed on this host is taken
// over.
class RunFolder {
 public:
  // Makes the folder where it is missing. Errors: usage where it is no folder, or another process
  // holds it; io.
  explicit RunFolder(const std::string& path);
  ~RunFolder();
  RunFolder(const RunFolder&) = delete;
  RunFolder& operator=(const RunFolder&) = delete;

  const std::string& path() const { return path_; }  // links followed

 private:
  bool lock();

  std::string path_, file_;
  int fd_ = -1;
};

// Steps of the run that a folder holds, by its newest checkpoint; none: there is none that could go
// on.
std::optional<int64_t> steps_held(const std::string& folder);
// Removes what runs leave in a folder: checkpoints, `latest` and metrics.jsonl.
void remove_run(const std::string& folder);

// A folder's real name, where it is there.
std::string followed(const std::string& path);

// What can be known before any work: whether the file that `option` names could be written. A usage
// error where a run keeps something of its own under that name; with `outside` anywhere in a run's
// folder.
void check_output_option(const std::string& option,
                         const std::string& path,
                         const std::string& out,
                         bool outside);
// A usage error for a path that lies in the folder of a run, `out` or another.
void check_outside_runs(const std::string& option, const std::string& path, const std::string& out);
void check_reports(const TrainOptions& options);  // --receipt and --trace, unless they are empty

}  // namespace sg::models
