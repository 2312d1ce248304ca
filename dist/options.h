// What an engine is asked to do, and below it the table of these settings (setting.h): a new one is
// its field and its row here, and its use. Everything under "numerics" changes bits; nothing else
// does (reference: README, Bits).
#pragma once
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "autograd/recompute_policy.h"
#include "dist/comm/comm.h"
#include "dist/setting.h"
#include "kernels/dtype.h"
#include "optim/loss_scaler.h"
#include "optim/optimizer.h"

namespace sg::dist {

// automatic: the first of ddp, zero1, zero2, zero3 that fits, which plan.h finds by a dry run.
enum class EngineKind : uint8_t { none, dp, ddp, zero1, zero2, zero3, automatic };
enum class Accumulation : uint8_t { automatic, local_first, ranks_first };
enum class PartitionKind : uint8_t { bucket, contiguous };
enum class OnNonFinite : uint8_t { stop, skip };
enum class OffloadDevice : uint8_t { none, cpu };

constexpr EngineSet engines(std::initializer_list<EngineKind> kinds) {
  EngineSet set = 0;
  for (const EngineKind kind : kinds)
    set |= EngineSet{1} << static_cast<int>(kind);
  return set;
}
// The engines that a kind stands for, itself but for automatic, which tries several.
std::vector<EngineKind> engines_tried(EngineKind kind);
bool has_any(EngineSet set, EngineKind kind);  // of those
std::string names_of(EngineSet set);           // "zero1, zero2, zero3"

// f32, bf16 or fp16, as the command line, the JSON and the receipt say it.
const char* precision_name(DType precision);

// ---- the words of these types, for name_of and parse_word
inline constexpr const char* engine_words[] = {
    "none", "dp", "ddp", "zero1", "zero2", "zero3", "auto"};
inline constexpr const char* accumulation_words[] = {"auto", "local_first", "ranks_first"};
inline constexpr const char* partition_words[] = {"bucket", "contiguous"};
inline constexpr const char* nonfinite_words[] = {"stop", "skip"};
inline constexpr const char* offload_words[] = {"none", "cpu"};

constexpr Words words_of(EngineKind) {
  return {"engine", engine_words};
}
constexpr Words words_of(Accumulation) {
  return {"accumulation", accumulation_words};
}
constexpr Words words_of(PartitionKind) {
  return {"partition", partition_words};
}
constexpr Words words_of(OnNonFinite) {
  return {"on-nonfinite", nonfinite_words};
}
constexpr Words words_of(OffloadDevice) {
  return {"offload", offload_words};
}

template <>
struct Word<Algorithm> {
  static const char* name(Algorithm algorithm) { return name_of(algorithm); }
  static Algorithm parse(const std::string& text) { return parse_algorithm(text); }
};
template <>
struct Word<DType> {  // of a precision
  static const char* name(DType precision) { return precision_name(precision); }
  static DType parse(const std::string& text);
};
template <>
struct Word<std::optional<DType>> {
  static const char* name(std::optional<DType> type) {
    return type ? precision_name(*type) : "null";
  }
  static std::optional<DType> parse(const std::string& text) { return parse_word<DType>(text); }
};

template <>
struct Word<RecomputePolicy> {
  static std::string name(const RecomputePolicy& policy) { return to_string(policy); }
  static RecomputePolicy parse(const std::string& text) { return parse_recompute(text); }
};

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
  // Parameters that aren't trained, by patterns of their names (engines/freeze.h): "block[0-3].*".
  std::string freeze = {};
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
  // ZeRO-Offload: optimizer state and the gradients of what a rank updates lie in host memory, and
  // the host updates; zero1, zero2, zero3.
  OffloadDevice offload_optimizer = OffloadDevice::none;
};

// Where the optimizer's state and the gradients of what a rank updates lie: its device, or the
// host.
Device state_device(const Options& options, Device device);

inline constexpr EngineSet zero_engines =
    engines({EngineKind::zero1, EngineKind::zero2, EngineKind::zero3});
inline constexpr EngineSet zero3_alone = engines({EngineKind::zero3});
inline constexpr double largest_option = 0x1p47;

// The rows (setting.h).
inline constexpr Setting<Options> engine_settings[] = {
    {.name = "engine",
     .field = At<&Options::engine>::of,
     .keys = {"zero_optimization.stage"},
     .own_reader = true,
     .option = "--engine",
     .help = "none, dp, ddp, zero1, zero2, zero3, or auto: the first of ddp, zero1, zero2, zero3 "
             "that fits",
     .topic = Topic::engine,
     .decides = Decides::calls},
    {.name = "lr",  // the bits follow the schedule's
     .field = At<&Options::lr>::of,
     .decides = Decides::calls},
    {.name = "micro_steps",
     .field = At<&Options::micro_steps>::of,
     .range = {.low = 1, .high = 1 << 20},
     .decides = Decides::bits,
     .shown_in = "micro_steps"},
    {.name = "precision",
     .field = At<&Options::precision>::of,
     .keys = {"fp16.enabled", "bf16.enabled"},
     .own_reader = true,
     .option = "--precision",
     .help = "of parameters, activations and gradients: f32, bf16 or fp16; masters and sums are "
             "f32",
     .topic = Topic::layout,
     .decides = Decides::bits},
    {.name = "accumulation",
     .field = At<&Options::accumulation>::of,
     .keys = {"zero_optimization.accumulation"},
     .option = "--accumulation",
     .help = "order of micro-steps and ranks: auto, local_first, ranks_first",
     .topic = Topic::layout,
     .decides = Decides::bits},
    {.name = "partition",
     .field = At<&Options::partition>::of,
     .keys = {"zero_optimization.partition"},
     .option = "--partition",
     .help = "how zero engines shard: bucket or contiguous",
     .topic = Topic::layout,
     .decides = Decides::calls,
     .engines = zero_engines},
    {.name = "reduction",
     .field = At<&Options::reduction>::of,
     .keys = {"comm.reduction"},
     .option = "--reduction",
     .help = "how gradients are summed: ordered, ring or native",
     .topic = Topic::layout,
     .decides = Decides::bits},
    {.name = "bucket_bytes",
     .field = At<&Options::bucket_bytes>::of,
     .keys = {"zero_optimization.reduce_bucket_size"},
     .own_reader = true,  // in elements
     .option = "--bucket-bytes",
     .help = "size at which a bucket of gradients closes",
     .shown_default = "25MiB",
     .range = {.low = 1, .high = 0x1p62},
     .form = Form::bytes,
     .topic = Topic::layout,
     .decides = Decides::calls},
    {.name = "first_bucket_bytes",
     .field = At<&Options::first_bucket_bytes>::of,
     .range = {.low = 1, .high = 0x1p62},
     .decides = Decides::calls},
    {.name = "elastic_determinism",
     .field = At<&Options::elastic_determinism>::of,
     .keys = {"elastic_determinism"},
     .option = "--elastic-determinism",
     .help = "the same bits on 1, 2, 4, 8, ... ranks at the same global batch; a resume may change "
             "the ranks",
     .form = Form::flag,
     .topic = Topic::layout,
     .decides = Decides::bits},
    {.name = "overlap",
     .field = At<&Options::overlap>::of,
     .keys = {"zero_optimization.overlap_comm"},
     .option = "--overlap",
     .help = "communicate while computing",
     .topic = Topic::layout,
     .decides = Decides::calls},
    {.name = "zero1_reduce",
     .field = At<&Options::zero1_all_reduce>::of,
     .keys = {"zero_optimization.zero1_reduce"},
     .option = "--zero1-reduce",
     .help = "how zero1's gradients cross: reduce_scatter or, for study, all_reduce",
     .switch_words = {"reduce_scatter", "all_reduce"},
     .topic = Topic::layout,
     .decides = Decides::calls,
     .engines = engines({EngineKind::zero1})},
    {.name = "prefetch",
     .field = At<&Options::prefetch_elements>::of,
     .keys = {"zero_optimization.stage3_prefetch_bucket_size"},
     .option = "--prefetch-elements",
     .help = "zero3: parameters gathered ahead of their unit, or kept from forward to backward, at "
             "most",
     .range = {.high = largest_option},
     .topic = Topic::layout,
     .decides = Decides::calls,
     .engines = zero3_alone},
    {.name = "max_live",
     .field = At<&Options::max_live_elements>::of,
     .keys = {"zero_optimization.stage3_max_live_parameters"},
     .option = "--max-live-elements",
     .help = "zero3: parameters gathered at once, at most; 0: any",
     .range = {.high = largest_option},
     .topic = Topic::layout,
     .decides = Decides::calls,
     .engines = zero3_alone},
    {.name = "persistent",
     .field = At<&Options::persistent_elements>::of,
     .keys = {"zero_optimization.stage3_param_persistence_threshold"},
     .option = "--persistent-elements",
     .help = "zero3: parameters smaller than this stay whole on every rank",
     .range = {.high = largest_option},
     .topic = Topic::layout,
     .decides = Decides::calls,
     .engines = zero3_alone},
    {.name = "freeze",
     .field = At<&Options::freeze>::of,
     .option = "--freeze",
     .help = "parameters that aren't trained, by names with * ? [0-3], by commas: 'block[0-3].*'",
     .topic = Topic::layout,
     .decides = Decides::bits,
     .shown_in = "frozen"},
    {.name = "recompute",
     .field = At<&Options::recompute>::of,
     .keys = {"recompute"},
     .option = "--recompute",
     .help = "what blocks keep for backward and what they compute again: none, full (one tensor a "
             "block), every:N (one for N blocks), selective (what is dear to compute)",
     .topic = Topic::layout,
     .decides = Decides::calls},
    {.name = "cpu_checkpointing",
     .field = At<&Options::cpu_checkpointing>::of,
     .keys = {"activation_checkpointing.cpu_checkpointing"},
     .option = "--cpu-checkpointing",
     .help = "what recomputed blocks keep waits in host memory; with --recompute full or every:N",
     .form = Form::flag,
     .topic = Topic::layout,
     .decides = Decides::calls},
    {.name = "offload_optimizer",
     .field = At<&Options::offload_optimizer>::of,
     .keys = {"zero_optimization.offload_optimizer.device"},
     .option = "--offload-optimizer",
     .help = "where optimizer state and the gradients of what a rank updates lie: none (on its "
             "device), cpu (in host memory, where they are updated)",
     .topic = Topic::layout,
     .decides = Decides::calls,
     .engines = zero_engines},
    {.name = "on_nonfinite",
     .field = At<&Options::on_nonfinite>::of,
     .keys = {"on_nonfinite"},
     .option = "--on-nonfinite",
     .help = "what a gradient that isn't finite does: stop, or skip the step; with fp16 it always "
             "skips",
     .topic = Topic::failures,
     .decides = Decides::calls},
    {.name = "prescale_gradients",
     .field = At<&Options::prescale_gradients>::of,
     .keys = {"prescale_gradients"},
     .decides = Decides::bits,
     .shown_in = "gradient_division"},
    {.name = "predivide",
     .field = At<&Options::predivide>::of,
     .keys = {"gradient_predivide_factor"},
     .range = {.above_low = true},
     .decides = Decides::bits,
     .shown_in = "gradient_division"},
    {.name = "communication",
     .field = At<&Options::communication>::of,
     .keys = {"communication_data_type"},
     .own_reader = true,
     .decides = Decides::bits},
    {.name = "clip",
     .field = At<&Options::clip>::of,
     .keys = {"gradient_clipping"},
     .option = "--clip",
     .help = "largest global gradient norm; 0: any",
     .topic = Topic::rates,
     .decides = Decides::bits},
};

}  // namespace sg::dist
