// The keys of the JSON configuration (config.h), one row each. (Internal: users needn't have
// nlohmann-json.)
#pragma once
#include <functional>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "dist/config/config.h"

namespace sg::dist {

// What the keys say, before it is known what they mean together.
struct ConfigDraft {
  Config config;
  std::vector<std::string> mistakes;  // all that are found, without the source
  bool fp16 = false, bf16 = false;

  std::string optimizer = "AdamW";
  std::optional<double> lr, eps, weight_decay, momentum;
  std::optional<std::vector<double>> betas;
  std::optional<bool> nesterov;

  std::string scheduler;
  double start_lr = 0, start_ratio = 0, end_ratio = 1e-4, end_lr = 0;
  std::optional<double> max_lr;
  std::string warmup_type = "log";
};

// A key and its value in the file.
struct ConfigValue {
  std::string path;
  const nlohmann::json& value;

  std::string text() const;  // of the value, shortened
  // "gradient_clipping must be a number of at least 0, not "high"": usage error
  [[noreturn]] void must_be(const std::string& what) const;
};

struct ConfigKey {
  std::string path;
  std::function<void(const ConfigValue&, ConfigDraft&)>
      read;  // the value into the draft, or a usage error
};

const std::vector<ConfigKey>& config_keys();

}  // namespace sg::dist
