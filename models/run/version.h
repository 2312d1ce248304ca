#pragma once

namespace sg::models {

extern const char* const version;  // of this build: the project's, "0.1.0"

}  // namespace sg::models
