// Module: a part of a model that owns parameters, buffers and other modules, and names them by
// dotted paths.
//
//   struct Affine : nn::Module {
//     Affine(int64_t n) : gain(add_parameter("gain", {n}, nn::ones())), norm(n) { add("norm",
//     norm); } Variable forward(const Variable& x) {
//       return in_unit([&] { return mul(norm.forward(x), gain); });
//     }
//     Variable gain;
//     nn::LayerNorm norm;
//   };
//
// in_unit matters where the module is a unit (add_unit, or a whole model without units): an engine
// gathers what the unit needs for just that call, and sends for the next one's meanwhile. Where it
// is forgotten the bits are the same, but zero3 gathers on first use and keeps the unit until the
// micro-step's end.
//
// Children are ordinary members that register themselves in the constructor; a module never moves.
// Parameters lie on the current device; what they hold is undefined until initialize() or
// load_state().
#pragma once
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "autograd/hooks.h"
#include "autograd/variable.h"
#include "nn/init.h"

namespace sg::nn {

using StateDict = std::map<std::string, Tensor>;  // dotted name → tensor

class Block;  // block.h

class Module {
 public:
  Module() = default;
  virtual ~Module() = default;
  Module(const Module&) = delete;
  Module& operator=(const Module&) = delete;

  const std::string& path() const {
    return path_;
  }  // from the root, "blocks.0.attention"; empty for the root itself
  std::vector<Variable> parameters()
      const;                        // in registration order, a tied one once, under its first name
  int64_t parameter_count() const;  // elements, a tied one once

  // Sets every parameter from (seed, its path): the same values whatever else the model holds, on
  // any rank. Parameters on meta get theirs from an engine (Unit::initial).
  void initialize(uint64_t seed);

  // Parameters (a tied one once, under its first name) and buffers; the tensors are shared, not
  // copied.
  StateDict state() const;
  // Copies values in. Error bad_input names what is missing, left over or of another shape; nothing
  // is changed then. Usage error on meta, which keeps no values.
  void load_state(const StateDict& state);

  // What an engine gathers, runs and releases as one: the modules registered by add_unit, or the
  // whole module where there is none. Usage error when a parameter lies outside of every unit.
  std::vector<Unit> units() const;

  void train(bool on = true);  // for the module and all below it: dropout is active
  void eval() { train(false); }
  bool training() const { return training_; }

 protected:
  Variable add_parameter(const std::string& name, const Shape& shape, Initializer initializer);
  void tie_parameter(const std::string& name,
                     const Variable& parameter);              // owned and initialized elsewhere
  Tensor add_buffer(const std::string& name, Tensor buffer);  // part of the state, never trained
  void add(const std::string& name, Module& child);
  // `forward`: how an engine may call it (Unit::forward); it goes through the child's in_unit.
  void add_unit(const std::string& name, Module& child, UnitForward forward = {});
  // A unit that may keep less for backward than its ops do (block.h).
  void add_block(const std::string& name, Block& block);

  // Runs a unit's forward with its hooks; elsewhere just runs it. A unit's forward should go
  // through here.
  template <class Forward>
  auto in_unit(Forward&& forward) {
    return call_unit(hooks_, std::forward<Forward>(forward));
  }
  const UnitRecompute& recompute_policy() const { return hooks_->recompute; }

 private:
  struct Parameter {
    std::string name;
    Variable variable;
    Initializer initializer;       // empty where tied
    std::optional<RandomKey> key;  // what initialize() drew with
  };
  struct Child {
    std::string name;
    Module* module;
    bool unit;
    UnitForward forward;
    bool block = false;
  };
  std::string join(const std::string& name) const {
    return path_.empty() ? name : path_ + "." + name;
  }
  void set_path(const std::string& path);
  void add_child(const std::string& name, Module& child, bool unit, UnitForward forward);
  void check_name(const std::string& name) const;
  void visit(
      const std::function<void(const Module&)>& visitor) const;  // itself, then children in order
  void collect_units(std::vector<Unit>& units) const;
  std::function<void(const Variable&, const Tensor&)> initial_values() const;

  std::string path_;
  bool training_ = true;
  std::shared_ptr<UnitHooks> hooks_ = std::make_shared<UnitHooks>();
  std::vector<Parameter> parameters_;
  std::vector<std::pair<std::string, Tensor>> buffers_;
  std::vector<Child> children_;
};

}  // namespace sg::nn
