// Internal to checkpoint_*.cpp: a part of the protocol that every rank does, after which all know whether all could.
#pragma once
#include <string>
#include <vector>

#include "core/error.h"
#include "dist/checkpoint.h"

namespace sg::dist {

// Runs `part`, which returns a text, and gives every rank everybody's. If it threw an Error anywhere, the lowest such
// rank's is thrown on all of them.
template <class Part>
std::vector<std::string> together(const CheckpointRanks& ranks, Part part) {
  std::string mine;  // a digit, 0 or the error's kind, then the text or the message
  try {
    mine = "0" + part();
  } catch (const Error& e) { mine = std::to_string(e.exit_code()) + e.what(); }
  std::vector<std::string> all = ranks.size > 1 ? ranks.exchange(mine) : std::vector{mine};
  invariant(all.size() == static_cast<size_t>(ranks.size), "checkpoint: {} ranks answered of {}", all.size(),
            ranks.size);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const int kind = all[rank].at(0) - '0';
    all[rank].erase(0, 1);
    if (kind != 0)
      throw Error(static_cast<ErrorKind>(kind),
                  ranks.size > 1 ? fmt::format("rank {}: {}", rank, all[rank]) : all[rank]);
  }
  return all;
}

}  // namespace sg::dist
