// Ranks for the tests of checkpoints: threads of this process, or two processes, of which either
// may be killed.
#pragma once
#include <sys/socket.h>
#include <unistd.h>

#include <barrier>
#include <exception>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "core/error.h"
#include "dist/checkpoint/checkpoint.h"

namespace sg::test {

// Runs fn once per rank, each on a thread, and gives back what each threw (null: nothing).
inline std::vector<std::exception_ptr> on_threads(
    int size, const std::function<void(const dist::CheckpointRanks&)>& fn) {
  std::barrier<> meet(size);
  std::vector<std::string> texts(static_cast<size_t>(size));
  std::vector<std::exception_ptr> errors(static_cast<size_t>(size));
  const auto exchange_of = [&](int rank) {
    return [&, rank](const std::string& text) {
      texts[static_cast<size_t>(rank)] = text;
      meet.arrive_and_wait();
      std::vector<std::string> all = texts;
      meet.arrive_and_wait();
      return all;
    };
  };
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank)
    threads.emplace_back([&, rank] {
      try {
        fn({rank, size, exchange_of(rank)});
      } catch (...) {
        errors[static_cast<size_t>(rank)] = std::current_exception();
      }
    });
  for (std::thread& thread : threads)
    thread.join();
  return errors;
}

// One of two processes that hold the ends of a socket pair; a peer that died is an error.
inline dist::CheckpointRanks one_of_two(int rank, int socket) {
  return {rank, 2, [rank, socket](const std::string& text) {
            const auto move = [&](auto call, auto* data, size_t bytes) {
              for (size_t done = 0; done < bytes;) {
                const ssize_t n = call(socket, data + done, bytes - done, MSG_NOSIGNAL);
                check(ErrorKind::peer, n > 0, "the other rank is gone");
                done += static_cast<size_t>(n);
              }
            };
            uint64_t length = text.size();
            move(::send, reinterpret_cast<const char*>(&length), sizeof length);
            move(::send, text.data(), text.size());
            move(::recv, reinterpret_cast<char*>(&length), sizeof length);
            std::string other(length, '\0');
            move(::recv, other.data(), other.size());
            return rank == 0 ? std::vector{text, other} : std::vector{other, text};
          }};
}

}  // namespace sg::test
