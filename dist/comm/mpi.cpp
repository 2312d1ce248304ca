// Moving bytes by MPI; the process's share in MPI is in mpi_world.cpp.
#include "dist/comm/mpi.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <climits>
#include <cstring>
#include <thread>

#include "dist/comm/reduce.h"

namespace sg::dist {
namespace {

enum Tag { pieces_tag = 1, terms_tag, sums_tag, call_tag };

constexpr int64_t message_bytes =
    uint64_t{1} << 30;  // MPI counts in int: larger pieces travel as several messages
constexpr int64_t collective_elements = int64_t{1} << 30;  // likewise

// What a rank does between polls, by how long it has polled in vain: spins where an answer is due
// at once, then lets others run, then sleeps, so that whoever computes has the processor.
class Rest {
 public:
  void operator()() {
    const auto waited = Watch::Clock::now() - begin_;
    if (waited < std::chrono::microseconds(200))
      return;
    if (waited < std::chrono::milliseconds(2))
      std::this_thread::yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(20));
  }

 private:
  const Watch::Clock::time_point begin_ = Watch::Clock::now();
};

MPI_Datatype type_of(DType dtype) {
  if (dtype == DType::f64)
    return MPI_DOUBLE;
  return dtype == DType::f32 ? MPI_FLOAT : MPI_UINT16_T;
}

std::string text_of(int error) {
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  MPI_Error_string(error, text, &length);
  return {text, static_cast<size_t>(length)};
}

// send(data, count) for each message that a piece travels in.
template <class Send>
void for_messages(const Piece& piece, Send send) {
  const int64_t bytes = piece.bytes;
  const View all = flat_view(piece.data, DType::u8, bytes);
  for (int64_t begin = 0; begin < bytes; begin += message_bytes) {
    const int64_t count = std::min(message_bytes, bytes - begin);
    send(flat_range(all, begin, count).data, count);
  }
}

}  // namespace

void mpi_must(int error, const char* function) {
  if (error != MPI_SUCCESS)
    sg::fail(ErrorKind::peer, "mpi: {}: {}", function, text_of(error));
}

MpiTransport::MpiTransport(std::shared_ptr<MpiWorld> world,
                           MPI_Comm comm,
                           std::vector<int> world_ranks,
                           int number)
    : world_(std::move(world)), comm_(comm), world_ranks_(std::move(world_ranks)), number_(number) {
  mpi_must(MPI_Comm_set_errhandler(comm_, MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  mpi_must(MPI_Comm_rank(comm_, &rank_), "MPI_Comm_rank");
}

MpiTransport::~MpiTransport() {
  if (number_ != 0 && !world_->failed())
    MPI_Comm_free(&comm_);
}

// ---- requests

MPI_Request* MpiTransport::Requests::add(int peer, int expected) {
  handles.push_back(MPI_REQUEST_NULL), peers.push_back(peer), bytes.push_back(expected);
  return &handles.back();
}

void MpiTransport::send(Requests& requests, int to, int tag, const Piece& piece) {
  for_messages(piece, [&](void* data, int count) {
    mpi_must(MPI_Isend(data, count, MPI_BYTE, to, tag, comm_, requests.add(to, -1)), "MPI_Isend");
  });
}

void MpiTransport::receive(Requests& requests, int from, int tag, const Piece& piece) {
  for_messages(piece, [&](void* data, int count) {
    MPI_Request* handle = requests.add(from, count);
    mpi_must(MPI_Irecv(data, count, MPI_BYTE, from, tag, comm_, handle), "MPI_Irecv");
  });
}

std::vector<int> MpiTransport::awaited(const Requests& requests) const {
  std::vector<int> ranks;
  for (size_t i = 0; i < requests.handles.size(); ++i) {
    int done = 0;
    MPI_Request_get_status(requests.handles[i], &done, MPI_STATUS_IGNORE);
    if (!done && requests.peers[i] >= 0)
      ranks.push_back(world_rank(requests.peers[i]));
  }
  std::sort(ranks.begin(), ranks.end());
  ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
  return ranks;
}

void MpiTransport::explain(int error,
                           const Requests& requests,
                           const std::vector<MPI_Status>& statuses,
                           const Watch& watch) {
  std::string from;
  for (size_t i = 0; error == MPI_ERR_IN_STATUS && i < statuses.size(); ++i) {
    if (statuses[i].MPI_ERROR == MPI_SUCCESS || statuses[i].MPI_ERROR == MPI_ERR_PENDING)
      continue;
    error = statuses[i].MPI_ERROR;
    if (requests.peers[i] >= 0)
      from = fmt::format(" with rank {}", world_rank(requests.peers[i]));
  }
  sg::fail(ErrorKind::peer,
           "{} on rank {}, call #{}: MPI{}: {}",
           watch.call().describe(),
           world_rank(rank_),
           watch.call().sequence,
           from,
           text_of(error));
}

void MpiTransport::finish(Requests& requests, Watch& watch, const MpiWorld::Inside& inside) {
  const auto n = static_cast<int>(requests.handles.size());
  std::vector<MPI_Status> statuses(requests.handles.size());
  Rest rest;
  for (int done = 0;;) {
    const int error = MPI_Testall(n, requests.handles.data(), &done, statuses.data());
    if (error != MPI_SUCCESS)
      explain(error, requests, statuses, watch);
    if (done)
      break;
    inside.poll();
    if (Watch::Clock::now() >= watch.next())
      watch.check(awaited(requests));
    rest();
  }
  for (size_t i = 0; i < requests.handles.size(); ++i) {
    int count = 0;
    if (requests.bytes[i] < 0)
      continue;
    MPI_Get_count(&statuses[i], MPI_BYTE, &count);
    check(ErrorKind::peer,
          count == requests.bytes[i],
          "{} on rank {}, call #{}: rank {} sends {} bytes, {} are expected",
          watch.call().describe(),
          world_rank(rank_),
          watch.call().sequence,
          world_rank(requests.peers[i]),
          count,
          requests.bytes[i]);
  }
  requests = {};
}

// ---- which call it is

// Posted before the data of the same move and finished before that data is touched: if ranks make
// different calls, their data may never come, or be of another size.
void MpiTransport::post(Comparison& comparison, Watch& watch) {
  if (!watch.takes_comparison())
    return;
  for (int p = 0; p < size(); ++p) {
    if (p != rank_ && watch.meets(p))
      comparison.ranks.push_back(p);
  }
  comparison.records.resize(comparison.ranks.size());
  for (size_t i = 0; i < comparison.ranks.size(); ++i) {
    receive(comparison.requests,
            comparison.ranks[i],
            call_tag,
            {&comparison.records[i], sizeof(CallRecord)});
  }
  const Piece mine{const_cast<CallRecord*>(&watch.call()), sizeof(CallRecord)};
  for (int p : comparison.ranks)
    send(comparison.requests, p, call_tag, mine);
}

void MpiTransport::finish(Comparison& comparison, Watch& watch, const MpiWorld::Inside& inside) {
  for (bool all = false; !all;) {
    finish(comparison.requests, watch, inside);
    all = true;
    for (size_t i = 0; i < comparison.ranks.size(); ++i) {
      if (comparison.records[i].state != CallRecord::State::busy)
        continue;
      all = false;
      watch.restart();
      receive(comparison.requests,
              comparison.ranks[i],
              call_tag,
              {&comparison.records[i], sizeof(CallRecord)});
    }
  }
  for (size_t i = 0; i < comparison.ranks.size(); ++i) {
    const int from = comparison.ranks[i];
    watch.compare(comparison.records[i], rank_, from, world_rank(from));
  }
}

void MpiTransport::compare(Watch& watch, const MpiWorld::Inside& inside) {
  Comparison comparison;
  post(comparison, watch);
  finish(comparison, watch, inside);
}

// Small enough for MPI to send it at once, whether or not the others are there.
void MpiTransport::say_busy() {
  const MpiWorld::Inside inside(*world_);
  CallRecord record;
  record.set_name("busy");
  record.state = CallRecord::State::busy;
  Watch watch(record, world_rank(rank_), 60, false);
  Requests requests;
  for (int p = 0; p < size(); ++p) {
    if (p != rank_)
      send(requests, p, call_tag, {&record, sizeof record});
  }
  finish(requests, watch, inside);
}

// ---- moves

void MpiTransport::exchange(const Pieces& send, const Pieces& receive, Watch& watch) {
  const MpiWorld::Inside inside(*world_);
  Comparison comparison;
  post(comparison, watch);
  Requests requests;
  for (int p = 0; p < size(); ++p) {
    if (p != rank_)
      this->receive(requests, p, pieces_tag, receive[p]);
  }
  for (int p = 0; p < size(); ++p) {
    if (p != rank_)
      this->send(requests, p, pieces_tag, send[p]);
  }
  const Piece &own = send[rank_], &place = receive[rank_];
  if (own.bytes > 0 && own.data != place.data)
    std::memcpy(place.data, own.data, own.bytes);
  finish(comparison, watch, inside);
  finish(requests, watch, inside);
}

namespace {

// What travels in an ordered reduction, cut into slices: slice k of the term for rank p, and of p's
// sum.
struct Slices {
  const ReduceJob& job;
  int64_t elements = slice_bytes / size_of(job.dtype());

  int64_t count() const { return (job.shards.largest() + elements - 1) / elements; }
  int64_t length(int p, int64_t k) const {
    return std::clamp<int64_t>(job.shards.count(p) - k * elements, 0, elements);
  }
  View term(int p, int64_t k) const { return flat_range(job.in_of(p), k * elements, length(p, k)); }
  View sum(int p, int64_t k) const { return flat_range(job.out_of(p), k * elements, length(p, k)); }
};

}  // namespace

// All-to-all, sum and, where all receive the whole, all-gather, as a pipeline of slices: while
// slice k is summed up, slice k + 1 of the terms and slice k − 1 of the sums travel.
std::optional<NonFinite> MpiTransport::reduce_ordered(const ReduceJob& job, Watch& watch) {
  const MpiWorld::Inside inside(*world_);
  const Slices slices{job};
  if (size() > 1 && !incoming_.defined())
    incoming_ = reduction_slices(size());
  const auto incoming = [&](int p, int64_t k) {  // slice k of rank p's term for this rank
    if (p == rank_)
      return slices.term(p, k);
    constexpr int64_t bytes = slice_bytes;
    const View place = flat_range(incoming_.view(), (k % 2 * size() + p) * bytes, bytes);
    return flat_range(retyped(place, job.dtype()), 0, slices.length(rank_, k));
  };
  std::array<Requests, 2> requests;
  const auto post_terms = [&](int64_t k) {
    for (int p = 0; p < size(); ++p) {
      if (p == rank_)
        continue;
      receive(requests[k % 2], p, terms_tag, piece_of(incoming(p, k)));
      send(requests[k % 2], p, terms_tag, piece_of(slices.term(p, k)));
    }
  };
  const auto post_sums = [&](int64_t k) {
    for (int p = 0; p < size(); ++p) {
      if (p == rank_)
        continue;
      receive(requests[k % 2], p, sums_tag, piece_of(slices.sum(p, k)));
      send(requests[k % 2], p, sums_tag, piece_of(slices.sum(rank_, k)));
    }
  };
  std::optional<NonFinite> found;
  std::vector<View> terms(size());
  const auto sum_up = [&](int64_t k) {
    for (int p = 0; p < size(); ++p)
      terms[p] = incoming(p, k);
    const View sum = slices.sum(rank_, k);
    const int64_t offset = job.shards.offset(rank_) + k * slices.elements;
    const auto bad = sum_in_rank_order(*job.kernels, terms, {&sum, 1}, job.scale, offset);
    if (!found)
      found = bad;
  };
  Comparison comparison;
  post(comparison, watch);
  post_terms(0);
  post_terms(1);
  finish(comparison, watch, inside);
  for (int64_t k = 0; k < slices.count(); ++k) {
    finish(requests[k % 2], watch, inside);
    if (slices.length(rank_, k) > 0)
      sum_up(k);
    if (job.all)
      post_sums(k);
    post_terms(k + 2);
  }
  for (Requests& rest : requests)
    finish(rest, watch, inside);
  return found;
}

// ---- MPI's own reductions

void MpiTransport::reduce_native(const ReduceJob& job, Watch& watch) {
  Tensor apart;  // MPI wants a result apart from the input, unless it is the whole input
  View sum = job.out;
  if (job.all) {
    native_all_reduce(job, watch);
  } else {
    if (sum.data == job.in_of(rank_).data && size() > 1) {
      const CategoryScope category(Category::communication);
      apart = empty({job.shards.count(rank_)}, job.dtype());
      sum = apart.view();
    }
    native_reduce_scatter(job, sum, watch);
  }
  if (job.scale != 1 || sum.data != job.out.data)
    sum_in_rank_order(*job.kernels, {&sum, 1}, {&job.out, 1}, job.scale, 0);
}

void MpiTransport::native_all_reduce(const ReduceJob& job, Watch& watch) {
  const MpiWorld::Inside inside(*world_);
  compare(watch, inside);
  const MPI_Datatype type = type_of(job.dtype());
  const MPI_Op sum = world_->sum_of(job.dtype());
  for (int64_t begin = 0; begin < job.shards.total(); begin += collective_elements) {
    const int64_t count = std::min(collective_elements, job.shards.total() - begin);
    const void* in = job.in_place() ? MPI_IN_PLACE : flat_range(job.in, begin, count).data;
    void* out = flat_range(job.out, begin, count).data;
    Requests request;
    mpi_must(MPI_Iallreduce(in, out, count, type, sum, comm_, request.add(-1, -1)),
             "MPI_Iallreduce");
    finish(request, watch, inside);
  }
}

void MpiTransport::native_reduce_scatter(const ReduceJob& job, const View& out, Watch& watch) {
  const MpiWorld::Inside inside(*world_);
  compare(watch, inside);
  const MPI_Datatype type = type_of(job.dtype());
  const MPI_Op sum = world_->sum_of(job.dtype());
  Requests request;
  if (job.shards.total() <= INT_MAX) {
    std::vector<int> counts;
    for (int p = 0; p < size(); ++p)
      counts.push_back(job.shards.count(p));
    MPI_Request* handle = request.add(-1, -1);
    mpi_must(MPI_Ireduce_scatter(job.in.data, out.data, counts.data(), type, sum, comm_, handle),
             "MPI_Ireduce_scatter");
    finish(request, watch, inside);
    return;
  }
  for (int owner = 0; owner < size(); ++owner) {
    for (int64_t begin = 0; begin < job.shards.count(owner); begin += collective_elements) {
      const int64_t count = std::min(collective_elements, job.shards.count(owner) - begin);
      const void* in = flat_range(job.in_of(owner), begin, count).data;
      void* to = flat_range(out, begin, count).data;
      MPI_Request* handle = request.add(-1, -1);
      mpi_must(MPI_Ireduce(in, to, count, type, sum, owner, comm_, handle), "MPI_Ireduce");
      finish(request, watch, inside);
    }
  }
}

// ---- groups

std::unique_ptr<Transport> MpiTransport::split(const std::vector<int>& colours,
                                               const std::vector<int>& keys,
                                               int group) {
  const MpiWorld::Inside inside(
      *world_);  // every rank has just told its colour, so nobody is waited for
  const auto self = rank_;
  MPI_Comm part = MPI_COMM_NULL;
  mpi_must(MPI_Comm_split(comm_, colours[self], keys[self], &part), "MPI_Comm_split");
  return std::make_unique<MpiTransport>(world_, part, members(colours, keys), group);
}

}  // namespace sg::dist
