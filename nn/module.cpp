#include "nn/module.h"

#include <algorithm>
#include <set>

#include "core/ops.h"

namespace sg::nn {
namespace {

// Appends what isn't in `seen` yet: a tied parameter counts where it comes first.
void append_new(std::vector<Variable>& out,
                std::set<const void*>& seen,
                const std::vector<Variable>& parameters) {
  for (const Variable& p : parameters)
    if (seen.insert(p.id()).second)
      out.push_back(p);
}

}  // namespace

void Module::check_name(const std::string& name) const {
  check(!name.empty() && name.find('.') == std::string::npos,
        "module: \"{}\" isn't a name: one word without dots",
        name);
  const auto taken = [&](const auto& entries, auto name_of_entry) {
    return std::any_of(
        entries.begin(), entries.end(), [&](const auto& e) { return name_of_entry(e) == name; });
  };
  check(!taken(parameters_, [](const Parameter& p) { return p.name; }) &&
            !taken(buffers_, [](const auto& b) { return b.first; }) &&
            !taken(children_, [](const Child& c) { return c.name; }),
        "module: {} is registered twice",
        join(name));
}

Variable Module::add_parameter(const std::string& name,
                               const Shape& shape,
                               Initializer initializer) {
  check_name(name);
  CategoryScope scope(Category::parameters);
  Variable parameter(empty(shape), true, join(name));
  parameter.tensor().storage()->set_name(join(name));
  parameters_.push_back({name, parameter, std::move(initializer), {}});
  return parameter;
}

void Module::tie_parameter(const std::string& name, const Variable& parameter) {
  check_name(name);
  parameters_.push_back({name, parameter, {}, {}});
}

Tensor Module::add_buffer(const std::string& name, Tensor buffer) {
  check_name(name);
  buffers_.emplace_back(name, buffer);
  return buffer;
}

void Module::add(const std::string& name, Module& child) {
  add_child(name, child, false, {});
}
void Module::add_unit(const std::string& name, Module& child, UnitForward forward) {
  add_child(name, child, true, std::move(forward));
}

void Module::add_child(const std::string& name, Module& child, bool unit, UnitForward forward) {
  check_name(name);
  child.set_path(join(name));
  children_.push_back({name, &child, unit, std::move(forward)});
}

void Module::set_path(const std::string& path) {
  path_ = path;
  for (Parameter& p : parameters_) {
    if (!p.initializer)
      continue;  // tied: named by its owner
    p.variable.set_name(join(p.name));
    p.variable.tensor().storage()->set_name(join(p.name));
  }
  for (Child& c : children_)
    c.module->set_path(join(c.name));
}

void Module::visit(const std::function<void(const Module&)>& visitor) const {
  visitor(*this);
  for (const Child& c : children_)
    c.module->visit(visitor);
}

std::vector<Variable> Module::parameters() const {
  std::vector<Variable> all, unique;
  visit([&](const Module& m) {
    for (const Parameter& p : m.parameters_)
      all.push_back(p.variable);
  });
  std::set<const void*> seen;
  append_new(unique, seen, all);
  return unique;
}

int64_t Module::parameter_count() const {
  int64_t count = 0;
  for (const Variable& p : parameters())
    count += p.numel();
  return count;
}

void Module::initialize(uint64_t seed) {
  for (Parameter& p : parameters_) {
    if (!p.initializer)
      continue;
    p.key = RandomKey{.seed = seed, .op = hash_path(p.variable.name())};
    p.initializer(p.variable.tensor(), *p.key);
  }
  for (const Child& c : children_)
    c.module->initialize(seed);
}

std::function<void(const Variable&, const Tensor&)> Module::initial_values() const {
  std::map<const void*, Parameter> by_id;
  visit([&](const Module& m) {
    for (const Parameter& p : m.parameters_)
      if (p.initializer)
        by_id.emplace(p.variable.id(), p);
  });
  return [by_id = std::make_shared<const std::map<const void*, Parameter>>(std::move(by_id))](
             const Variable& parameter, const Tensor& out) {
    const auto found = by_id->find(parameter.id());
    check(found != by_id->end() && found->second.key,
          "module: {} has no initial value; call initialize() on its model",
          parameter.name());
    found->second.initializer(out, *found->second.key);
  };
}

StateDict Module::state() const {
  StateDict state;
  visit([&](const Module& m) {
    for (const Parameter& p : m.parameters_)
      if (p.initializer)
        state.emplace(m.join(p.name), p.variable.tensor());
    for (const auto& [name, buffer] : m.buffers_)
      state.emplace(m.join(name), buffer);
  });
  return state;
}

void Module::load_state(const StateDict& values) {
  const StateDict own = state();
  for (const auto& [name, tensor] : own) {
    const auto found = values.find(name);
    check(ErrorKind::bad_input,
          found != values.end(),
          "load_state: {} {} is missing",
          name,
          tensor.shape());
    check(ErrorKind::bad_input,
          found->second.shape() == tensor.shape(),
          "load_state: {} is {} here and {} in the state",
          name,
          tensor.shape(),
          found->second.shape());
  }
  for (const auto& [name, tensor] : values)
    check(ErrorKind::bad_input,
          own.contains(name),
          "load_state: {} {} isn't part of this model",
          name,
          tensor.shape());
  for (const auto& [name, tensor] : own)
    check(tensor.device().type != DeviceType::meta,
          "load_state: {} lies on meta, which keeps no values",
          name);
  for (const auto& [name, tensor] : own)
    copy_(tensor, values.at(name));
}

void Module::collect_units(std::vector<Unit>& units) const {
  for (const Child& c : children_) {
    if (c.unit) {
      units.push_back({.name = c.module->path_,
                       .parameters = c.module->parameters(),
                       .hooks = c.module->hooks_,
                       .forward = c.forward,
                       .block = c.block});
    }
    c.module->collect_units(units);
  }
}

std::vector<Unit> Module::units() const {
  visit([](const Module& m) {  // refuses memory that nothing was written into
    for (const Parameter& p : m.parameters_) {
      const Tensor& value = p.variable.held();
      const bool backed =
          !p.variable.keeper() && value.device().type != DeviceType::meta && value.numel() > 0;
      check(!p.initializer || p.key || !backed || value.version() > 0,
            "module: {} has no value yet; call initialize(seed) or load_state() on its model",
            p.variable.name());
    }
  });
  std::vector<Unit> units;
  collect_units(units);
  if (units.empty())
    units.push_back({path_.empty() ? "model" : path_, parameters(), hooks_});
  std::set<const void*> seen;
  const auto initial = initial_values();
  for (Unit& unit : units) {
    unit.initial = initial;
    for (const Variable& p : unit.parameters)
      seen.insert(p.id());
  }
  for (const Variable& p : parameters())
    check(seen.contains(p.id()),
          "module: {} lies outside of every unit; register its module with add_unit",
          p.name());
  return units;
}

void Module::train(bool on) {
  training_ = on;
  for (const Child& c : children_)
    c.module->train(on);
}

}  // namespace sg::nn
