// Internal to dist/checkpoint: a part of the protocol that every rank does, after which all know
// whether all could.
#pragma once
#include <exception>
#include <new>
#include <string>
#include <system_error>
#include <vector>

#include "core/error.h"
#include "dist/checkpoint/checkpoint.h"

namespace sg::dist {

constexpr int bug_kind = 1;  // beside the kinds of errors

// What `part`, which returns a text, came to, for every rank to see: a digit, 0 or the error's
// kind, then the text or the message. Whatever it throws is an outcome: a rank that left without a
// word would hold up all others.
template <class Part>
std::string capture_outcome(Part part) {
  const auto outcome = [](ErrorKind kind, const std::string& message) {
    return std::to_string(static_cast<int>(kind)) + message;
  };
  try {
    return "0" + part();
  } catch (const Error& e) {
    return outcome(e.kind(), e.what());
  } catch (const std::bad_alloc&) {
    return outcome(ErrorKind::out_of_memory, "checkpoint: the process is out of memory");
  } catch (const std::system_error& e) {
    return outcome(ErrorKind::io, fmt::format("checkpoint: {}", e.what()));
  } catch (const std::exception& e) {
    return std::to_string(bug_kind) + e.what();
  } catch (...) {
    return std::to_string(bug_kind) + "checkpoint: an exception of an unknown type";
  }
}

// The texts of every rank's outcome. Where there is an error, the lowest such rank's is thrown.
inline std::vector<std::string> read_outcomes(std::vector<std::string> outcomes) {
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const int kind = outcomes[rank].at(0) - '0';
    outcomes[rank].erase(0, 1);
    if (kind == 0)
      continue;
    const std::string message =
        outcomes.size() > 1 ? fmt::format("rank {}: {}", rank, outcomes[rank]) : outcomes[rank];
    if (kind == bug_kind)
      throw Bug(message);
    throw Error(static_cast<ErrorKind>(kind), message);
  }
  return outcomes;
}

inline std::vector<std::string> exchange_outcomes(const CheckpointRanks& ranks,
                                                  const std::string& mine) {
  std::vector<std::string> all = ranks.size > 1 ? ranks.exchange(mine) : std::vector{mine};
  invariant(all.size() == static_cast<size_t>(ranks.size),
            "checkpoint: {} ranks answered of {}",
            all.size(),
            ranks.size);
  return all;
}

// Runs `part` and gives every rank everybody's text. If it threw anywhere, the lowest such rank's
// error is thrown on all of them.
template <class Part>
std::vector<std::string> run_on_all(const CheckpointRanks& ranks, Part part) {
  return read_outcomes(exchange_outcomes(ranks, capture_outcome(part)));
}

// The same for work on files, which takes what the disk takes: a slow disk is no dead rank.
template <class Part>
std::vector<std::string> run_file_work_on_all(const CheckpointRanks& ranks, Part part) {
  return run_on_all(ranks, [&] {
    const std::shared_ptr<void> busy = ranks.busy ? ranks.busy() : nullptr;
    return part();
  });
}

}  // namespace sg::dist
