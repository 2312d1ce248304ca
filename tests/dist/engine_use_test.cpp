// Parameters that are read outside of their units' calls, and units and parameters that only some
// ranks use: ddp's bits, or a refusal by name before wrong numbers exist.
#include <gtest/gtest.h>

#include "autograd/recompute.h"
#include "core/ops.h"
#include "tests/dist/trapped_model.h"
#include "tests/errors.h"

namespace sg::dist::testing {
namespace {

constexpr EngineKind engines[] = {
    EngineKind::dp, EngineKind::ddp, EngineKind::zero1, EngineKind::zero2, EngineKind::zero3};
constexpr int64_t width = 40;

Variable parameter(const std::string& name, uint64_t op, const Shape& shape = {width, width}) {
  CategoryScope scope(Category::parameters);
  return Variable(random_normal(shape, {.seed = 7, .op = op}, 0, 0.2f), true, name);
}

// A model by its units and its loss, which is given them, an input and the rank.
struct Model {
  std::string what;
  std::function<std::vector<Unit>()> units;
  std::function<Variable(const std::vector<Unit>&, const Variable& x, int rank, int64_t step)> loss;
  int micro_steps = 1;
};

Variable w(const std::vector<Unit>& units, size_t unit, size_t i = 0) {
  return units[unit].parameters[i];
}

Variable call(const Unit& unit, const std::function<Variable()>& forward) {
  return call_unit(unit.hooks, forward);
}

std::vector<float> losses_of(const Model& model, EngineKind kind, int ranks, bool lazy = false) {
  std::vector<float> losses;
  CommOptions comm_options;
  comm_options.ranks = ranks;
  comm_options.timeout = 30;
  set_lazy_streams(lazy, 5);
  run_threads(comm_options, [&](Comm& comm) {
    Options o{.engine = kind,
              .lr = 0.05,
              .micro_steps = model.micro_steps,
              .accumulation = Accumulation::local_first};
    o.first_bucket_bytes = o.bucket_bytes = 1;
    if (lazy)
      o.prefetch_elements =
          0;  // each unit is gathered when it is needed, between others' reductions
    const std::vector<Unit> units = model.units();
    auto engine = initialize(units, o, comm);
    for (int i = 0; i < 5 * model.micro_steps; ++i) {
      const Tensor x =
          random_uniform({2, width}, {.seed = 3, .op = static_cast<uint64_t>(i * 8 + comm.rank())});
      engine->backward(engine->forward(
          [&] { return model.loss(units, Variable(x), comm.rank(), engine->steps()); }));
      const StepResult result = engine->step();
      if (result.complete && comm.rank() == 0)
        losses.push_back(result.loss);
    }
  });
  set_lazy_streams(false);
  return losses;
}

std::vector<Unit> two_units() {
  return {{"u", {parameter("a", 1)}}, {"v", {parameter("b", 2)}}};
}
std::vector<Unit> three_units() {  // t is tied
  const Variable t = parameter("t", 2);
  return {
      {"first", {parameter("f", 1)}}, {"u", {t, parameter("a", 3)}}, {"v", {t, parameter("b", 4)}}};
}
Variable square(const Variable& y) {
  return mean(y * y);
}

const Model models[] = {
    {"no unit is entered",
     two_units,
     [](const auto& u, const Variable& x, int, int64_t) {
       return square(linear(tanh(linear(x, w(u, 0))), w(u, 1)));
     }},
    {"no unit is entered, two micro-steps",
     two_units,
     [](const auto& u, const Variable& x, int, int64_t) {
       return square(linear(tanh(linear(x, w(u, 0))), w(u, 1)));
     },
     2},
    {"a unit's parameter is used in another's call",
     two_units,
     [](const auto& u, const Variable& x, int, int64_t) {
       const Variable h = call(u[0], [&] { return tanh(linear(x, w(u, 0))); });
       return square(call(u[1], [&] { return linear(linear(h, w(u, 1)), w(u, 0)); }));
     }},
    {"a unit's parameter is used in its call and after all calls",
     two_units,
     [](const auto& u, const Variable& x, int, int64_t) {
       const Variable h = call(u[0], [&] { return tanh(linear(x, w(u, 0))); });
       return square(linear(call(u[1], [&] { return linear(h, w(u, 1)); }), w(u, 0)));
     }},
    {"a unit's parameter is used before its call",
     two_units,
     [](const auto& u, const Variable& x, int, int64_t) {
       const Variable h = call(u[0], [&] { return tanh(linear(linear(x, w(u, 1)), w(u, 0))); });
       return square(call(u[1], [&] { return linear(h, w(u, 1)); }));
     }},
    {"recomputed without being entered",
     two_units,
     [](const auto& u, const Variable& x, int, int64_t) {
       const Variable h = recompute([&](const Variable& y) { return tanh(linear(y, w(u, 0))); }, x);
       return square(recompute([&](const Variable& y) { return linear(y, w(u, 1)); }, h));
     }},
    {"a tied parameter, all in recomputed regions",
     three_units,
     [](const auto& u, const Variable& x, int, int64_t) {
       Variable h = call(u[0], [&] { return tanh(linear(x, w(u, 0))); });
       for (size_t i : {1, 2})
         h = recompute(
             [&u, i](const Variable& y) {
               return call(u[i], [&] { return linear(tanh(linear(y, w(u, i, 1))), w(u, i)); });
             },
             h);
       return square(h);
     }},
    {"the last of a tied parameter's units is called first",
     three_units,
     [](const auto& u, const Variable& x, int, int64_t) {
       Variable h = call(u[2], [&] { return tanh(linear(linear(x, w(u, 2)), w(u, 2, 1))); });
       h = call(u[1], [&] { return tanh(linear(linear(h, w(u, 1)), w(u, 1, 1))); });
       return square(call(u[0], [&] { return linear(h, w(u, 0)); }));
     }},
    {"a tied parameter that rank 0 alone uses, from step 2 on",
     three_units,
     [](const auto& u, const Variable& x, int rank, int64_t step) {
       const bool uses = rank == 0 || step < 2;
       Variable h = call(u[0], [&] { return tanh(linear(x, w(u, 0))); });
       for (size_t i : {1, 2})
         h = call(u[i], [&] {
           const Variable y = linear(h, w(u, i, 1));
           return uses ? linear(tanh(y), w(u, i)) : y;
         });
       return square(h);
     }},
    {"a tied parameter that rank 0 uses in one unit and the others in another",
     three_units,
     [](const auto& u, const Variable& x, int rank, int64_t) {
       Variable h = call(u[0], [&] { return tanh(linear(x, w(u, 0))); });
       for (size_t i : {1, 2})
         h = call(u[i], [&] {
           const Variable y = linear(h, w(u, i, 1));
           return (rank == 0) == (i == 1) ? linear(tanh(y), w(u, i)) : y;
         });
       return square(h);
     }},
    {"a tied parameter, first of its unit's gradients, that rank 0 uses in one unit and the others "
     "in another",
     [] {
       const Variable t = parameter("t", 2);
       return std::vector<Unit>{{"u", {parameter("a", 3), t}}, {"v", {parameter("b", 4), t}}};
     },
     [](const auto& u, const Variable& x, int rank, int64_t) {
       Variable h = x;
       for (size_t i : {0, 1})
         h = call(u[i], [&] {
           const Variable y = tanh(linear(h, w(u, i)));
           return (rank == 0) == (i == 1) ? linear(y, w(u, i, 1)) : y;
         });
       return square(call(u[0], [&] { return linear(h, w(u, 0)); }));
     }},
    {"a tied parameter that rank 0 alone uses in a recomputed part of a unit",
     three_units,
     [](const auto& u, const Variable& x, int rank, int64_t) {
       Variable h = call(u[0], [&] { return tanh(linear(x, w(u, 0))); });
       h = call(u[1], [&] {
         const Variable y = linear(h, w(u, 1, 1));
         return rank == 0
                    ? recompute([&](const Variable& z) { return linear(tanh(z), w(u, 1)); }, y)
                    : y;
       });
       return square(call(u[2], [&] { return linear(linear(h, w(u, 2)), w(u, 2, 1)); }));
     }},
    {"a unit that hands its input through on rank 1",
     three_units,
     [](const auto& u, const Variable& x, int rank, int64_t) {
       Variable h = call(u[0], [&] { return tanh(linear(x, w(u, 0))); });
       h = call(u[1], [&] { return rank == 1 ? h : linear(linear(h, w(u, 1, 1)), w(u, 1)); });
       return square(call(u[2], [&] { return linear(linear(h, w(u, 2, 1)), w(u, 2)); }));
     }},
    {"a recomputed unit that hands its input through on rank 1",
     three_units,
     [](const auto& u, const Variable& x, int rank, int64_t) {
       Variable h = call(u[0], [&] { return tanh(linear(x, w(u, 0))); });
       const auto region = [&u, rank](const Variable& in) {
         return call(u[1],
                     [&] { return rank == 1 ? in : linear(linear(in, w(u, 1, 1)), w(u, 1)); });
       };
       h = recompute(region, h);
       return square(call(u[2], [&] { return linear(linear(h, w(u, 2, 1)), w(u, 2)); }));
     }},
    {"a recomputed unit that hands its input through on rank 1, used three times behind it",
     three_units,
     [](const auto& u, const Variable& x, int rank, int64_t) {
       const Variable h = call(u[0], [&] { return tanh(linear(x, w(u, 0))); });
       const auto region = [&u, rank](const Variable& in) {
         return call(u[1], [&] { return rank == 1 ? in : linear(in, w(u, 1, 1)); });
       };
       const Variable y = recompute(region, h);
       const Variable z = call(u[2], [&] { return linear(y, w(u, 2, 1)); });
       return square(z + y + scale(h, 0.3) + tanh(y) + tanh(h) * 0.1);
     }},
    {"the first unit hands data through on rank 1",
     two_units,
     [](const auto& u, const Variable& x, int rank, int64_t) {
       const Variable h = call(u[0], [&] { return rank == 1 ? x : tanh(linear(x, w(u, 0))); });
       return square(call(u[1], [&] { return linear(h, w(u, 1)); }));
     }},
    {"a unit that hands its input through on rank 1, used three times behind it",
     three_units,
     [](const auto& u, const Variable& x, int rank, int64_t) {
       const Variable h = call(u[0], [&] { return tanh(linear(x, w(u, 0))); });
       const Variable y = call(u[1], [&] { return rank == 1 ? h : linear(h, w(u, 1, 1)); });
       const Variable z = call(u[2], [&] { return linear(y, w(u, 2, 1)); });
       return square(z + y + scale(h, 0.3) + tanh(y) + tanh(h) * 0.1);
     }},
    {"parameters without elements",
     [] {
       return std::vector<Unit>{
           {"e", {parameter("e", 1, {0, 5})}},
           {"u", {parameter("z", 2, {0}), parameter("a", 3), parameter("y", 4, {0})}},
           {"d", {parameter("d", 5, {0})}}};
     },
     [](const auto& u, const Variable& x, int, int64_t) {
       Variable h = call(u[0], [&] { return x + sum(w(u, 0)); });
       h = call(u[1], [&] { return linear(h, w(u, 1, 1)) + sum(w(u, 1)) + sum(w(u, 1, 2)); });
       return square(call(u[2], [&] { return h + sum(w(u, 2)); }));
     }},
};

TEST(EngineUse, EveryEngineHasDdpsBits) {
  for (const Model& model : models) {
    for (const int ranks : {1, 2, 3}) {
      const std::vector<float> reference = losses_of(model, EngineKind::ddp, ranks);
      ASSERT_EQ(reference.size(), 5u) << model.what;
      EXPECT_NE(reference[0], reference[4]) << model.what;
      for (const EngineKind engine : engines)
        for (const bool lazy : {false, true})
          EXPECT_EQ(losses_of(model, engine, ranks, lazy), reference)
              << model.what << " " << name_of(engine) << " N=" << ranks
              << (lazy ? " lazy streams" : "");
    }
  }
}

std::string refusal_of(const Model& model,
                       EngineKind engine,
                       int ranks,
                       ErrorKind kind = ErrorKind::usage) {
  return test::error_of(kind, [&] { losses_of(model, engine, ranks); });
}

TEST(EngineUse, ALeafThatIsntTheEnginesIsNamed) {
  const Variable forgotten = parameter("forgotten", 9);
  const Model model{"a module that was not added",
                    two_units,
                    [&](const auto& u, const Variable& x, int, int64_t) {
                      return square(linear(linear(x, w(u, 0)), forgotten));
                    }};
  for (const EngineKind engine : engines)
    EXPECT_NE(refusal_of(model, engine, 1)
                  .find("'forgotten' (40, 40) has a gradient but is no parameter of this"),
              std::string::npos)
        << name_of(engine);
}

TEST(EngineUse, AUnitThatOnlySomeRanksCallIsNamedByZero3) {
  const Model model{"a unit that only rank 0 calls",
                    two_units,
                    [](const auto& u, const Variable& x, int rank, int64_t) {
                      const Variable h = call(u[0], [&] { return tanh(linear(x, w(u, 0))); });
                      return square(rank == 1 ? h : call(u[1], [&] { return linear(h, w(u, 1)); }));
                    }};
  const std::string message = refusal_of(model, EngineKind::zero3, 2, ErrorKind::peer);
  EXPECT_NE(message.find("ranks make different calls"), std::string::npos) << message;
  EXPECT_NE(message.find("of v"), std::string::npos) << message;
  EXPECT_EQ(losses_of(model, EngineKind::zero2, 2), losses_of(model, EngineKind::ddp, 2));
}

TEST(EngineUse, BetweenStepsZero3SaysWhereAParameterCanBeRead) {
  run_threads(2, [](Comm& comm) {
    const std::vector<Unit> units = two_units();
    for (const EngineKind kind : engines) {
      auto engine = initialize(units, {.engine = kind, .lr = 0.05}, comm);
      const Variable a = w(units, 0);
      if (kind != EngineKind::zero3) {
        EXPECT_EQ(a.tensor().numel(), width * width);
        continue;
      }
      const std::string message = test::error_of(ErrorKind::usage, [&] { a.tensor(); });
      EXPECT_NE(
          message.find(
              "a is away: between steps use it within a call of its unit u or within gather()"),
          std::string::npos)
          << message;
      EXPECT_GT(call_unit(units[0].hooks, [&] { return a.tensor().to_vector<float>().size(); }),
                0u);
    }
  });
}

TEST(EngineUse, WhatIsTrainedIsSettledAtInitialize) {
  run_threads(1, [](Comm& comm) {
    for (const EngineKind kind : engines) {
      std::vector<Unit> units = two_units();
      Variable a = w(units, 0), b = w(units, 1);
      b.set_requires_grad(false);
      auto engine = initialize(units, {.engine = kind}, comm);
      a.set_requires_grad(true);  // as it is
      EXPECT_NE(test::error_of(ErrorKind::usage, [&] { a.set_requires_grad(false); })
                    .find("'a' is trained by its engine"),
                std::string::npos);
      EXPECT_NE(test::error_of(ErrorKind::usage, [&] { b.set_requires_grad(true); })
                    .find("'b' is kept frozen"),
                std::string::npos);
      engine.reset();
      b.set_requires_grad(true);
    }
  });
}

TEST(EngineUse, NestedUnitsKeepToTheLimitOfWhatIsLive) {
  const Model nested{"a unit within another's call",
                     two_units,
                     [](const auto& u, const Variable& x, int, int64_t) {
                       return square(call(u[0], [&] {
                         const Variable h =
                             call(u[1], [&] { return tanh(linear(linear(x, w(u, 0)), w(u, 1))); });
                         return linear(h, w(u, 0));
                       }));
                     }};
  EXPECT_EQ(losses_of(nested, EngineKind::zero3, 2), losses_of(nested, EngineKind::ddp, 2));
  const std::string message = test::error_of(ErrorKind::usage, [&] {
    run_threads(1, [&](Comm& comm) {
      const std::vector<Unit> units = nested.units();
      const Options o{.engine = EngineKind::zero3, .max_live_elements = width * width};
      auto engine = initialize(units, o, comm);
      engine->forward([&] { return nested.loss(units, Variable(full({2, width}, 1)), 0, 0); });
    });
  });
  EXPECT_NE(
      message.find("v needs 1600 parameters more while 1600 of u are live, at most 1600 may be"),
      std::string::npos)
      << message;
}

}  // namespace
}  // namespace sg::dist::testing
