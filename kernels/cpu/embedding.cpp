// Rows of a table by id, and the gradient of the table.
#include "kernels/cpu/rows.h"
#include "kernels/entries.h"

namespace sg::kernels::SG_ISA {
namespace {

SG_INLINE int64_t id_at(const View& ids, int64_t row) {
  return ids.dtype == DType::i64 ? ids.as<int64_t>()[row] : ids.as<int32_t>()[row];
}

// The rows of each distinct id, in row order, as linked lists. A hash table finds an id's list; all
// of it lies in the workspace: heads, next and slots, int32 each, which is why core refuses 2^31
// ids and more.
struct RowLists {
  int32_t* heads;  // first row of the k-th distinct id
  int32_t* next;   // row after this one with the same id, or −1
  int64_t count = 0;

  static int64_t capacity(int64_t rows) {
    int64_t slots = 16;
    while (slots < 2 * rows)
      slots *= 2;
    return slots;
  }
  static size_t bytes(int64_t rows) {
    return sizeof(int32_t) * static_cast<size_t>(2 * rows + 2 * capacity(rows));
  }

  RowLists(const View& ids, Workspace workspace) {
    const int64_t rows = ids.numel(), slots = capacity(rows);
    heads = static_cast<int32_t*>(workspace.data);
    next = heads + rows;
    int32_t *const first = next + rows, *const last =
                                            first + slots;  // of the list whose id hashes to a slot
    for (int64_t s = 0; s < slots; ++s)
      first[s] = -1;
    for (int32_t row = 0; row < rows; ++row) {
      const int64_t id = id_at(ids, row);
      const uint64_t mask = static_cast<uint64_t>(slots - 1);
      uint64_t slot = ((static_cast<uint64_t>(id) * 0x9E3779B97F4A7C15ull) >> 32) & mask;
      while (first[slot] >= 0 && id_at(ids, first[slot]) != id)
        slot = (slot + 1) & mask;
      if (first[slot] < 0)
        heads[count++] = first[slot] = row;
      else
        next[last[slot]] = row;
      last[slot] = row;
      next[row] = -1;
    }
  }
};

}  // namespace

template <class T>
void embedding(const View& table, const View& ids, const View& out, StreamHandle stream) {
  const int64_t n = row_size(table);
  for_each_row(stream, ids.numel(), n, [&](int64_t row) {
    __builtin_memcpy(out.as<T>() + row * n,
                     table.as<T>() + id_at(ids, row) * n,
                     static_cast<size_t>(n) * sizeof(T));
  });
}

template <class T>
void embedding_backward(const View& ids,
                        const View& dy,
                        const View& d_table,
                        bool accumulate,
                        Workspace workspace,
                        StreamHandle stream) {
  using V = Lanes<T>;
  using S = Statistic<T>;
  const int64_t n = row_size(d_table);
  const plan::Chunks cuts = plan::strips(n);
  const int64_t strips = cuts.count();
  if (!accumulate) {
    for_each_row(stream, row_count(d_table), n, [&](int64_t row) {
      __builtin_memset(
          static_cast<void*>(d_table.as<T>() + row * n), 0, static_cast<size_t>(n) * sizeof(T));
    });
  }
  const RowLists lists(ids, workspace);
  parallel_for(stream, lists.count * strips, [&](int64_t task, int) {
    const int32_t head = lists.heads[task / strips];
    const int64_t strip = task % strips, left = strip * cuts.each, width = cuts.size(strip);
    S sum[plan::widest_strip] = {};
    for (int32_t row = head; row >= 0; row = lists.next[row]) {
      const T* const in = dy.as<T>() + row * n + left;
      for_lanes<V>(width, [&](int64_t i, auto part) {
        store(sum + i, load(sum + i, part) + load(in + i, part), part);
      });
    }
    T* const out = d_table.as<T>() + id_at(ids, head) * n + left;
    for_lanes<V>(width, [&](int64_t i, auto part) {
      const V total = load(sum + i, part);
      store(out + i, accumulate ? load(out + i, part) + rounded<T>(total) : total, part);
    });
  });
}

size_t embedding_backward_workspace(const View& ids, const View&, int) {
  return RowLists::bytes(ids.numel());
}

SG_FOR_FLOATS(embedding)
SG_FOR_FLOATS(embedding_backward)

}  // namespace sg::kernels::SG_ISA
