#include "tests/cuda_sim/faults.h"

#include <dlfcn.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <utility>

#include "tests/cuda_sim/software_device.h"

namespace simt {
namespace {

constexpr size_t max_faults = 64;  // a race in a loop would otherwise fill the log
std::vector<std::string> faults;

}  // namespace

void report_fault(std::string line) {
  if (faults.size() < max_faults)
    faults.push_back(std::move(line));
}

bool faulted() {
  return !faults.empty();
}

std::vector<std::string> take_faults() {
  return std::exchange(faults, {});
}

std::string source_line(const void* instruction) {
  Dl_info module{};
  dladdr(instruction, &module);
  char buffer[4096] = {};
  // The call's return address lies behind the call.
  const auto offset =
      reinterpret_cast<uintptr_t>(instruction) - reinterpret_cast<uintptr_t>(module.dli_fbase) - 1;
  std::snprintf(buffer,
                sizeof buffer,
                "addr2line -s -e /proc/%d/exe %zx 2>/dev/null",
                int(getpid()),
                size_t(offset));
  std::string line;
  if (FILE* pipe = popen(buffer, "r")) {
    if (fgets(buffer, sizeof buffer, pipe))
      line = buffer;
    pclose(pipe);
  }
  line = line.substr(0, line.find_first_of(" \n"));
  if (!line.empty() && line[0] != '?')
    return line;
  std::snprintf(buffer, sizeof buffer, "%p", instruction);
  return buffer;
}

}  // namespace simt
