#include "models/run/progress.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "core/io/atomic_file.h"
#include "dist/comm/connect.h"

namespace sg::models {
namespace {

constexpr int64_t plain_lines = 20;  // about so many in a whole run

std::string duration(double seconds) {
  const auto s = static_cast<int64_t>(seconds + 0.5);
  if (s < 60)
    return fmt::format("{} s", s);
  if (s < 3600)
    return fmt::format("{}:{:02} min", s / 60, s % 60);
  return fmt::format("{}:{:02} h", s / 3600, s / 60 % 60);
}

// A line that wrapped could not be renewed.
size_t terminal_width() {
  winsize size{};
  return ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 1 ? size.ws_col - 1u : 79;
}

// Keeps the lines of earlier steps; one that was cut short goes too.
void drop_lines_from(const std::string& path, int64_t first_step) {
  std::ifstream in(path);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_object() && json.value("step", first_step) < first_step)
      kept += line + "\n";
  }
  write_file_atomically(path, kept);
}

}  // namespace

Progress::Progress(bool speaks,
                   int64_t steps,
                   int64_t every,
                   int64_t tokens_per_step,
                   const std::string& out,
                   int64_t first_step)
    : speaks_(speaks),
      terminal_(isatty(STDOUT_FILENO) != 0 &&
                !dist::under_launcher()),  // mpirun gives ranks a terminal of its own
      steps_(steps),
      tokens_per_step_(tokens_per_step),
      every_(every > 0 ? every : std::max<int64_t>(1, steps / plain_lines)) {
  if (!speaks || out.empty())
    return;
  const std::string path = out + "/metrics.jsonl";
  if (std::filesystem::exists(path))
    drop_lines_from(path, first_step);
  metrics_ = std::fopen(path.c_str(), "a");
  check(
      ErrorKind::io, metrics_ != nullptr, "train: can't write {}: {}", path, std::strerror(errno));
}

Progress::~Progress() {
  if (open_line_)
    std::fputc('\n', stdout);
  if (metrics_)
    std::fclose(metrics_);
}

std::optional<double> Progress::mfu(double step_seconds) const {
  const double share = ideal_seconds_ / step_seconds;
  if (ideal_seconds_ > 0 && share <= 1)
    return share;
  return std::nullopt;
}

std::string Progress::line_of(const StepReport& r) const {
  std::string line =
      fmt::format("step {:>{}}/{}  loss {:.4f}  lr {:.2e}  norm {:.3f}  {:.0f} tokens/s",
                  r.step + 1,
                  fmt::formatted_size("{}", steps_),
                  steps_,
                  r.loss,
                  r.lr,
                  r.norm,
                  static_cast<double>(tokens_per_step_) / recent_seconds_);
  if (ideal_seconds_ > 0)
    line += "  MFU " +
            (mfu(recent_seconds_) ? fmt::format("{:.0f} %", 100 * *mfu(recent_seconds_)) : "–");
  line += fmt::format("  {}  {} left",
                      format_bytes(r.memory),
                      duration(recent_seconds_ * static_cast<double>(steps_ - r.step - 1)));
  return r.skipped.empty() ? line : line + "  skipped: " + r.skipped;
}

void Progress::step(const StepReport& r) {
  if (!speaks_)
    return;
  // The first step of a process makes primitives and fills pools: it tells nothing of the next
  // ones.
  const double weight = 1.0 / static_cast<double>(std::clamp<int64_t>(steps_seen_++, 1, 20));
  recent_seconds_ += weight * (r.seconds - recent_seconds_);
  Json line = {{"step", r.step},
               {"loss", r.loss},
               {"lr", r.lr},
               {"grad_norm", r.norm},
               {"tokens_per_second", static_cast<double>(tokens_per_step_) / r.seconds},
               {"mfu", mfu(r.seconds) ? Json(*mfu(r.seconds)) : Json()},
               {"memory", r.memory}};
  if (!r.skipped.empty())
    line["skipped"] = r.skipped;
  write_metrics(line);

  const bool last = r.step + 1 == steps_;
  if (terminal_) {
    std::fprintf(stdout, "\r%s\033[K", line_of(r).substr(0, terminal_width()).c_str());
    std::fflush(stdout);
    open_line_ = true;
  } else if (r.step == 0 || last || (r.step + 1) % every_ == 0 || !r.skipped.empty()) {
    note(line_of(r));
  }
}

void Progress::validation(const Validation& v) {
  if (!speaks_)
    return;
  write_metrics({{"step", v.step - 1}, {"validation", v.loss}});
  note(fmt::format("step {}  validation loss {:.4f}", v.step, v.loss));
}

void Progress::saved(const SaveReport& save) {
  if (!speaks_)
    return;
  write_metrics({{"step", save.step - 1}, {"save_stall_ms", 1e3 * save.stall_seconds}});
  note(fmt::format(
      "step {}  saved; training stood still for {:.0f} ms", save.step, 1e3 * save.stall_seconds));
}

void Progress::note(const std::string& text) {
  if (!speaks_)
    return;
  std::fprintf(stdout, "%s%s\n", open_line_ ? "\n" : "", text.c_str());
  std::fflush(stdout);
  open_line_ = false;
}

void Progress::write_metrics(const Json& line) {
  if (!metrics_)
    return;
  const std::string text = line.dump() + "\n";
  const bool written = std::fwrite(text.data(), 1, text.size(), metrics_) == text.size() &&
                       std::fflush(metrics_) == 0;
  check(ErrorKind::io, written, "train: can't write metrics.jsonl: {}", std::strerror(errno));
}

}  // namespace sg::models
