// A launcher and the ranks that it started, watched from outside.
#pragma once
#include <sys/types.h>

#include <string>
#include <vector>

#include "tests/core/temporary_folder.h"

namespace sg::testing {

struct JobResult {
  int status = -1;  // of the launcher: exit code, or −signal
  double seconds = 0;
  std::string output;  // of all ranks, stdout and stderr
  bool says(const std::string& text) const { return output.find(text) != std::string::npos; }
};

class Job {
 public:
  explicit Job(const std::string& command);  // for the shell, which it replaces
  ~Job();                                    // ends whatever is left of it
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  pid_t rank(int number) const;   // its process, once it runs; −1: not within a minute
  void signal(int number) const;  // to the launcher
  bool sees(const std::string& path)
      const;  // waits until the file is there; false: the launcher ended before
  JobResult wait(double seconds = 120);  // a launcher that runs for longer is killed: status −9
  std::vector<pid_t> left(
      double patience) const;  // processes of the job that still live after so many seconds

 private:
  std::vector<pid_t> processes() const;

  std::string mark_;  // in the environment of each of its processes
  test::TemporaryFolder folder_;
  pid_t launcher_ = -1;
  bool waited_ = false;
};

}  // namespace sg::testing
