// Streams whose work is done by threads of this process. Internal to core's backends.
#pragma once
#include <memory>
#include <string>

#include "core/backend.h"

namespace sg::detail {

std::shared_ptr<StreamState> thread_stream(Device device, const std::string& name);
std::shared_ptr<StreamState> inline_stream(
    Device device);  // on the calling thread, done when enqueue returns

}  // namespace sg::detail
