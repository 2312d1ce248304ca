// Stopping on request: SIGINT, SIGTERM and SIGUSR1 ask the run to finish its step, save and end.
#pragma once

namespace sg::models {

// SIGPIPE no longer ends the process. From now on the first of these signals sets a flag; a second
// ends the process at once.
void catch_stop_signals();
bool stop_requested();

}  // namespace sg::models
