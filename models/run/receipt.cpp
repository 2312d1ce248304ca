#include "models/run/receipt.h"

#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "core/device.h"
#include "core/io/json.h"
#include "models/run/version.h"

namespace sg::models {
namespace {

std::string bits_of(float x) {
  return fmt::format("{:08x}", std::bit_cast<uint32_t>(x));
}

// JSON has no NaN and no infinity.
Json number(double x) {
  return std::isfinite(x) ? Json(x) : Json();
}

Json null_if_zero(double x) {
  return x > 0 ? Json(x) : Json();
}

}  // namespace

std::string RunRecord::text() const {
  Json json;
  for (const float loss : losses)
    json["loss_bits"].push_back(bits_of(loss));
  json["loss_scale"] = loss_scales;
  json["skipped"] = skipped;
  for (const Validation& v : validation)
    json["validation"].push_back({{"step", v.step}, {"bits", std::bit_cast<uint64_t>(v.loss)}});
  json["samples"] = samples;
  json["applied"] = applied;
  json["first_step_ms"] = first_step_ms;
  json["median_step_ms"] = median_step_ms;
  return json.dump();
}

RunRecord RunRecord::parse(const std::string& text, const std::string& source) {
  RunRecord record;
  try {
    const nlohmann::json json = parse_json(text, source);
    for (const auto& bits : json.value("loss_bits", nlohmann::json::array()))
      record.losses.push_back(std::bit_cast<float>(
          static_cast<uint32_t>(std::stoul(bits.get<std::string>(), nullptr, 16))));
    record.loss_scales = json.at("loss_scale").get<std::vector<double>>();
    record.skipped = json.at("skipped").get<std::vector<std::string>>();
    for (const auto& v : json.value("validation", nlohmann::json::array()))
      record.validation.push_back(
          {whole_field(v, "step", source), std::bit_cast<double>(v.at("bits").get<uint64_t>())});
    const size_t steps = record.losses.size();
    check(ErrorKind::bad_input,
          record.loss_scales.size() == steps && record.skipped.size() == steps,
          "{}: the record of the run has {} losses, {} loss scales, {} causes of skipping",
          source,
          steps,
          record.loss_scales.size(),
          record.skipped.size());
    record.samples = whole_field(json, "samples", source);
    record.applied = whole_field(json, "applied", source, 0, static_cast<int64_t>(steps));
    record.first_step_ms = json.at("first_step_ms");
    record.median_step_ms = json.at("median_step_ms");
  } catch (const Error&) {
    throw;
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::bad_input, "{}: the record of the run is damaged: {}", source, complaint_of(e));
  } catch (const std::exception& e) {
    fail(ErrorKind::bad_input, "{}: the record of the run is damaged: {}", source, e.what());
  }
  return record;
}

Json memory_of(Device device) {
  Json json = Json::object();
  const Ledger ledger = pool(device).ledger();
  for (int i = 0; i < category_count; ++i) {
    const auto category = static_cast<Category>(i);
    json[name_of(category)] = ledger.peak(category);
  }
  json["total"] = ledger.total_peak();
  json["setup"] = ledger.setup_peak();
  return json;
}

Json traffic_of(const dist::TrafficTable& table) {
  Json json = Json::object();
  for (int i = 0; i < dist::operation_count; ++i)
    for (int j = 0; j < dist::phase_count; ++j) {
      const dist::Traffic& t = table[static_cast<size_t>(i)][static_cast<size_t>(j)];
      if (t == dist::Traffic{})
        continue;
      json[dist::name_of(static_cast<dist::Operation>(i))][dist::name_of(
          static_cast<dist::Phase>(j))] = {
          {"calls", t.calls}, {"sent", t.sent}, {"received", t.received}, {"padding", t.padding}};
    }
  return json;
}

Json gather_json(dist::Comm& comm, const std::string& name, const Json& mine) {
  Json all = Json::object();
  const std::vector<std::string> texts =
      comm.all_gather_bytes({name, dist::Phase::metrics}, mine.dump());
  for (size_t rank = 0; rank < texts.size(); ++rank)
    all[std::to_string(rank)] = Json::parse(texts[rank]);
  return all;
}

uint64_t peak_rss_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

double seconds_since_start() {
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  // Field 22 of /proc/self/stat is the start in ticks since boot; the second one, in brackets, may
  // hold anything.
  std::ifstream file("/proc/self/stat");
  std::string text;
  std::getline(file, text);
  std::istringstream fields(text.substr(text.rfind(')') + 1));
  std::string field;
  for (int i = 3; i <= 22; ++i)
    fields >> field;
  const double start = std::atof(field.c_str()) / static_cast<double>(sysconf(_SC_CLK_TCK));
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec) - start;
}

double median(std::vector<double> values) {
  if (values.empty())
    return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

Json make_receipt(const RunIdentity& identity, const RunRecord& record) {
  Json receipt = {{"version", version},
                  {"model", identity.model},
                  {"sizes", identity.sizes},
                  {"parameters", identity.parameters},
                  {"engine", identity.engine},
                  {"world", identity.world},
                  {"precision", identity.precision},
                  {"seed", identity.seed},
                  {"steps", identity.steps},
                  {"numerics", identity.numerics},
                  {"loss", Json::array()},
                  {"loss_bits", Json::array()},
                  {"validation", Json::array()}};
  for (const float loss : record.losses) {
    receipt["loss"].push_back(number(loss));
    receipt["loss_bits"].push_back(bits_of(loss));
  }
  if (identity.precision != "f32") {
    receipt["loss_scale"] = record.loss_scales;
    for (const std::string& cause : record.skipped)
      receipt["skipped"].push_back(cause.empty() ? Json() : Json(cause));
  }
  for (const Validation& v : record.validation)
    receipt["validation"].push_back({{"step", v.step}, {"loss", number(v.loss)}});
  receipt["peak_rss_bytes"] = peak_rss_bytes();
  receipt["tokens_per_second"] =
      record.median_step_ms > 0
          ? Json(1e3 * static_cast<double>(identity.tokens_per_step) / record.median_step_ms)
          : Json();
  receipt["median_step_ms"] = null_if_zero(record.median_step_ms);
  receipt["first_step_ms"] = null_if_zero(record.first_step_ms);
  receipt["matmul_efficiency"] = nullptr;
  return receipt;
}

}  // namespace sg::models
