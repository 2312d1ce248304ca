// Texts of options and what they mean; a text that means nothing is a usage error that names the
// option.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "dist/options.h"

namespace sg::models {

// f32, bf16 or fp16, as --precision and the receipt say it.
const char* precision_name(DType precision);
DType parse_precision(const std::string& text);

// "512MiB", "2GiB", "1.5GB", "1048576": bytes.
uint64_t parse_bytes(const std::string& option, const std::string& text);

// "7.5b", "124m", "1e9": a count of parameters.
double parse_count(const std::string& text);

bool parse_switch(const std::string& option, const std::string& text);  // on or off
bool parse_zero1_reduce(const std::string& text);  // whether it is an all-reduce

// "all", or names by commas.
std::vector<dist::EngineKind> parse_engines(const std::string& text);

}  // namespace sg::models
