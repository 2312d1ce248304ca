#include "models/run/saved_run.h"

#include <set>
#include <sstream>

#include "core/io/json.h"

namespace sg::models {
namespace {

std::set<std::string> accepted_changes(const std::string& text) {
  std::set<std::string> accepted;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    check(word == "world" || word == "isa" || word == "library",
          "--accept-change: \"{}\" is none of world, isa, library", word);
    accepted.insert(word);
  }
  if (accepted.contains("world")) accepted.insert("micro_steps");
  return accepted;
}

}  // namespace

std::string SavedRun::text() const {
  return Json({{"family", family},
               {"size", size.size},
               {"layers", *size.layers},
               {"heads", *size.heads},
               {"width", *size.width},
               {"context", *size.context},
               {"vocab", *size.vocab},
               {"dropout", size.dropout},
               {"tied", size.tied},
               {"tokenizer", tokenizer},
               {"seed", seed},
               {"steps", steps},
               {"record", record.text()}})
      .dump();
}

SavedRun SavedRun::parse(const std::string& text, const std::string& source) {
  SavedRun run;
  try {
    const nlohmann::json json = parse_json(text, source);
    run.family = json.at("family");
    run.size.size = json.at("size");
    run.size.layers = json.at("layers").get<int64_t>();
    run.size.heads = json.at("heads").get<int64_t>();
    run.size.width = json.at("width").get<int64_t>();
    run.size.context = json.at("context").get<int64_t>();
    run.size.vocab = json.at("vocab").get<int64_t>();
    run.size.dropout = json.at("dropout");
    run.size.tied = json.at("tied");
    run.tokenizer = json.at("tokenizer");
    run.seed = json.at("seed");
    run.steps = json.at("steps");
    run.record = RunRecord::parse(json.at("record"), source);
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::bad_input, "{}: not a run of these programs: {}", source, e.what());
  }
  return run;
}

Numerics parse_numerics(const std::string& text, const std::string& source) {
  try {
    return parse_json(text, source).get<Numerics>();
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::bad_input, "{}: not the numerics of a run of these programs: {}", source, e.what());
  }
}

int64_t global_batch_of(const Numerics& saved, const std::string& source) {
  int64_t product = 1;
  for (const char* name : {"world", "micro_batch", "micro_steps"}) {
    const auto found = saved.find(name);
    check(ErrorKind::bad_input, found != saved.end(), "{}: its numerics lack {}", source, name);
    product *= std::stoll(found->second);
  }
  return product;
}

bool accepts_change(const std::string& accepted, const std::string& name) {
  return accepted_changes(accepted).contains(name);
}

void check_numerics(const Numerics& saved, const Numerics& now, const std::string& accepted,
                    const std::string& source) {
  const std::set<std::string> may_differ = accepted_changes(accepted);
  const auto check_one = [&](const std::string& name, const std::string& value) {
    const auto found = saved.find(name);
    const std::string before = found == saved.end() ? "nothing" : found->second;
    const bool acceptable = name == "world" || name == "isa" || name == "library";
    check(ErrorKind::bad_input, before == value || may_differ.contains(name),
          "resume: {} was saved with {} {}, this run has {}{}", source, name, before, value,
          acceptable ? fmt::format(" (--accept-change {} goes on with other bits)", name) : "");
  };
  const auto world = now.find("world");
  if (world != now.end()) check_one(world->first, world->second);  // before the micro-steps that follow from it
  for (const auto& [name, value] : now) check_one(name, value);
}

}  // namespace sg::models
