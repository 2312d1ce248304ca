// Calls that carry no tensors: barriers, small messages of any length, agreement at the start.
#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <set>

#include "core/error.h"
#include "dist/comm/comm.h"
#include "dist/comm/transport.h"

namespace sg::dist {

// Every rank hears from every other one. No payload, so nothing but the call is booked.
Work Comm::barrier(const Call& call, double timeout) {
  CommJob job{.record = {.operation = Operation::barrier},
              .traffic = {1, 0, 0, 0},
              .timeout = timeout,
              .run = {}};
  job.run = [](Transport& transport, Watch& watch) {
    const int n = transport.size();
    char token = 0;
    std::vector<char> tokens(n);
    Pieces send(n, Piece{&token, 1}), receive(n);
    for (int p = 0; p < n; ++p)
      receive[p] = {&tokens[p], 1};
    send[transport.rank()] = receive[transport.rank()] = {};
    transport.host().exchange(send, receive, watch);
    return std::optional<NonFinite>();
  };
  return issue(call, std::move(job));
}

std::vector<std::string> Comm::all_gather_bytes(const Call& call, std::string_view bytes) {
  std::vector<std::string> all(size());
  CommJob job{.record = {.operation = Operation::all_gather},
              .traffic = {1, 0, 0, 0},
              .messages = 2,
              .run = {}};
  job.run = [&](Transport& transport, Watch& watch) {
    const int n = transport.size(), self = transport.rank();
    std::vector<uint64_t> lengths(n, bytes.size());
    Pieces send(n, Piece{&lengths[self], 8}), receive(n);
    for (int p = 0; p < n; ++p)
      receive[p] = {&lengths[p], 8};
    transport.host().exchange(send, receive, watch);
    std::fill(send.begin(), send.end(), Piece{const_cast<char*>(bytes.data()), bytes.size()});
    Traffic traffic;
    for (int p = 0; p < n; ++p) {
      all[p].resize(lengths[p]);
      receive[p] = {all[p].data(), lengths[p]};
      if (p != self)
        traffic += {0, 8 + bytes.size(), 8 + lengths[p], 0};
    }
    transport.host().exchange(send, receive, watch);
    shared_->traffic.add(Operation::all_gather, call.phase, traffic);
    return std::optional<NonFinite>();
  };
  issue(call, std::move(job)).wait();
  return all;
}

void Comm::agree(const Call& call, const std::map<std::string, std::string>& fields) {
  using Fields = std::map<std::string, std::string>;
  std::vector<Fields> all;
  const auto text =
      nlohmann::json(fields).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::vector<std::string> texts = all_gather_bytes(call, text);
  if (std::all_of(texts.begin(), texts.end(), [&](const std::string& theirs) {
        return theirs == texts[0];
      }))
    return;
  for (const std::string& theirs : texts)
    all.push_back(nlohmann::json::parse(theirs).get<Fields>());
  const auto value = [&](size_t rank, const std::string& name) {
    const auto found = all[rank].find(name);
    return found == all[rank].end() ? std::string("nothing") : "\"" + found->second + "\"";
  };
  std::set<std::string> names;
  for (const Fields& theirs : all) {
    for (const auto& [name, unused] : theirs)
      names.insert(name);
  }
  for (const std::string& name : names) {
    for (size_t rank = 1; rank < all.size(); ++rank) {
      check(value(rank, name) == value(0, name),
            "{}: ranks disagree on {}: rank 0 has {}, rank {} has {}",
            call.name,
            name,
            value(0, name),
            rank,
            value(rank, name));
    }
  }
}

}  // namespace sg::dist
