#include "models/run/signals.h"

#include <signal.h>
#include <unistd.h>

#include <initializer_list>

namespace sg::models {
namespace {

volatile sig_atomic_t requests = 0;

void on_signal(int number) {
  if (requests)
    _exit(128 + number);  // async-signal-safe; the checkpoint on disk is whole at any moment
  requests = 1;
}

}  // namespace

void catch_stop_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = SA_RESTART;
  signal(SIGPIPE, SIG_IGN);  // whoever read along has gone; training needn't
  for (const int number : {SIGINT, SIGTERM, SIGUSR1})
    sigaction(number, &action, nullptr);
}

bool stop_requested() {
  return requests != 0;
}

}  // namespace sg::models
