// The `plan` subcommand: its table, its JSON, the devices it knows.
#include <chrono>
#include <cmath>
#include <cstdio>

#include "core/ops.h"
#include "models/run/peak.h"
#include "models/run/plan.h"
#include "models/run/receipt.h"

namespace sg::models {
namespace {

double seconds_of(const std::function<void()>& body) {
  const auto begin = std::chrono::steady_clock::now();
  body();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// This machine: a large product, a large copy (read and written), and copies between ranks at that
// speed.
dist::Hardware measured_here(DType precision) {
  constexpr int64_t side = 1024, elements = int64_t{1} << 25;
  const DeviceGuard guard(cpu(max_devices - 1));
  const Tensor a = full({side, side}, 0.01, precision), out = empty({side, side}, precision);
  const Tensor x = zeros({elements}), y = zeros({elements});
  double product = INFINITY, copy = INFINITY;
  for (int repeat = 0; repeat < 4; ++repeat) {
    product = std::min(product, seconds_of([&] { matmul_(out, a, a, false); }));
    copy = std::min(copy, seconds_of([&] { copy_(y, x); }));
  }
  const double bandwidth = 8.0 * static_cast<double>(elements) / copy;
  return {"this", 2.0 * side * side * side / product, bandwidth, bandwidth / 4, 20e-6};
}

std::string table_row(const dist::EnginePlan& plan) {
  std::string row = fmt::format("{:<6} {:>10.4g}",
                                dist::name_of(plan.engine),
                                static_cast<double>(plan.most.model_states) * 1e-9);
  for (Category c : {Category::parameters,
                     Category::gradients,
                     Category::optimizer,
                     Category::accumulation,
                     Category::buckets,
                     Category::live,
                     Category::activations,
                     Category::workspace}) {
    row += fmt::format(" {:>9.4g}", static_cast<double>(plan.most.of(c)) * 1e-9);
  }
  return row + fmt::format(" {:>9.4g} {:>9.4g} {:>9.4g}",
                           static_cast<double>(plan.most.total) * 1e-9,
                           static_cast<double>(plan.most.setup) * 1e-9,
                           static_cast<double>(plan.host.total_peak()) * 1e-9);
}

std::string traffic_row(const dist::EnginePlan& plan) {
  std::string row = fmt::format("{:<6}", dist::name_of(plan.engine));
  for (int operation = 0; operation < dist::operation_count; ++operation) {
    const dist::Traffic& t =
        plan.traffic[static_cast<size_t>(operation)][static_cast<size_t>(dist::Phase::step)];
    if (t.sent + t.received == 0)
      continue;
    row += fmt::format("  {} {:.4g} sent, {:.4g} received in {} calls",
                       dist::name_of(static_cast<dist::Operation>(operation)),
                       static_cast<double>(t.sent) * 1e-9,
                       static_cast<double>(t.received) * 1e-9,
                       t.calls);
  }
  // Nobody told how fast the host is.
  const bool host_updates = plan.host.peak(Category::optimizer) > 0;
  return row + fmt::format("  about {:.4g} s a step, {:.4g} s of it waiting for others{}",
                           plan.step_seconds(),
                           plan.exposed_seconds,
                           host_updates ? ", without the host's update and copies" : "");
}

Json json_of(const dist::EnginePlan& plan) {
  Json memory;
  for (int c = 0; c < category_count; ++c)
    memory[name_of(static_cast<Category>(c))] = plan.most.of(static_cast<Category>(c));
  Json host;  // of the rank that needs most of its device
  for (int c = 0; c < category_count; ++c)
    host[name_of(static_cast<Category>(c))] = plan.host.peak(static_cast<Category>(c));
  host["total"] = plan.host.total_peak();
  memory["total"] = plan.most.total;
  memory["setup"] = plan.most.setup;
  return {{"engine", dist::name_of(plan.engine)},
          {"model_states", plan.most.model_states},
          {"memory", memory},
          {"host_memory", host},
          {"traffic", traffic_of(plan.traffic)},
          {"step_seconds", plan.step_seconds()},
          {"compute_seconds", plan.compute_seconds},
          {"communication_seconds", plan.communication_seconds},
          {"exposed_seconds", plan.exposed_seconds}};
}

// The family's model that is nearest to a number of parameters; context and vocabulary that were
// given stay.
void take_nearest(const Family& family, const PlanOptions& options, SizeOptions& size) {
  const SizeOptions nearest = family.nearest(options.parameters);
  size.size = nearest.size;
  size.layers = nearest.layers;
  size.width = nearest.width;
  size.heads = nearest.heads;
  if (!size.context)
    size.context = nearest.context;
  if (!size.vocab)
    size.vocab = nearest.vocab;
}

void print_json(const PlanOptions& options,
                const dist::Hardware& on,
                const std::vector<dist::EnginePlan>& plans) {
  const SizeOptions& size = options.size;
  Json json{{"layers", *size.layers},
            {"width", *size.width},
            {"heads", *size.heads},
            {"vocab", *size.vocab},
            {"context", *size.context},
            {"world", options.group.ranks},
            {"precision", dist::precision_name(options.engine.precision)},
            {"device", on.name},
            {"engines", Json::array()}};
  for (const dist::EnginePlan& p : plans)
    json["engines"].push_back(json_of(p));
  std::printf("%s\n", json.dump(2).c_str());
}

}  // namespace

dist::Hardware hardware(const std::string& name, DType precision) {
  const bool half = is_16bit(precision);
  if (name == "a100")
    return {name, half ? 312e12 : 19.5e12, 2.0e12, 300e9, 5e-6};
  if (name == "h100")
    return {name, half ? 989e12 : 67e12, 3.35e12, 450e9, 5e-6};
  if (name == "h200")
    return {name, half ? 989e12 : 67e12, 4.8e12, 450e9, 5e-6};
  if (name == "this")
    return measured_here(precision);
  fail(ErrorKind::usage, "plan: device \"{}\" is none of a100, h100, h200, this", name);
}

void plan(const Family& family, const PlanOptions& given) {
  PlanOptions options = given;
  if (options.parameters > 0)
    take_nearest(family, options, options.size);
  family.resolve(options.size, 50257);
  if (options.group.ranks > max_devices)
    options.group.imitated = dist::Imitated::mpi;  // more ranks than threads can be
  const dist::Hardware on = hardware(options.hardware, options.engine.precision);
  std::vector<dist::EnginePlan> plans;
  for (dist::EngineKind engine : options.engines) {
    options.engine.engine = engine;
    plans.push_back(
        dist::plan_engine(dry_model(family, options), options.engine, options.group, on));
  }
  if (options.json)
    return print_json(options, on, plans);
  const SizeOptions& size = options.size;
  const DeviceGuard guard(meta(1));
  const int64_t parameters = family.build(size, 1)->parameter_count();
  std::printf("%s\n",
              fmt::format("{} of {} layers, width {}, {} heads, vocabulary {}: {:.4g} billion "
                          "parameters, {} ranks, {}, {} × {} "
                          "tokens a micro-step and rank, on {}",
                          family.name,
                          *size.layers,
                          *size.width,
                          *size.heads,
                          *size.vocab,
                          static_cast<double>(parameters) * 1e-9,
                          options.group.ranks,
                          dist::precision_name(options.engine.precision),
                          options.batch.micro,
                          *size.context,
                          on.name)
                  .c_str());
  std::printf(
      "GB (10^9 bytes), peaks, each of the rank with most:\n%-6s %10s %9s %9s %9s %9s %9s %9s %9s "
      "%9s %9s %9s %9s\n",
      "engine",
      "states",
      "params",
      "grads",
      "optimizer",
      "accum.",
      "buckets",
      "live",
      "activ.",
      "workspace",
      "total",
      "set-up",
      "host");
  for (const dist::EnginePlan& p : plans)
    std::printf("%s\n", table_row(p).c_str());
  std::printf("GB per rank and step:\n");
  for (const dist::EnginePlan& p : plans)
    std::printf("%s\n", traffic_row(p).c_str());
}

}  // namespace sg::models
