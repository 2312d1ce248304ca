#include "cli/program.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

namespace sg::cli {
namespace {

// The words of a command; an option that comes twice is where it first was, with its last value.
std::vector<std::string> words_of(const std::string& arguments) {
  std::vector<std::string> words;
  std::istringstream stream(arguments);
  for (std::string word; stream >> word;) {
    const auto before = std::find(words.begin(), words.end(), word);
    if (word.rfind("--", 0) != 0 || before == words.end()) {
      words.push_back(word);
    } else if (stream >> word) {
      *(before + 1) = word;
    }
  }
  return words;
}

// Starts gpt2 with its output in files of `folder`.
pid_t start(const std::string& arguments, const Folder& folder, uint64_t file_limit = 0) {
  const std::string program = SG_BINARY_DIR "/bin/gpt2", out = folder / "stdout",
                    err = folder / "stderr";
  std::vector<std::string> words = words_of(arguments);
  std::vector<char*> argv = {const_cast<char*>(program.c_str())};
  for (std::string& word : words)
    argv.push_back(word.data());
  argv.push_back(nullptr);
  const pid_t child = fork();
  if (child != 0)
    return child;
  dup2(open(out.c_str(), O_CREAT | O_WRONLY, 0600), STDOUT_FILENO);
  dup2(open(err.c_str(), O_CREAT | O_WRONLY, 0600), STDERR_FILENO);
  if (file_limit > 0) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{file_limit, file_limit};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  execv(program.c_str(), argv.data());
  _exit(127);
}

Outcome outcome_of(pid_t child, const Folder& folder) {
  int status = 0;
  waitpid(child, &status, 0);
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
          read(folder / "stdout"),
          read(folder / "stderr")};
}

}  // namespace

void write(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}
std::string read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}
nlohmann::json read_json(const std::string& path) {
  return nlohmann::json::parse(read(path), nullptr, false);
}

Outcome gpt2(const std::string& arguments, uint64_t file_limit) {
  const Folder folder;
  return outcome_of(start(arguments, folder, file_limit), folder);
}

Outcome gpt2_interrupted(const std::string& arguments, const Interruption& interruption) {
  const Folder folder;
  const pid_t child = start(arguments, folder);
  if (interruption.file.empty())
    std::this_thread::sleep_for(std::chrono::duration<double>(interruption.seconds));
  for (int i = 0;
       i < 3000 && !interruption.file.empty() && !std::filesystem::exists(interruption.file);
       ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  kill(child, interruption.signal);
  return outcome_of(child, folder);
}

std::string small_text() {
  std::string text;
  for (int i = 0; i < 400; ++i)
    text += fmt::format("{} bottles hang on the wall, {} fall. ", i % 17, i % 5);
  return text;
}

const char* const tiny =
    " --size nano --layers 2 --heads 2 --width 16 --context 16 --micro-batch 2 --tokenizer chars "
    "--threads 1"
    " --eval-batches 2 --warmup 2 ";

}  // namespace sg::cli
