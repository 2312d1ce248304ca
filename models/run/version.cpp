#include "models/run/version.h"

namespace sg::models {

const char* const version = SG_VERSION;

}  // namespace sg::models
