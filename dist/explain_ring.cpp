#include "dist/explain_ring.h"

#include <fmt/format.h>

#include "core/ops.h"
#include "dist/comm/threads.h"
#include "dist/launch.h"

namespace sg::dist {
namespace {

using Contributors = RingTrace::Contributors;

// Rank r's values are all 2^r, so a sum tells who is in it, and who is in it twice.
Contributors contributors(float value) {
  return static_cast<Contributors>(value);
}

std::vector<Contributors> contents(const Tensor& x) {
  std::vector<Contributors> blocks;
  for (const float value : x.to_vector<float>())
    blocks.push_back(contributors(value));
  return blocks;
}

char letter(int block) {
  return static_cast<char>('A' + block);
}

// "B0+B2": block B, summed over ranks 0 and 2.
std::string sum_text(int block, Contributors who) {
  std::string text;
  for (int rank = 0; who >> rank; ++rank)
    if (who >> rank & 1)
      text += fmt::format("{}{}{}", text.empty() ? "" : "+", letter(block), rank);
  return text;
}

std::string holdings(const std::vector<std::vector<Contributors>>& held) {
  const auto width = 3 * held.size() + 1;
  std::string text;
  for (size_t rank = 0; rank < held.size(); ++rank) {
    text += fmt::format("  rank {} holds ", rank);
    for (size_t block = 0; block < held.size(); ++block)
      text += fmt::format(" {:<{}}", sum_text(static_cast<int>(block), held[rank][block]), width);
    text.erase(text.find_last_not_of(' ') + 1);
    text += "\n";
  }
  return text;
}

// One step of all ranks: what each sends, and what the receiver then has.
std::string step_text(const RingTrace& trace, size_t s) {
  std::string text;
  for (int rank = 0; rank < trace.ranks; ++rank) {
    const auto& moves = trace.moves[rank];
    const int next = (rank + 1) % trace.ranks;
    const int block = moves[s].step.send;
    const Contributors sent = s == 0 ? Contributors{1} << rank : moves[s - 1].received;
    text += fmt::format("  rank {} sends {} to rank {}, which then has {}\n",
                        rank,
                        sum_text(block, sent),
                        next,
                        sum_text(block, trace.moves[next][s].received));
  }
  return text;
}

std::string owners_text(const RingTrace& trace) {
  const Contributors all = (Contributors{1} << trace.ranks) - 1;
  std::string text;
  for (int rank = 0; rank < trace.ranks; ++rank)
    for (int block = 0; block < trace.ranks; ++block)
      if (trace.after_scatter[rank][block] == all)
        text += fmt::format(
            "{}rank {} has the sum of block {}", text.empty() ? "" : ", ", rank, letter(block));
  return text;
}

}  // namespace

RingTrace trace_ring(int ranks) {
  check(2 <= ranks && ranks <= 8, "ring: from 2 to 8 ranks can be shown, not {}", ranks);
  RingTrace trace{ranks, std::vector<std::vector<RingTrace::Move>>(ranks), {}, {}};
  trace.after_scatter.resize(ranks);
  trace.after_gather.resize(ranks);
  const auto world = std::make_shared<ThreadWorld>(ranks, 0, 0);
  const auto group = std::make_shared<ThreadGroup>();
  for (int rank = 0; rank < ranks; ++rank)
    group->world_ranks.push_back(rank);
  group->slots.resize(ranks * ranks);

  run_threads(ranks, [&](Comm& comm) {
    const int rank = comm.rank();
    const Tensor x = full({ranks}, 1 << rank);
    const View all = x.view();
    const ReduceJob job{
        &kernel_table(comm.device()), all, all, Shards::even(ranks, ranks), 1, true};
    ThreadTransport transport(world, group, rank, 0);
    CallRecord record;
    record.set_name("ring");
    Watch watch(record, rank, 60, false);
    const Tensor buffers = empty({2});
    reduce_ring(transport, job, buffers.view(), watch, [&](const RingStep& step, const View& got) {
      trace.moves[rank].push_back({step, contributors(*got.as<float>())});
      if (std::ssize(trace.moves[rank]) == ranks - 1)
        trace.after_scatter[rank] = contents(x);
    });
    trace.after_gather[rank] = contents(x);
  });
  return trace;
}

std::string explain_ring(int ranks) {
  const RingTrace trace = trace_ring(ranks);
  std::vector<std::vector<Contributors>> start;
  for (int rank = 0; rank < ranks; ++rank)
    start.emplace_back(ranks, Contributors{1} << rank);
  std::string text = fmt::format(
      "Ring all-reduce on {} ranks: the tensor is cut into {} blocks, A to {}; B0+B1 is block B "
      "summed over ranks 0 and 1.\n"
      "Every rank sends to the next one and receives from the previous one at the same "
      "time.\n\nAt the start:\n{}",
      ranks,
      ranks,
      letter(ranks - 1),
      holdings(start));
  const size_t half = trace.moves[0].size() / 2;
  for (size_t s = 0; s < 2 * half; ++s) {
    text += fmt::format("\n{}, step {} of {}:\n{}",
                        s < half ? "Scatter-reduce" : "All-gather",
                        s % half + 1,
                        half,
                        step_text(trace, s));
    if (s + 1 == half)
      text += fmt::format(
          "\nAfter the scatter-reduce {}:\n{}", owners_text(trace), holdings(trace.after_scatter));
  }
  text += fmt::format("\nAfter the all-gather every rank has every sum:\n{}",
                      holdings(trace.after_gather));
  return text + fmt::format(
                    "\nEach rank sent {} blocks of 1/{} of the tensor: 2({} - 1)/{} of its size, "
                    "however many ranks.\n",
                    2 * half,
                    ranks,
                    ranks,
                    ranks);
}

}  // namespace sg::dist
