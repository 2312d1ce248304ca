// params_sha256: what training made, whatever engine, partition and precision it had.
//
// Each rank has its runs of the masters (Engine::state). Where every run is shared, rank 0 has them
// all; else ranks send each other theirs, a part of a parameter at a time: no rank ever holds more
// than that beside its own.
#include <algorithm>
#include <cstring>
#include <map>

#include "autograd/unit_map.h"
#include "core/io/hash.h"
#include "core/ops.h"
#include "models/run/receipt.h"

namespace sg::models {
namespace {

constexpr int64_t part_elements = int64_t{1} << 22;

using Runs = std::map<std::string, std::vector<dist::StateEntry>>;  // by parameter

Runs runs_of_values(dist::Engine& engine) {
  Runs runs;
  for (dist::StateEntry& entry : engine.state())
    if (entry.kind == "master" || entry.kind == "frozen")
      runs[entry.parameter].push_back(std::move(entry));
  return runs;
}

bool all_shared(const Runs& runs) {
  const auto shared = [](const dist::StateEntry& run) { return run.shared; };
  return std::all_of(runs.begin(), runs.end(), [&](const auto& entry) {
    return std::all_of(entry.second.begin(), entry.second.end(), shared);
  });
}

struct Header {  // of a piece: its elements follow, f32
  int64_t begin = 0, end = 0;
};

// The pieces of elements [begin, end) among `runs`.
std::string pieces_of(const std::vector<dist::StateEntry>& runs, int64_t begin, int64_t end) {
  std::string bytes;
  for (const dist::StateEntry& run : runs) {
    const Header header{std::max(begin, run.begin), std::min(end, run.end)};
    if (header.begin >= header.end)
      continue;
    const Tensor values = run.values.slice(0, header.begin - run.begin, header.end - run.begin);
    const std::vector<float> elements = cast(values, DType::f32).to_vector<float>();
    bytes.append(reinterpret_cast<const char*>(&header), sizeof header);
    bytes.append(reinterpret_cast<const char*>(elements.data()), elements.size() * sizeof(float));
  }
  return bytes;
}

// Copies pieces to where they belong in elements [begin, …) and returns how many there were.
int64_t put_pieces(std::string_view bytes, int64_t begin, std::vector<float>& elements) {
  int64_t count = 0;
  while (!bytes.empty()) {
    Header header;
    std::memcpy(&header, bytes.data(), sizeof header);
    const int64_t n = header.end - header.begin;
    const size_t size = static_cast<size_t>(n) * sizeof(float);
    std::memcpy(elements.data() + (header.begin - begin), bytes.data() + sizeof header, size);
    bytes.remove_prefix(sizeof header + size);
    count += n;
  }
  return count;
}

}  // namespace

std::string hash_masters(dist::Engine& engine, const std::vector<Unit>& units) {
  dist::Comm& comm = engine.comm();
  const Runs runs = runs_of_values(engine);
  const auto exchange = [&](const std::string& mine) {
    return comm.all_gather_bytes({"receipt.masters", dist::Phase::metrics}, mine);
  };
  const std::vector<std::string> shared = exchange(all_shared(runs) ? "shared" : "sharded");
  const bool crosses = std::count(shared.begin(), shared.end(), "sharded") > 0;
  Sha256 hash;
  std::vector<float> elements;
  const auto add = [&](const Variable& p, int64_t begin, int64_t end) {
    const auto own = runs.find(p.name());
    const bool sends = own != runs.end() && (comm.rank() == 0 || !own->second.front().shared);
    const std::string mine = sends ? pieces_of(own->second, begin, end) : std::string();
    const std::vector<std::string> pieces =
        crosses ? exchange(mine) : std::vector<std::string>{mine};
    if (comm.rank() != 0)
      return;
    elements.resize(static_cast<size_t>(end - begin));
    int64_t count = 0;
    for (const std::string& piece : pieces)
      count += put_pieces(piece, begin, elements);
    invariant(count == end - begin, "hash: {} of {} elements of {}", count, end - begin, p.name());
    hash.update(elements.data(), elements.size() * sizeof(float));
  };
  const UnitMap map(units);  // a tied parameter once
  for (const UnitMap::Entry& entry : map.entries()) {
    const Variable& p = entry.parameter;
    for (int64_t begin = 0; begin < p.numel(); begin += part_elements)
      add(p, begin, std::min(begin + part_elements, p.numel()));
  }
  return exchange(hash.hex()).front();
}

}  // namespace sg::models
