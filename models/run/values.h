// Texts of options and what they mean; a text that means nothing is a usage error that names the
// option.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "dist/options.h"

namespace sg::models {

// "512MiB", "2GiB", "1.5GB", "1048576": bytes.
uint64_t parse_bytes(const std::string& option, const std::string& text);

// "7.5b", "124m", "1e9": a count of parameters.
double parse_count(const std::string& text);

// "all", or names by commas.
std::vector<dist::EngineKind> parse_engines(const std::string& text);

}  // namespace sg::models
