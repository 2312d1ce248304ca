// Internal to checkpoint_*.cpp: a part of the protocol that every rank does, after which all know whether all could.
#pragma once
#include <string>
#include <vector>

#include "core/error.h"
#include "dist/checkpoint/checkpoint.h"

namespace sg::dist {

// What `part`, which returns a text, came to, for every rank to see: a digit, 0 or the error's kind, then the text or
// the message.
template <class Part>
std::string outcome_of(Part part) {
  try {
    return "0" + part();
  } catch (const Error& e) { return std::to_string(e.exit_code()) + e.what(); }
}

// The texts of every rank's outcome. Where there is an error, the lowest such rank's is thrown.
inline std::vector<std::string> texts_of(std::vector<std::string> outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const int kind = outcomes[rank].at(0) - '0';
    outcomes[rank].erase(0, 1);
    if (kind != 0)
      throw Error(static_cast<ErrorKind>(kind),
                  outcomes.size() > 1 ? fmt::format("rank {}: {}", rank, outcomes[rank]) : outcomes[rank]);
  }
  return outcomes;
}

inline std::vector<std::string> everybodys(const CheckpointRanks& ranks, const std::string& mine) {
  std::vector<std::string> all = ranks.size > 1 ? ranks.exchange(mine) : std::vector{mine};
  invariant(all.size() == static_cast<size_t>(ranks.size), "checkpoint: {} ranks answered of {}", all.size(),
            ranks.size);
  return all;
}

// Runs `part` and gives every rank everybody's text. If it threw an Error anywhere, the lowest such rank's is thrown on
// all of them.
template <class Part>
std::vector<std::string> together(const CheckpointRanks& ranks, Part part) {
  return texts_of(everybodys(ranks, outcome_of(part)));
}

}  // namespace sg::dist
