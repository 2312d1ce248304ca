// Whether a product's operands are turned as a whole before its tiles, and how that is cut.
#pragma once
#include "kernels/cpu/runtime/plan.h"

namespace sg::kernels::plan {

// Many small tiles would each copy what they need of a transposed operand, slowly; turned once, all
// read it as it lies.
SG_INLINE bool turns_first(const Product& p, const Tiles& t) {
  return p.item == 4 && p.batch == 1 && (p.a_transposed || p.b_transposed) && !t.halved &&
         t.tiles_m * t.tiles_n >= 56;
}
// Columns of a result of `columns`.
inline constexpr int64_t turned_columns = 32;
SG_INLINE Chunks turned(int64_t columns) {
  return even_chunks(columns, turned_columns, 16);
}

}  // namespace sg::kernels::plan
