#include <algorithm>
#include <limits>

#include "core/error.h"
#include "dist/comm/comm.h"

namespace sg::dist {

Shards::Shards(std::vector<int64_t> counts) : counts_(std::move(counts)) {
  int64_t offset = 0;
  for (int64_t count : counts_) {
    check(count >= 0, "shards: {} elements", count);
    check(count <= std::numeric_limits<int64_t>::max() - offset,
          "shards: {} and {} elements are more than 64 bits count",
          offset,
          count);
    offsets_.push_back(offset);
    offset += count;
  }
}

Shards Shards::even(int64_t elements, int ranks, int64_t chunk, int first) {
  check(elements >= 0 && ranks > 0 && chunk > 0 && first >= 0,
        "shards: {} elements over {} ranks in chunks of {} from rank {}",
        elements,
        ranks,
        chunk,
        first);
  const int64_t chunks = elements / chunk + (elements % chunk > 0 ? 1 : 0);
  std::vector<int64_t> counts;
  for (int64_t rank = 0, left = elements; rank < ranks; ++rank) {
    const bool odd = (rank - first % ranks + ranks) % ranks < chunks % ranks;
    const int64_t dealt = chunks / ranks + (odd ? 1 : 0);
    counts.push_back(dealt > left / chunk ? left
                                          : dealt * chunk);  // the last chunk may be cut short
    left -= counts.back();
  }
  return Shards(std::move(counts));
}

Shards Shards::whole(int64_t elements, int ranks, int owner) {
  check(owner >= 0 && owner < ranks, "shards: no rank {} in a group of {}", owner, ranks);
  std::vector<int64_t> counts(ranks, 0);
  counts[owner] = elements;
  return Shards(std::move(counts));
}

int64_t Shards::largest() const {
  return counts_.empty() ? 0 : *std::max_element(counts_.begin(), counts_.end());
}

Tensor Shards::of(const Tensor& flat, int rank) const {
  check(flat.rank() == 1 && flat.numel() == total(),
        "shards: {} elements of a flat tensor are dealt, its shape is {}",
        total(),
        flat.shape());
  check(rank >= 0 && rank < ranks(), "shards: no rank {} in a group of {}", rank, ranks());
  return flat.slice(0, offset(rank), offset(rank) + count(rank));
}

const char* name_of(Algorithm algorithm) {
  constexpr const char* names[] = {"ordered", "ring", "native"};
  return names[static_cast<int>(algorithm)];
}

Algorithm parse_algorithm(const std::string& text) {
  for (const auto algorithm : {Algorithm::ordered, Algorithm::ring, Algorithm::native}) {
    if (text == name_of(algorithm))
      return algorithm;
  }
  fail(ErrorKind::usage, "reduction: \"{}\" is none of ordered, ring, native", text);
}

}  // namespace sg::dist
