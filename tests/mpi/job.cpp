#include "tests/mpi/job.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

namespace sg::testing {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

using test::contents_of;

// Whether a process's environment has "name=value".
bool has(pid_t process, const std::string& variable) {
  const std::string all = '\0' + contents_of("/proc/" + std::to_string(process) + "/environ");
  return all.find('\0' + variable + '\0') != std::string::npos;
}

bool is_zombie(pid_t process) {
  const std::string stat = contents_of("/proc/" + std::to_string(process) + "/stat");
  const size_t bracket = stat.rfind(')');
  return bracket != std::string::npos && stat.compare(bracket, 3, ") Z") == 0;
}

void rest() {
  std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

}  // namespace

Job::Job(const std::string& command) {
  static int jobs = 0;
  mark_ = "SHARDGRAD_TEST_JOB=" + std::to_string(getpid()) + "." + std::to_string(jobs++);
  const std::string output = folder_ / "output", words = "exec " + command;
  launcher_ = fork();
  if (launcher_ != 0)
    return;
  const int file = open(output.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  dup2(open("/dev/null", O_RDONLY), STDIN_FILENO);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  putenv(mark_.data());
  execl("/bin/sh", "sh", "-c", words.c_str(), nullptr);
  _exit(127);
}

Job::~Job() {
  for (const pid_t process : processes())
    kill(process, SIGKILL);
  if (!waited_ && launcher_ > 0)
    waitpid(launcher_, nullptr, 0);
}

std::vector<pid_t> Job::processes() const {
  std::vector<pid_t> found;
  for (const auto& entry : fs::directory_iterator("/proc")) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    if (process > 0 && has(process, mark_) && !is_zombie(process))
      found.push_back(process);
  }
  return found;
}

pid_t Job::rank(int number) const {
  const std::string text = std::to_string(number);
  for (int i = 0; i < 6000; ++i, rest())
    for (const pid_t process : processes())
      for (const char* variable : {"OMPI_COMM_WORLD_RANK=", "PMI_RANK="})
        if (has(process, variable + text))
          return process;
  return -1;
}

void Job::signal(int number) const {
  kill(launcher_, number);
}

bool Job::sees(const std::string& path) const {
  while (!fs::exists(path)) {
    siginfo_t info{};
    const bool ended =
        waitid(P_PID, static_cast<id_t>(launcher_), &info, WEXITED | WNOHANG | WNOWAIT) != 0 ||
        info.si_pid == launcher_;
    if (ended)
      return fs::exists(path);
    rest();
  }
  return true;
}

JobResult Job::wait(double seconds) {
  const auto begin = Clock::now();
  int status = 0;
  pid_t ended = 0;
  while ((ended = waitpid(launcher_, &status, WNOHANG)) == 0 && seconds_since(begin) < seconds)
    rest();
  if (ended == 0) {
    kill(launcher_, SIGKILL);
    waitpid(launcher_, &status, 0);
  }
  waited_ = true;
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status),
          seconds_since(begin),
          contents_of(folder_ / "output")};
}

std::vector<pid_t> Job::left(double patience) const {
  const auto begin = Clock::now();
  std::vector<pid_t> living;
  while (!(living = processes()).empty() && seconds_since(begin) < patience)
    rest();
  return living;
}

}  // namespace sg::testing
