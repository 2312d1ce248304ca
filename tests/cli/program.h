// Runs the executable as a user would, in a folder of its own.
#pragma once
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/core/temporary_folder.h"

namespace sg::cli {

struct Outcome {
  int code = -1;  // exit code; −9 when SIGKILL ended it
  std::string out, err;
  std::string both() const { return out + err; }
};

using Folder = test::TemporaryFolder;

void write(const std::string& path, const std::string& contents);
std::string read(const std::string& path);
nlohmann::json read_json(const std::string& path);

// gpt2 with these arguments (by spaces), to its end. file_limit: bytes that a file may hold, which
// fails writing as a full disk does.
Outcome gpt2(const std::string& arguments, uint64_t file_limit = 0);

struct Interruption {
  int signal = 0;
  std::string file;    // sent as soon as this exists; empty:
  double seconds = 0;  // sent so long after the start
};
Outcome gpt2_interrupted(const std::string& arguments, const Interruption& interruption);

// A text that a small model learns from, and options that make a run short.
std::string small_text();
extern const char* const tiny;  // a model of a few thousand parameters

}  // namespace sg::cli
