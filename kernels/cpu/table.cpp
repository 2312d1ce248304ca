#include "kernels/table_of.h"

#define SG_TO_STRING(x) #x
#define SG_NAME_OF(x) SG_TO_STRING(x)

namespace sg::kernels::SG_ISA {

extern const KernelTable table;
const KernelTable table = table_of(SG_NAME_OF(SG_ISA));

}  // namespace sg::kernels::SG_ISA
