// A group that is only thought of: one rank of N runs the real engines on a meta device; calls are
// checked and booked and move nothing. What other ranks would say (losses, flags, agreements) is
// taken to be what this one says.
#pragma once
#include <functional>
#include <memory>

#include "dist/comm/comm.h"

namespace sg::dist {

// The real group whose memory for communication is booked.
enum class Imitated : uint8_t { threads, mpi };

// Told how each ordered sum is dealt to the ranks.
using SeesShards = std::function<void(const Shards&)>;

// `device` is a meta device. Usage error for a rank outside 0 … ranks−1.
std::unique_ptr<Comm> connect_sim(
    int rank, int ranks, Device device, Imitated group = Imitated::threads, SeesShards sees = {});

}  // namespace sg::dist
