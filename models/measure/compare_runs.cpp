#include <fmt/format.h>

#include <algorithm>
#include <functional>

#include "core/ledger.h"
#include "dist/comm/traffic.h"
#include "dist/engines/facts.h"
#include "models/measure/compare.h"

namespace sg::models {
namespace {

constexpr Category model_states[] = {
    Category::parameters, Category::gradients, Category::optimizer, Category::accumulation};

// The largest of `value` over the ranks.
uint64_t largest(const Json& by_rank, const std::function<uint64_t(const Json& rank)>& value) {
  uint64_t most = 0;
  for (const auto& [rank, json] : by_rank.items())
    most = std::max(most, value(json));
  return most;
}

Json memory_of_ranks(const Json& by_rank) {
  Json memory = Json::object();
  for (const auto& [category, bytes] : by_rank.at("0").items()) {
    const std::string name = category;
    memory[name] =
        largest(by_rank, [&](const Json& rank) { return rank.at(name).get<uint64_t>(); });
  }
  return memory;
}

uint64_t model_state_of(const Json& by_rank) {
  return largest(by_rank, [](const Json& rank) {
    uint64_t bytes = 0;
    for (const Category category : model_states)
      bytes += rank.at(name_of(category)).get<uint64_t>();
    return bytes;
  });
}

// Bytes of gradients and parameters that cross in a step.
Json traffic_per_step(const Json& by_rank, uint64_t steps) {
  Json traffic = Json::object();
  for (int i = 0; i < dist::operation_count; ++i) {
    const char* operation = dist::name_of(static_cast<dist::Operation>(i));
    const auto bytes = [&](const char* way) {
      return largest(by_rank, [&](const Json& rank) -> uint64_t {
        const bool used = rank.contains(operation) && rank.at(operation).contains("step");
        return used ? rank.at(operation).at("step").at(way).get<uint64_t>() / steps : 0;
      });
    };
    if (bytes("sent") + bytes("received") > 0)
      traffic[operation] = {{"sent", bytes("sent")}, {"received", bytes("received")}};
  }
  return traffic;
}

// Names in rising order of a value; equal ones stay in the order of the runs.
template <class ValueOf>
Json sorted_by(const Json& engines, const ValueOf& value_of) {
  std::vector<std::string> order;
  for (const auto& [name, engine] : engines.items())
    order.push_back(name);
  std::stable_sort(order.begin(), order.end(), [&](const std::string& a, const std::string& b) {
    return value_of(engines.at(a)) < value_of(engines.at(b));
  });
  return order;
}

double step_ms_of(const Json& engine) {
  return engine.at("step_ms").get<double>();
}

uint64_t states_of(const Json& engine) {
  return engine.at("model_state").get<uint64_t>();
}
uint64_t peak_of(const Json& engine) {
  return engine.at("memory").at("total").get<uint64_t>();
}

// The textbook's order of those that ran.
Json textbook(const Json& engines, bool reverse) {
  Json names = Json::array();
  // ZeRO's paper and the textbooks after it: each rung saves memory and costs speed.
  for (const dist::EngineKind kind : dist::ladder()) {
    const std::string name = dist::name_of(kind);
    if (engines.contains(name))
      names.push_back(name);
  }
  if (reverse)
    std::reverse(names.begin(), names.end());
  return names;
}

// ---- as a text

constexpr int column = 14, margin = 22;

std::string mebibytes(const Json& bytes) {
  return fmt::format("{:.2f}", bytes.get<double>() / 0x1p20);
}

// A line with `cell(engine)` of every engine; empty where all cells are.
std::string row(const Json& engines,
                const std::string& title,
                const std::function<std::string(const Json&)>& cell) {
  std::string text = fmt::format("{:<{}}", title, margin);
  bool any = false;
  for (const auto& [name, engine] : engines.items()) {
    const std::string value = cell(engine);
    any |= !value.empty();
    text += fmt::format("{:>{}}", value.empty() ? "-" : value, column);
  }
  return any ? text + "\n" : "";
}

std::string memory_rows(const Json& engines) {
  std::string text = "memory, MiB, of the rank with most\n";
  text +=
      row(engines, "  model states", [](const Json& e) { return mebibytes(e.at("model_state")); });
  for (int i = 0; i < category_count; ++i) {
    const char* name = name_of(static_cast<Category>(i));
    text += row(engines, fmt::format("  {}", name), [&](const Json& e) {
      const Json& bytes = e.at("memory").at(name);
      return bytes == 0 ? std::string() : mebibytes(bytes);
    });
  }
  for (const auto& [title, key] :
       {std::pair{"  peak of the sum", "total"}, {"  peak of set-up", "setup"}}) {
    const char* const figure = key;
    text +=
        row(engines, title, [&](const Json& e) { return mebibytes(e.at("memory").at(figure)); });
    text += row(engines, "    planned", [&](const Json& e) {
      return mebibytes(e.at("planned").at(figure));
    });
  }
  return text;
}

std::string traffic_rows(const Json& engines) {
  std::string text;
  for (int i = 0; i < dist::operation_count; ++i) {
    const char* name = dist::name_of(static_cast<dist::Operation>(i));
    text += row(engines, fmt::format("  {}", name), [&](const Json& e) -> std::string {
      if (!e.at("traffic").contains(name))
        return {};
      const Json& bytes = e.at("traffic").at(name);
      return mebibytes(bytes.at("sent")) + "/" + mebibytes(bytes.at("received"));
    });
  }
  return text.empty() ? text : "MiB sent/received a step, by the rank with most\n" + text;
}

std::string joined(const Json& names, const char* between) {
  std::string text;
  for (const auto& name : names)
    text += (text.empty() ? "" : between) + name.get<std::string>();
  return text;
}

}  // namespace

Json compare_runs(const std::vector<EngineRun>& runs) {
  const auto ddp = std::find_if(
      runs.begin(), runs.end(), [](const EngineRun& run) { return run.engine == "ddp"; });
  const EngineRun& reference = ddp == runs.end() ? runs.front() : *ddp;
  const Json& shared = reference.receipt;
  Json engines = Json::object();
  for (const auto& [name, receipt, planned] : runs) {
    const bool equal = receipt.at("loss_bits") == shared.at("loss_bits") &&
                       receipt.at("params_sha256") == shared.at("params_sha256");
    engines[name] = {
        {"step_ms", receipt.at("median_step_ms")},
        {"memory", memory_of_ranks(receipt.at("memory"))},
        {"planned", planned},
        {"model_state", model_state_of(receipt.at("memory"))},
        {"traffic", traffic_per_step(receipt.at("traffic"), receipt.at("steps").get<uint64_t>())},
        {"comm_ms", receipt.at("comm_ms")},
        {"exposed_comm_ms", receipt.at("exposed_comm_ms")},
        {"bits_equal", equal},
        {"receipt", receipt}};
  }
  return {{"model", shared.at("model")},
          {"parameters", shared.at("parameters")},
          {"world", shared.at("world")},
          {"steps", shared.at("steps")},
          {"precision", shared.at("precision")},
          {"numerics", shared.at("numerics")},
          {"reference", reference.engine},
          {"by_speed", sorted_by(engines, step_ms_of)},
          {"by_memory", sorted_by(engines, states_of)},
          {"by_peak", sorted_by(engines, peak_of)},
          {"textbook",
           {{"by_speed", textbook(engines, false)}, {"by_memory", textbook(engines, true)}}},
          {"engines", std::move(engines)}};
}

std::string comparison_text(const Json& c) {
  const Json& engines = c.at("engines");
  const auto number = [&](const char* key) { return c.at(key).get<int64_t>(); };
  const auto text_of = [](const Json& json) { return json.get<std::string>(); };
  const double reference_ms = engines.at(text_of(c.at("reference"))).at("step_ms");
  std::string text = fmt::format("{}, {:.2f} million parameters, {} rank{}, {} steps, {}, {}\n",
                                 text_of(c.at("model")),
                                 1e-6 * static_cast<double>(number("parameters")),
                                 number("world"),
                                 number("world") == 1 ? "" : "s",
                                 number("steps"),
                                 text_of(c.at("precision")),
                                 text_of(c.at("numerics").at("accumulation")));
  text += fmt::format("{:<{}}", "", margin);
  for (const auto& [name, engine] : engines.items())
    text += fmt::format("{:>{}}", name, column);
  text += "\n";
  const auto milliseconds = [](const char* key) {
    return [key](const Json& e) { return fmt::format("{:.2f}", e.at(key).get<double>()); };
  };
  text += row(engines, "step, ms", milliseconds("step_ms"));
  text += row(engines, "  of " + text_of(c.at("reference")) + "'s", [&](const Json& e) {
    return fmt::format("{:.2f}", e.at("step_ms").get<double>() / reference_ms);
  });
  text += row(engines, "communication, ms", milliseconds("comm_ms"));
  text += row(engines, "  of it exposed", milliseconds("exposed_comm_ms"));
  text += memory_rows(engines) + traffic_rows(engines);
  text += row(engines, "bits of " + text_of(c.at("reference")), [](const Json& e) -> std::string {
    return e.at("bits_equal").get<bool>() ? "equal" : "different";
  });
  const Json& book = c.at("textbook");
  text += fmt::format("fastest first:        {}   (textbook: {})\n",
                      joined(c.at("by_speed"), " > "),
                      joined(book.at("by_speed"), " > "));
  text += fmt::format("least states first:   {}   (textbook: {})\n",
                      joined(c.at("by_memory"), " > "),
                      joined(book.at("by_memory"), " > "));
  return text + fmt::format("lowest peak first:    {}\n", joined(c.at("by_peak"), " > "));
}

}  // namespace sg::models
