// Optimizers. They step over slices: runs of parameters as plain one-dimensional tensors, so that
// one that owns a whole model and one that owns a shard of it run the same code and give the same
// bits.
#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "core/tensor.h"

namespace sg::optim {

// Parameters with the same settings.
struct ParameterGroup {
  std::string name;
  double weight_decay = 0;
  double lr_factor = 1;  // times the learning rate
};

// Norms and biases, which have one dimension, never decay.
inline bool decays(const Shape& parameter) {
  return parameter.rank() >= 2;
}

// lr itself, which must not be negative, infinite or NaN: a usage error.
double checked_learning_rate(double lr);

// A run of one parameter's elements, or of neighbours in the same group. All tensors are dense,
// one-dimensional and of one length.
struct Slice {
  Tensor master;     // f32
  Tensor gradient;   // f32, f16 or bf16; unscaled by step's factor
  Tensor parameter;  // receives the master rounded to its 16-bit dtype; undefined where the master
                     // is the parameter
  std::vector<Tensor> state;  // of make_state
  size_t group = 0;
};

class Optimizer {
 public:
  explicit Optimizer(std::vector<ParameterGroup> groups) : groups_(std::move(groups)) {}
  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  // The f32 arrays kept beside each element, by the names that checkpoints use: {"moment1",
  // "moment2"}.
  virtual std::vector<std::string> state_names() const = 0;
  // Those arrays for a slice of `elements`, zeros on `device`, booked under `optimizer`.
  std::vector<Tensor> make_state(int64_t elements, Device device) const;

  // One step: t goes up by one, then every slice is updated with factor · gradient. Slices without
  // elements are passed over.
  void step(std::span<const Slice> slices, float factor = 1);
  // The same in pieces: advance once, then update each slice once.
  void advance() { ++t_; }
  void update(const Slice& slice, float factor);

  std::vector<ParameterGroup>& groups() { return groups_; }
  void set_learning_rate(double lr) { lr_ = checked_learning_rate(lr); }
  double learning_rate() const { return lr_; }
  int64_t t() const { return t_; }  // applied steps; skipped ones don't count
  void set_t(int64_t t) { t_ = t; }

 protected:
  virtual void apply(const Slice& slice, float lr, float weight_decay, float factor) = 0;
  // The slice has as many arrays of state as the optimizer keeps.
  static void check_state(const char* optimizer, const Slice& slice, size_t arrays);

 private:
  std::vector<ParameterGroup> groups_;
  double lr_ = 1e-3;
  int64_t t_ = 0;
};

struct OptimizerOptions {
  std::string type = "adamw";  // adamw, adam, sgd, lion
  double beta1 = 0.9, beta2 = 0.95, eps = 1e-8;
  double weight_decay = 0.1;  // of parameters that decay
  double momentum = 0.9;      // sgd
  bool nesterov = false;      // sgd
};

// Groups 0 "decay" and 1 "no_decay". Usage error for an unknown type, which lists the known ones,
// and for values out of range.
std::unique_ptr<Optimizer> make_optimizer(const OptimizerOptions& options);
inline size_t group_of(const Shape& parameter) {
  return decays(parameter) ? 0 : 1;
}

}  // namespace sg::optim
