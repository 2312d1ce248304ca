#include "dist/comm/sim.h"

#include <algorithm>
#include <cstring>

#include "core/error.h"
#include "dist/comm/reduce.h"

namespace sg::dist {
namespace {

class SimTransport final : public Transport, public HostChannel {
 public:
  SimTransport(int rank, int size, int group, Imitated imitated, SeesShards sees)
      : rank_(rank), size_(size), group_(group), imitated_(imitated), sees_(std::move(sees)) {}

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  int world_rank(int rank) const override { return rank; }
  bool moves_data() const override { return false; }
  int group() const override { return group_; }
  int world_size() const override { return size_; }

  // Messages come back as this rank's own; tensors of a meta device have no data.
  HostChannel& host() override { return *this; }
  void exchange(const Pieces& send, const Pieces& receive, Watch&) override {
    for (size_t p = 0; p < receive.size(); ++p) {
      if (receive[p].data && send[p].data)
        std::memcpy(receive[p].data, send[p].data, std::min(send[p].bytes, receive[p].bytes));
    }
  }
  std::optional<NonFinite> reduce_ordered(const ReduceJob& job, Watch&) override {
    if (sees_)
      sees_(job.shards);
    if (imitated_ == Imitated::mpi && size_ > 1 && !slices_.defined())
      slices_ = reduction_slices(size_);
    return {};
  }
  void reduce_native(const ReduceJob&, Watch&) override {}

  std::unique_ptr<Transport> split(const std::vector<int>& colours,
                                   const std::vector<int>&,
                                   int group) override {
    const auto mine = colours[rank_];
    return std::make_unique<SimTransport>(
        0,
        static_cast<int>(std::count(colours.begin(), colours.end(), mine)),
        group,
        imitated_,
        sees_);
  }
  void fail(const std::string&) noexcept override {}
  void abort(const std::string& message, int) override { throw Bug(message); }
  FlightBoard* board(int) override { return &board_; }

 private:
  const int rank_, size_, group_;
  const Imitated imitated_;
  const SeesShards sees_;
  Tensor slices_;
  FlightBoard board_;
};

}  // namespace

std::unique_ptr<Comm> connect_sim(
    int rank, int ranks, Device device, Imitated group, SeesShards sees) {
  check(device.type == DeviceType::meta, "sim: a meta device is needed, not {}", device);
  check(0 <= rank && rank < ranks, "sim: rank {} of {}", rank, ranks);
  auto shared = std::make_shared<CommShared>(device, Checks::never, 1e9);
  return std::make_unique<Comm>(
      std::make_unique<SimTransport>(rank, ranks, 0, group, std::move(sees)), std::move(shared));
}

}  // namespace sg::dist
