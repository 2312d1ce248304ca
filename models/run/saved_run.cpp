#include "models/run/saved_run.h"

#include <charconv>
#include <set>
#include <sstream>

#include "core/io/json.h"

namespace sg::models {
namespace {

constexpr int64_t largest_size = int64_t{1} << 31;  // as the command line has it

// What --accept-change may name, and what going on then means.
const std::map<std::string, std::string> acceptable = {
    {"world", "goes on with other bits"},
    {"isa", "goes on with other bits"},
    {"library", "goes on with other bits"},
    {"rules", "goes on under this version's rules"},
    {"steps", "stretches the schedule to the new length"}};

std::set<std::string> accepted_changes(const std::string& text) {
  std::set<std::string> accepted;
  std::istringstream words(text);
  for (std::string word; std::getline(words, word, ',');) {
    check(acceptable.contains(word),
          "--accept-change: \"{}\" is none of world, isa, library, rules, steps",
          word);
    accepted.insert(word);
  }
  if (accepted.contains("world"))
    accepted.insert("micro_steps");
  return accepted;
}

// Numerics from before there was a number of the rules: a schedule's length stood in its text,
// where DeepSpeed's have one, or nowhere.
void upgrade(Numerics& numerics, int64_t steps, const std::string& source) {
  numerics["rules"] = "1";
  const auto found = numerics.find("schedule");
  if (found == numerics.end())
    return;
  std::string& schedule = found->second;
  optim::ScheduleKind kind;
  try {
    kind = optim::parse_schedule(schedule.substr(0, schedule.find(' ')));
  } catch (const Error& e) {
    fail(ErrorKind::bad_input, "{}: {}", source, e.what());
  }
  if (!optim::depends_on_length(kind))
    return;
  const size_t over = schedule.rfind(" over ");
  numerics["steps"] = over == std::string::npos ? std::to_string(steps) : schedule.substr(over + 6);
  schedule = schedule.substr(0, over);
  if (kind == optim::ScheduleKind::wsd)
    schedule += " decay a tenth";
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
    const auto size = [&](const char* key) {
      return whole_field(json, key, source, 1, largest_size);
    };
    run.size.layers = size("layers"), run.size.heads = size("heads"),
    run.size.width = size("width");
    run.size.context = size("context"), run.size.vocab = size("vocab");
    run.size.dropout = json.at("dropout");
    check(ErrorKind::bad_input,
          0 <= run.size.dropout && run.size.dropout < 1,
          "{}: a dropout of {}",
          source,
          run.size.dropout);
    run.size.tied = json.at("tied");
    run.tokenizer = json.at("tokenizer");
    run.seed = json.at("seed").get<uint64_t>();
    run.steps = whole_field(json, "steps", source);
    run.record = RunRecord::parse(json.at("record"), source);
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::bad_input, "{}: not a run of these programs: {}", source, complaint_of(e));
  }
  return run;
}

Numerics numerics_of(const dist::CheckpointReader& checkpoint) {
  Numerics numerics;
  try {
    numerics = parse_json(checkpoint.numerics(), checkpoint.path()).get<Numerics>();
  } catch (const nlohmann::json::exception& e) {
    fail(ErrorKind::bad_input,
         "{}: not the numerics of a run of these programs: {}",
         checkpoint.path(),
         complaint_of(e));
  }
  if (!numerics.contains("rules"))
    upgrade(
        numerics, SavedRun::parse(checkpoint.state(), checkpoint.path()).steps, checkpoint.path());
  numerics.emplace("frozen", "none");  // before parameters could be
  return numerics;
}

std::optional<int64_t> warmup_of(const Numerics& saved) {
  constexpr std::string_view word = " warmup ";
  const auto schedule = saved.find("schedule");
  if (schedule == saved.end())
    return std::nullopt;
  const size_t at = schedule->second.find(word);
  if (at == std::string::npos)
    return std::nullopt;
  return std::atoll(schedule->second.c_str() + at + word.size());
}

int64_t global_batch_of(const Numerics& saved, const std::string& source) {
  int64_t product = 1;
  for (const char* name : {"world", "micro_batch", "micro_steps"}) {
    const auto found = saved.find(name);
    check(ErrorKind::bad_input, found != saved.end(), "{}: its numerics lack {}", source, name);
    const char* const end = found->second.data() + found->second.size();
    int64_t factor = 0;
    const auto [rest, error] = std::from_chars(found->second.data(), end, factor);
    check(ErrorKind::bad_input,
          error == std::errc() && rest == end && factor > 0 &&
              !__builtin_mul_overflow(product, factor, &product),
          "{}: its numerics have {} {}",
          source,
          name,
          found->second);
  }
  return product;
}

bool accepts_change(const std::string& accepted, const std::string& name) {
  return accepted_changes(accepted).contains(name);
}

std::vector<std::string> check_numerics(const Numerics& saved,
                                        const Numerics& now,
                                        const std::string& accepted,
                                        const std::string& source) {
  const std::set<std::string> may_differ = accepted_changes(accepted);
  std::vector<std::string> differences;
  const auto check_one = [&](const std::string& name, const std::string& value) {
    const auto found = saved.find(name);
    const std::string before = found == saved.end() ? "nothing" : found->second;
    if (before == value)
      return;
    const auto remedy = acceptable.find(name);
    check(ErrorKind::bad_input,
          may_differ.contains(name),
          "resume: {} was saved with {} {}, this run has {}{}",
          source,
          name,
          before,
          value,
          remedy == acceptable.end()
              ? ""
              : fmt::format(" (--accept-change {} {})", name, remedy->second));
    differences.push_back(fmt::format("resumed with {} {}, saved with {}", name, value, before));
  };
  // What others follow from comes first.
  for (const char* name : {"world", "rules"})
    if (now.contains(name))
      check_one(name, now.at(name));
  for (const auto& [name, value] : now)
    if (name != "world" && name != "rules")
      check_one(name, value);
  return differences;
}

}  // namespace sg::models
