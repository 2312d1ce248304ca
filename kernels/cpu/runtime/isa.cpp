#include <cpuid.h>

#include <cstdlib>
#include <string_view>

#include "kernels/table.h"

namespace sg {
namespace kernels {
namespace avx2 {
extern const KernelTable table;
}
namespace avx512 {
extern const KernelTable table;
}
}  // namespace kernels

namespace {

// Not every compiler's __builtin_cpu_supports knows the name.
bool has_f16c() {
  unsigned a, b, c = 0, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C) != 0;
}

}  // namespace

const KernelTable* cpu_kernels(const char* isa) {
  const bool avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && has_f16c();
  const bool avx512 = avx2 && __builtin_cpu_supports("avx512f") &&
                      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512vl");
  if (!isa)
    isa = std::getenv("SG_ISA");
  const std::string_view name = isa ? isa : avx512 ? "avx512" : "avx2";
  if (name == "avx512" && avx512)
    return &kernels::avx512::table;
  if (name == "avx2" && avx2)
    return &kernels::avx2::table;
  return nullptr;
}

}  // namespace sg
