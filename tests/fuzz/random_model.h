// Random models for fuzz_engines: units of random layers, tied, frozen, empty and unused
// parameters, units within units and units that are never entered. A plan is drawn once; every rank
// of every run builds its own model of it.
#pragma once
#include <fmt/ranges.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

#include "autograd/graph.h"
#include "autograd/ops.h"
#include "autograd/recompute.h"
#include "dist/engine.h"
#include "tests/fuzz/fuzz.h"

namespace sg::fuzz {

struct LayerPlan {
  enum Kind { linear, bias, gain, norm, mean_of, sum_of, tanh, dropout, kinds } kind = tanh;
  int parameter = -1;
  bool recomputed = false;
  bool some_ranks = false;  // used where rank + step is even
};
struct ParameterPlan {
  Shape shape;
  bool trained = true;
};
struct UnitPlan {
  std::vector<int> parameters;
  std::vector<LayerPlan> layers;
  int within = -1;      // the unit whose call makes this one's call; −1: the model
  int calls = 1;        // one behind the other
  bool entered = true;  // its forward runs with the unit's hooks
  bool recomputed = false;
};
struct ModelPlan {
  int64_t width = 1, classes = 2;
  std::vector<ParameterPlan> parameters;  // 0: the table of the first unit
  std::vector<UnitPlan> units;            // the first embeds, the last has the classifier
  int classifier = 0;                     // a parameter
};

inline std::string text_of(const ModelPlan& plan) {
  static const char* const kinds[] = {
      "linear", "bias", "gain", "norm", "mean_of", "sum_of", "tanh", "dropout"};
  std::string text =
      fmt::format("width {}, {} classes by p{}\n ", plan.width, plan.classes, plan.classifier);
  for (size_t i = 0; i < plan.parameters.size(); ++i)
    text += fmt::format(
        " p{} {}{}", i, plan.parameters[i].shape, plan.parameters[i].trained ? "" : " frozen");
  for (size_t u = 0; u < plan.units.size(); ++u) {
    const UnitPlan& unit = plan.units[u];
    text += fmt::format("\n  unit{}{}{}{}{}, parameters [{}]:",
                        u,
                        unit.within >= 0 ? fmt::format(" within unit{}", unit.within) : "",
                        unit.calls > 1 ? " twice" : "",
                        unit.entered ? "" : " not entered",
                        unit.recomputed ? " recomputed" : "",
                        fmt::join(unit.parameters, " "));
    for (const LayerPlan& layer : unit.layers)
      text += fmt::format(" {}{}{}{}",
                          kinds[layer.kind],
                          layer.parameter >= 0 ? fmt::format(" p{}", layer.parameter) : "",
                          layer.recomputed ? " recomputed" : "",
                          layer.some_ranks ? " on some ranks" : "");
  }
  return text;
}

class PlanMaker {
 public:
  explicit PlanMaker(Random& random) : random_(random) {}

  ModelPlan make() {
    plan_.width = random_.pick({1, 3, 17, 33, 40});
    plan_.classes = random_.pick({2, 9, 31, 67});
    const int64_t units = random_.between(2, 6);
    for (int64_t u = 0; u < units; ++u)
      add_unit(u);
    plan_.units[0].parameters.insert(plan_.units[0].parameters.begin(),
                                     add_parameter({plan_.classes, plan_.width}));
    plan_.units[0].within = -1;
    UnitPlan& head = plan_.units.back();
    head.within = -1;
    head.calls = 1;
    const int table = plan_.units[0].parameters[0];
    plan_.classifier = random_.chance(0.3) ? table : add_parameter({plan_.classes, plan_.width});
    plan_.parameters[static_cast<size_t>(plan_.classifier)].trained = true;  // something is
    add_to(head, plan_.classifier);
    return plan_;
  }

 private:
  int add_parameter(const Shape& shape) {
    plan_.parameters.push_back({shape, !random_.chance(0.1)});
    return static_cast<int>(plan_.parameters.size()) - 1;
  }
  static void add_to(UnitPlan& unit, int parameter) {
    for (int known : unit.parameters)
      if (known == parameter)
        return;
    unit.parameters.push_back(parameter);
  }

  // A new one or, at times, one that is used already.
  int parameter_of(const Shape& shape) {
    std::vector<int> like;
    for (size_t i = 0; i < plan_.parameters.size(); ++i)
      if (plan_.parameters[i].shape == shape)
        like.push_back(static_cast<int>(i));
    return !like.empty() && random_.chance(0.2) ? random_.pick(like) : add_parameter(shape);
  }

  LayerPlan layer() {
    const int64_t w = plan_.width;
    LayerPlan layer;
    layer.kind = static_cast<LayerPlan::Kind>(random_.between(0, LayerPlan::kinds - 1));
    switch (layer.kind) {
      case LayerPlan::linear: layer.parameter = parameter_of({w, w}); break;
      case LayerPlan::bias:
      case LayerPlan::gain:
      case LayerPlan::norm: layer.parameter = parameter_of({w}); break;
      case LayerPlan::mean_of:
        layer.parameter = parameter_of({random_.pick<int64_t>({1, 5, 1024, 1500})});
        break;
      case LayerPlan::sum_of:
        layer.parameter = parameter_of(random_.chance(0.5) ? Shape{0} : Shape{3, 0});
        break;
      default: break;
    }
    layer.recomputed = random_.chance(0.1);
    layer.some_ranks = random_.chance(0.1);
    return layer;
  }

  void add_unit(int64_t u) {
    UnitPlan unit;
    for (int64_t n = random_.between(0, 4); n > 0; --n) {
      unit.layers.push_back(layer());
      if (unit.layers.back().parameter >= 0)
        add_to(unit, unit.layers.back().parameter);
    }
    if (random_.chance(0.2))
      add_to(unit, add_parameter({random_.pick<int64_t>({0, 1, 2000})}));  // nobody uses it
    if (u > 1 && random_.chance(0.2))
      unit.within = static_cast<int>(random_.between(1, u - 1));
    if (random_.chance(0.1))
      unit.calls = 2;
    unit.entered = !random_.chance(0.1);
    if (!unit.entered)  // ranks must enter alike what they use, or zero3 refuses it
      for (LayerPlan& layer : unit.layers)
        layer.some_ranks = false;
    unit.recomputed = u > 0 && random_.chance(0.1);
    plan_.units.push_back(std::move(unit));
  }

  Random& random_;
  ModelPlan plan_;
};

struct Trapped : std::runtime_error {
  Trapped() : std::runtime_error("trap") {}
};
// Springs at the point with a given number, counted from when it was set.
class Trap {
 public:
  void set(int64_t point) { left_ = point; }
  void pass() {
    if (left_ > 0 && --left_ == 0)
      throw Trapped();
  }

 private:
  int64_t left_ = 0;
};

class RandomModel {
 public:
  RandomModel(const ModelPlan& plan, Trap& trap) : plan_(plan), trap_(trap) {
    CategoryScope scope(Category::parameters);
    for (size_t i = 0; i < plan.parameters.size(); ++i) {
      const ParameterPlan& p = plan.parameters[i];
      const float mean = p.shape.rank() == 1 ? 0.5f : 0.0f;
      const Tensor value = random_normal(p.shape, {.seed = 7, .op = i}, mean, 0.2f);
      parameters_.emplace_back(value, p.trained, fmt::format("p{}", i));
    }
    for (size_t u = 0; u < plan.units.size(); ++u) {
      Unit unit{fmt::format("unit{}", u), {}};
      for (int p : plan.units[u].parameters)
        unit.parameters.push_back(at(p));
      units_.push_back(std::move(unit));
    }
  }
  const std::vector<Unit>& units() const { return units_; }
  Variable& parameter(size_t i) { return parameters_[i]; }

  struct Where {
    int rank = 0;
    uint64_t step = 0, first_sample = 0;
  };
  Variable loss(const Tensor& tokens, const Tensor& targets, const Where& where) {
    where_ = where;
    draws_ = 0;
    const Variable embedded = run(0, [&] { return embedding(parameters_[at_table()], tokens); });
    Variable x = trapped(embedded);
    const size_t last = units_.size() - 1;
    for (size_t u = 1; u < last; ++u)
      if (plan_.units[u].within < 0)
        x = call(u, x);
    return run(last,
               [&] { return classifier_loss(layers(last, x), at(plan_.classifier), targets); });
  }

 private:
  const Variable& at(int parameter) const { return parameters_[static_cast<size_t>(parameter)]; }
  size_t at_table() const { return static_cast<size_t>(plan_.units[0].parameters[0]); }

  Variable run(size_t u, const std::function<Variable()>& forward) {
    return plan_.units[u].entered ? call_unit(units_[u].hooks, forward) : forward();
  }

  Variable call(size_t u, Variable x) {
    const UnitPlan& unit = plan_.units[u];
    for (int i = 0; i < unit.calls; ++i) {
      const uint64_t draws = draws_;
      const auto forward = [this, u, draws](const Variable& in) {
        draws_ = draws;  // the same random numbers when it is computed again
        return run(u, [&] { return layers(u, in); });
      };
      x = unit.recomputed ? recompute(forward, x) : forward(x);
      x = trapped(x);
    }
    return x;
  }

  Variable layers(size_t u, Variable x) {
    for (const LayerPlan& layer : plan_.units[u].layers) {
      if (layer.some_ranks && (where_.rank + static_cast<int>(where_.step)) % 2 != 0)
        continue;
      const uint64_t draw = draws_++;
      const auto forward = [this, &layer, draw](const Variable& in) {
        return apply(layer, in, draw);
      };
      x = layer.recomputed ? recompute(forward, x) : forward(x);
      if (!layer.some_ranks)
        x = trapped(x);
    }
    for (size_t inner = u + 1; inner < units_.size(); ++inner)
      if (plan_.units[inner].within == static_cast<int>(u))
        x = call(inner, x);
    return x;
  }

  Variable apply(const LayerPlan& layer, const Variable& x, uint64_t draw) const {
    switch (layer.kind) {
      case LayerPlan::linear: return add(x, linear(x, at(layer.parameter)));
      case LayerPlan::bias: return add(x, at(layer.parameter));
      case LayerPlan::gain: return mul(x, at(layer.parameter));
      case LayerPlan::norm: return rmsnorm(x, at(layer.parameter), 1e-3f);
      case LayerPlan::mean_of: return add(x, mean(at(layer.parameter)));
      case LayerPlan::sum_of: return add(x, sum(at(layer.parameter)));
      case LayerPlan::dropout:
        return dropout(
            x,
            0.3f,
            {.seed = 13, .op = draw, .step = where_.step, .first_sample = where_.first_sample});
      default: return sg::tanh(x);
    }
  }

  // Passes its input on, and a point in forward and one in backward.
  Variable trapped(const Variable& x) {
    trap_.pass();
    return record("trap", x.tensor(), {x}, [this](Tensor g) -> Gradients {
      trap_.pass();
      return {std::move(g)};
    });
  }

  const ModelPlan& plan_;
  Trap& trap_;
  Where where_;
  uint64_t draws_ = 0;
  std::vector<Variable> parameters_;
  std::vector<Unit> units_;
};

}  // namespace sg::fuzz
