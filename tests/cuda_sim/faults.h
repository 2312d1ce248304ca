// Where the parts of the software device leave what take_faults() returns.
#pragma once
#include <string>

namespace simt {

void report_fault(std::string line);
bool faulted();

// "nn.cu:34" of an instruction's address, by addr2line; the address itself where that is missing.
std::string source_line(const void* instruction);

}  // namespace simt
