// When the hooks of a unit fire.
#include "autograd/hooks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <stdexcept>

#include "autograd/backward.h"
#include "autograd/ops.h"

namespace sg {
namespace {

using Log = std::vector<std::string>;

// A unit that computes x · w and notes its hooks.
struct Scaled {
  Unit unit;
  Scaled(const std::string& name, Log& log, bool frozen = false) {
    unit.name = name;
    unit.parameters.emplace_back(from_vector<float>({2}), !frozen, name + ".w");
    unit.hooks->before_forward = [&log, name] { log.push_back(name + " before forward"); };
    unit.hooks->after_forward = [&log, name] { log.push_back(name + " after forward"); };
    unit.hooks->before_backward = [&log, name] { log.push_back(name + " before backward"); };
    unit.hooks->after_backward = [&log, name] { log.push_back(name + " after backward"); };
    unit.parameters[0].on_gradient(
        [&log, name](const Variable&) { log.push_back(name + " gradient"); });
  }
  Variable operator()(const Variable& x) const {
    return call_unit(unit.hooks, [&] { return add(x * unit.parameters[0], 1); });
  }
};

Log around(const std::string& name, bool gradient = true) {
  if (!gradient)
    return {name + " before backward", name + " after backward"};
  return {name + " before backward", name + " gradient", name + " after backward"};
}

TEST(UnitHooks, FireAroundEachCallForwardAndBackward) {
  Log log;
  const Scaled a("a", log), b("b", log);
  const Variable y = b(a(Variable(from_vector<float>({1}))));
  EXPECT_EQ(log,
            (Log{"a before forward", "a after forward", "b before forward", "b after forward"}));
  log.clear();
  backward(y);
  Log expected = around("b");
  for (const std::string& entry : around("a"))
    expected.push_back(entry);
  EXPECT_EQ(log, expected);
}

TEST(UnitHooks, AFrozenUnitIsEnteredAndLeftToo) {
  Log log;
  const Scaled frozen("frozen", log, true);
  const Variable y = frozen(Variable(from_vector<float>({1}), true));
  log.clear();
  backward(y);
  EXPECT_EQ(log, around("frozen", false));
}

TEST(UnitHooks, EveryCallIsEnteredAndLeft) {
  Log log;
  const Scaled a("a", log);
  const Variable y = a(a(Variable(from_vector<float>({1}))));
  log.clear();
  backward(y);
  EXPECT_EQ(log,
            (Log{"a before backward",
                 "a after backward",
                 "a before backward",
                 "a gradient",
                 "a after backward"}));
}

TEST(UnitHooks, APassThatDoesntReachAUnitLeavesItAlone) {
  Log log;
  const Scaled a("a", log), b("b", log);
  const Variable x(from_vector<float>({1}));
  const Variable y = a(x), unused = b(x);
  log.clear();
  backward(y, {.retain_graph = true});
  EXPECT_EQ(log, around("a"));
  log.clear();
  backward(y);  // a retained graph's hooks fire again
  EXPECT_EQ(log, around("a"));
}

TEST(UnitHooks, NestedUnitsKeepTheirOwnOps) {
  Log log;
  const Scaled inner("inner", log), outer("outer", log);
  const Variable y = call_unit(outer.unit.hooks, [&] {
    const Variable h = Variable(from_vector<float>({1})) * outer.unit.parameters[0];
    return scale(inner(h), 2);
  });
  log.clear();
  backward(y);
  EXPECT_EQ(log,
            (Log{"outer before backward",
                 "inner before backward",
                 "inner gradient",
                 "inner after backward",
                 "outer gradient",
                 "outer after backward"}));
}

// The hooks of a unit that is entered twice, one call within the other, with a failure somewhere.
TEST(UnitHooks, AnExceptionUndoesWhatWasEntered) {
  for (const char* where : {"forward", "inner forward", "backward", "inner gradient"}) {
    Log log;
    Scaled inner("inner", log), outer("outer", log);
    for (Scaled* s : {&inner, &outer})
      s->unit.hooks->undo = [&log, name = s->unit.name] { log.push_back(name + " undone"); };
    const std::string fails = where;
    inner.unit.parameters[0].on_gradient([&](const Variable&) {
      if (fails == "inner gradient")
        throw std::runtime_error("failed");
    });
    const auto failing = [&](const std::string& forward, const Variable& x) {
      if (fails == forward)
        throw std::runtime_error("failed");
      return record("failing", x.tensor(), {x}, [&fails, forward](const Tensor& g) -> Gradients {
        if (fails == "backward" && forward == "forward")
          throw std::runtime_error("failed");
        return {g};
      });
    };
    const auto call = [&] {
      return call_unit(outer.unit.hooks, [&] {
        const Variable h = Variable(from_vector<float>({1})) * outer.unit.parameters[0];
        const Variable y =
            call_unit(inner.unit.hooks, [&] { return failing("inner forward", inner(h)); });
        return scale(failing("forward", y), 2);
      });
    };
    EXPECT_THROW(backward(call()), std::runtime_error) << where;
    const auto count = [&](const std::string& entry) {
      return std::count(log.begin(), log.end(), entry);
    };
    for (const std::string name : {"inner", "outer"})
      EXPECT_EQ(count(name + " before forward") + count(name + " before backward"),
                count(name + " after forward") + count(name + " after backward") +
                    count(name + " undone"))
          << where << " " << name;
    EXPECT_EQ(current_unit_call(), nullptr);
  }
}

// As on a rank that doesn't use a unit's parameters: the others gather them before backward, so it
// must too.
TEST(UnitHooks, ARecordedCallThatHandsItsInputThroughIsEnteredToo) {
  for (const bool needs_gradient : {true, false}) {
    Log log;
    const Scaled a("a", log);
    a.unit.hooks->recorded = true;
    const Variable x(from_vector<float>({3}), needs_gradient), w(from_vector<float>({2}), true);
    const Variable y = call_unit(a.unit.hooks, [&] { return x; }) * w;
    const std::vector<Variable> both = call_unit(a.unit.hooks, [&] {
      return std::vector<Variable>{x, y};
    });
    log.clear();
    backward(both[0] + both[1]);
    Log expected = around("a", false);
    for (const std::string& entry : around("a", false))
      expected.push_back(entry);
    EXPECT_EQ(log.size(), expected.size());
    EXPECT_EQ(w.grad().item<float>(), 3);
    EXPECT_TRUE(!needs_gradient || x.grad().item<float>() == 1 + 2);
  }
}

TEST(UnitHooks, WithoutHooksAUnitIsACall) {
  Unit unit;
  EXPECT_EQ(call_unit(unit.hooks, [] { return 3; }), 3);
  EXPECT_EQ(call_unit(nullptr, [] { return current_unit_call() == nullptr; }), true);
}

}  // namespace
}  // namespace sg
