// Registration, names, units and state, on the meta device where no values are needed.
#include "nn/module.h"

#include <gtest/gtest.h>

#include "core/ops.h"
#include "nn/layers.h"
#include "nn/micro_step.h"
#include "tests/errors.h"

namespace sg::nn {
namespace {

struct Block : Module {
  Block() : first({.in = 4, .out = 6}), second({.in = 6, .out = 4, .bias = false}) {
    add("first", first);
    add("second", second);
  }
  Variable forward(const Variable& x) {
    return in_unit([&] { return second.forward(first.forward(x)); });
  }
  Linear first, second;
};

struct Model : Module {
  Model() : table(10, 4) {
    add_unit("table", table);
    add_unit("block", block);
    tie_parameter("classifier", table.weight);
  }
  Embedding table;
  Block block;
};

std::vector<std::string> names(const std::vector<Variable>& parameters) {
  std::vector<std::string> names;
  for (const Variable& p : parameters)
    names.push_back(p.name());
  return names;
}

std::string message_of(const std::function<void()>& f) {
  try {
    f();
  } catch (const Error& e) {
    return e.what();
  }
  return "nothing was thrown";
}

TEST(Module, NamesAreDottedPathsAndTiedParametersComeOnce) {
  DeviceGuard device(meta());
  const Model model;
  EXPECT_EQ(names(model.parameters()),
            (std::vector<std::string>{
                "table.weight", "block.first.weight", "block.first.bias", "block.second.weight"}));
  EXPECT_EQ(model.parameter_count(), 40 + 24 + 6 + 24);
  EXPECT_EQ(model.block.first.path(), "block.first");
}

TEST(Module, UnitsCoverEveryParameterOnce) {
  DeviceGuard device(meta());
  const Model model;
  const std::vector<Unit> units = model.units();
  ASSERT_EQ(units.size(), 2u);
  EXPECT_EQ(units[0].name, "table");
  EXPECT_EQ(
      names(units[1].parameters),
      (std::vector<std::string>{"block.first.weight", "block.first.bias", "block.second.weight"}));
}

TEST(Module, AModelWithoutUnitsIsOne) {
  DeviceGuard device(meta());
  const Block block;
  ASSERT_EQ(block.units().size(), 1u);
  EXPECT_EQ(block.units()[0].name, "model");
  EXPECT_EQ(block.units()[0].parameters.size(), 3u);
}

TEST(Module, AParameterOutsideOfEveryUnitIsRefusedByName) {
  struct Stray : Model {
    Stray() : lost({.in = 2, .out = 2}) { add("lost", lost); }
    Linear lost;
  };
  DeviceGuard device(meta());
  const Stray model;
  EXPECT_NE(message_of([&] { (void)model.units(); }).find("lost.weight lies outside"),
            std::string::npos);
}

TEST(Module, HooksOfAUnitRunAroundItsForward) {
  DeviceGuard device(meta());
  Model model;
  std::string calls;
  const Unit unit = model.units()[1];
  unit.hooks->before_forward = [&] { calls += "before "; };
  unit.hooks->after_forward = [&] { calls += "after"; };
  model.block.forward(Variable(empty({3, 4})));
  EXPECT_EQ(calls, "before after");
}

TEST(Module, ANameIsTakenOnce) {
  struct Twice : Module {
    Twice() {
      add_parameter("weight", {2}, ones());
      add_parameter("weight", {2}, ones());
    }
  };
  DeviceGuard device(meta());
  EXPECT_EQ(message_of([] { Twice(); }), "module: weight is registered twice");
}

TEST(Module, LoadStateNamesWhatDoesntFit) {
  DeviceGuard device(meta());
  Model model;
  StateDict state = model.state();
  EXPECT_EQ(state.size(), 4u);
  state.erase("block.first.bias");
  EXPECT_EQ(message_of([&] { model.load_state(state); }),
            "load_state: block.first.bias (6) is missing");
  state["block.first.bias"] = empty({7});
  EXPECT_EQ(message_of([&] { model.load_state(state); }),
            "load_state: block.first.bias is (6) here and (7) in the state");
  state["block.first.bias"] = empty({6});
  state["other"] = empty({1});
  EXPECT_EQ(message_of([&] { model.load_state(state); }),
            "load_state: other (1) isn't part of this model");
  state.erase("other");
  EXPECT_EQ(message_of([&] { model.load_state(state); }),
            "load_state: block.first.bias lies on meta, which keeps no values");
}

TEST(Module, TrainAndEvalReachEveryChild) {
  DeviceGuard device(meta());
  Model model;
  model.eval();
  EXPECT_FALSE(model.block.second.training());
  model.train();
  EXPECT_TRUE(model.block.second.training());
}

TEST(MicroStep, CallsOfOnePathDrawDifferentlyAndANewMicroStepStartsAnew) {
  RandomKey first, second, other;
  {
    MicroStepScope scope(7, 3, 24);
    first = next_key("block.dropout");
    second = next_key("block.dropout");
    other = next_key("head.dropout");
  }
  EXPECT_EQ(first.seed, 7u);
  EXPECT_EQ(first.step, 3u);
  EXPECT_EQ(first.first_sample, 24u);
  EXPECT_NE(first.op, second.op);
  EXPECT_NE(first.op, other.op);
  MicroStepScope scope(7, 4, 0);
  EXPECT_EQ(next_key("block.dropout").op, first.op);
}

TEST(MicroStep, ARecomputedPartDrawsTheSameOnceItsStateIsRestored) {
  MicroStepScope scope(1, 0, 0);
  next_key("a");
  const MicroStep before = *current_micro_step();
  const RandomKey drawn = next_key("a");
  *current_micro_step() = before;
  EXPECT_EQ(next_key("a").op, drawn.op);
}

TEST(Dropout, TrainingOutsideOfAMicroStepIsRefused) {
  DeviceGuard device(meta());
  Dropout dropout(0.5f);
  EXPECT_NE(message_of([&] {
              dropout.forward(Variable(empty({2, 2})));
            }).find("outside of a micro-step"),
            std::string::npos);
  dropout.eval();
  EXPECT_NO_THROW(dropout.forward(Variable(empty({2, 2}))));
}

TEST(Module, UnitsOfAModelThatWasNeverInitializedAreRefusedByName) {
  Linear fresh({.in = 2, .out = 3});
  const std::string message = test::error_of(ErrorKind::usage, [&] { fresh.units(); });
  EXPECT_NE(message.find("weight"), std::string::npos) << message;
  EXPECT_NE(message.find("initialize(seed)"), std::string::npos) << message;
  Linear loaded({.in = 2, .out = 3});
  fresh.initialize(1);
  loaded.load_state(fresh.state());
  EXPECT_NO_THROW(fresh.units());
  EXPECT_NO_THROW(loaded.units());
}

}  // namespace
}  // namespace sg::nn
