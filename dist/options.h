// What an engine is asked to do. Everything under "numerics" changes bits; nothing else does
// (reference: README, Bits).
#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "autograd/recompute_policy.h"
#include "dist/comm/comm.h"
#include "kernels/dtype.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"

namespace sg::dist {

// automatic: the first of ddp, zero1, zero2, zero3 that fits, which models/run/choose_engine.h
// finds by a dry run.
enum class EngineKind : uint8_t { none, dp, ddp, zero1, zero2, zero3, automatic };
enum class Accumulation : uint8_t { automatic, local_first, ranks_first };
enum class PartitionKind : uint8_t { bucket, contiguous };
enum class OnNonFinite : uint8_t { stop, skip };

const char* name_of(EngineKind kind);
const char* name_of(Accumulation order);
const char* name_of(PartitionKind kind);
const char* name_of(OnNonFinite what);
// The reverse; usage errors that list the known names.
EngineKind parse_engine(const std::string& text);
Accumulation parse_accumulation(const std::string& text);
PartitionKind parse_partition(const std::string& text);
OnNonFinite parse_on_nonfinite(const std::string& text);

struct Options {
  EngineKind engine = EngineKind::ddp;
  double lr = 1e-3;  // until set_learning_rate

  // ---- numerics
  int micro_steps = 1;  // k: forward and backward passes per optimizer step
  Accumulation accumulation = Accumulation::automatic;
  double clip = 0;  // global gradient norm; 0: off
  optim::OptimizerOptions optimizer = {};
  Algorithm reduction = Algorithm::ordered;
  DType precision = DType::f32;             // of parameters, activations and gradients
  optim::LossScaleOptions loss_scale = {};  // read only where precision is f16
  OnNonFinite on_nonfinite = OnNonFinite::stop;
  // The mean over N ranks: the sum is divided after the reduction (1, F = predivide: the loss by F,
  // the sum by N/F), or at the loss alone (prescale_gradients).
  bool prescale_gradients = false;
  double predivide = 1;
  // In which gradients cross between ranks and their mean is rounded: f32, bf16, f16; the
  // precision's unless given.
  std::optional<DType> communication = {};
  // The same bits for every number of ranks that is a power of two, at the same k·N and
  // micro-batch: ordered sums, ranks first, and all k·N contributions added up as one tree in f32.
  bool elastic_determinism = false;

  // ---- how, not what
  bool overlap = true;  // communication beside backward and forward
  PartitionKind partition = PartitionKind::bucket;
  int64_t first_bucket_bytes = int64_t{1} << 20;
  int64_t bucket_bytes = int64_t{25} << 20;
  bool zero1_all_reduce = false;  // zero1: all-reduce instead of reduce-scatter, for study
  // zero3, in elements: gathered ahead of their unit, or kept from forward to backward, at most;
  // gathered at all, at most (0: any); parameters smaller than this stay whole everywhere.
  int64_t prefetch_elements = 50'000'000;
  int64_t max_live_elements = 0;
  int64_t persistent_elements = 0;
  // What the model's blocks keep for backward and what they compute again.
  RecomputePolicy recompute = {};
  bool cpu_checkpointing = false;  // what recomputed regions keep lies in host memory meanwhile
};

// Every option as text, by name: what ranks must have in common, as it decides their sums, or which
// calls they make and in which order.
std::map<std::string, std::string> fields_of(const Options& options);

}  // namespace sg::dist
