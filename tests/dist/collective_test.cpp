// Collectives inside the graph, over thread ranks: values, gradients against central differences,
// books and names.
#include "dist/comm/collective.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "autograd/gradcheck.h"
#include "autograd/ops.h"
#include "dist/launch.h"

namespace sg::dist {
namespace {

using Inputs = std::span<const Variable>;

// Different for every `salt`, without symmetry.
Tensor values(const Shape& shape, int salt) {
  std::vector<double> v(static_cast<size_t>(numel(shape)));
  for (size_t i = 0; i < v.size(); ++i)
    v[i] = std::sin(1.7 * static_cast<double>(i) + 2.3 * salt + 0.4);
  return from_vector(v, shape);
}

void on_ranks(int ranks, const std::function<void(Comm&)>& body) {
  CommOptions options;
  options.ranks = ranks;
  options.timeout = 20;
  run_threads(options, body);
}

// What one rank computes of its own part of the input with a group.
struct Row {
  const char* name;
  std::function<Variable(const Variable&, Collective&)> op;
};

const std::vector<Row> rows = {
    {"all_reduce", [](const Variable& x, Collective& group) { return all_reduce(x, group, "x"); }},
    {"all_gather", [](const Variable& x, Collective& group) { return all_gather(x, group, "x"); }},
    {"reduce_scatter",
     [](const Variable& x, Collective& group) { return reduce_scatter(x, group, "x"); }},
    {"transposed input",
     [](const Variable& x, Collective& group) {
       return reduce_scatter(all_gather(transpose(x, 0, 1), group, "x"), group, "y");
     }},
    {"one behind another",
     [](const Variable& x, Collective& group) {
       const Variable whole = all_gather(mul(x, x), group, "x");
       return all_reduce(mul(whole, whole), group, "y");
     }},
};

// A function of all ranks' inputs, (ranks, 4, 3) on each: rank r applies `op` to its own part and
// weighs and squares what comes; the loss is the sum of all ranks' losses, made one by f and g, so
// that each rank may check all of it.
Variable loss_of(const Row& row, const Variable& x, Collective& group) {
  const Variable own = select(copy_to_ranks(x, group, "f"), 0, group.rank());
  const Variable y = row.op(own, group);
  const Variable weighed = mul(y, Variable(values(y.shape(), 10 + group.rank())));
  return reduce_from_ranks(sum(mul(weighed, y)), group, "g");
}

TEST(Collective, GradientsAreThoseOfTheSumOfAllRanksLosses) {
  for (const int ranks : {1, 2, 3}) {
    on_ranks(ranks, [&](Comm& comm) {
      CommCollective group(comm, Phase::step);
      for (const Row& row : rows) {
        const auto f = [&](Inputs x) { return loss_of(row, x[0], group); };
        const GradcheckResult result = gradcheck(f, {values({ranks, 6, 6}, 1)});
        EXPECT_TRUE(result) << row.name << " over " << ranks << " ranks: " << result.message;
      }
    });
  }
}

// Megatron's MLP: the first weight is split by columns, the second by rows; f before them and g
// behind them.
TEST(Collective, ASplitMlpIsTheWholeOneInValuesAndGradients) {
  const Tensor x = values({3, 4}, 1), up = values({4, 6}, 2), down = values({6, 4}, 3);
  const Variable whole_x(x, true), whole_up(up, true), whole_down(down, true);
  const Variable whole = sum(tanh(matmul(tanh(matmul(whole_x, whole_up)), whole_down)));
  backward(whole);
  on_ranks(2, [&](Comm& comm) {
    CommCollective group(comm, Phase::step);
    const int64_t begin = 3 * comm.rank(), end = begin + 3;
    const auto here = [&](const Tensor& t) { return to(contiguous(t), comm.device()); };
    const Variable own_x(here(x), true), own_up(here(up.slice(1, begin, end)), true),
        own_down(here(down.slice(0, begin, end)), true);
    const Variable inner = tanh(matmul(copy_to_ranks(own_x, group, "mlp.in"), own_up));
    const Variable loss = sum(tanh(reduce_from_ranks(matmul(inner, own_down), group, "mlp.out")));
    backward(loss);
    const auto expect_near = [](const Tensor& a, const Tensor& b, const char* what) {
      ASSERT_EQ(a.shape(), b.shape()) << what;
      const auto u = a.to_vector<double>(), v = b.to_vector<double>();
      for (size_t i = 0; i < u.size(); ++i)
        EXPECT_NEAR(u[i], v[i], 1e-12) << what << " " << i;
    };
    expect_near(loss.tensor(), whole.tensor(), "loss");
    expect_near(own_x.grad(), whole_x.grad(), "x");
    expect_near(own_up.grad(), whole_up.grad().slice(1, begin, end), "up");
    expect_near(own_down.grad(), whole_down.grad().slice(0, begin, end), "down");
    const auto check_gradients = [&](Inputs v) {
      const Variable h = tanh(matmul(copy_to_ranks(v[0], group, "mlp.in"), own_up.detach()));
      return sum(tanh(reduce_from_ranks(matmul(h, own_down.detach()), group, "mlp.out")));
    };
    const GradcheckResult result = gradcheck(check_gradients, {here(x)});
    EXPECT_TRUE(result) << result.message;
  });
}

TEST(Collective, CallsAreBookedInTheirPhaseByTheOperationAskedFor) {
  on_ranks(2, [](Comm& comm) {
    CommCollective group(comm, Phase::eval);
    comm.traffic().reset();
    const Variable x(full({8, 4}, 1.0 + comm.rank()), true);  // f32: 128 bytes
    const Variable y = reduce_scatter(x, group, "part");
    EXPECT_EQ(y.shape(), (Shape{4, 4}));
    EXPECT_EQ(y.tensor().to_vector<float>(), std::vector<float>(16, 3));
    const auto of = [&](Operation operation) { return comm.traffic().of(operation, Phase::eval); };
    EXPECT_EQ(of(Operation::reduce_scatter), (Traffic{1, 64, 64, 0}));
    EXPECT_EQ(of(Operation::all_gather).calls, 0u);
    backward(sum(y));
    EXPECT_EQ(of(Operation::all_gather), (Traffic{1, 64, 64, 0}));
    EXPECT_EQ(x.grad().to_vector<float>(), std::vector<float>(32, 1));
    const Variable sums = all_reduce(x, group, "sum");
    EXPECT_EQ(of(Operation::all_reduce), (Traffic{1, 128, 128, 0}));
    EXPECT_EQ(comm.traffic().total(Phase::step), Traffic{});
    EXPECT_NE(comm.flight_record().find("part.backward"), std::string::npos)
        << comm.flight_record();
  });
}

TEST(Collective, WhatRanksCantShareEvenlyIsRefusedByName) {
  on_ranks(2, [](Comm& comm) {
    CommCollective group(comm, Phase::step);
    for (const auto& call : std::vector<std::function<void()>>{
             [&] {
               group.reduce_scatter("odd", full({3, 4}, 1));
             },
             [&] { group.reduce_scatter("odd", full({}, 1)); },
             [&] { group.all_gather("odd", full({}, 1)); },
         }) {
      try {
        call();
        ADD_FAILURE() << "must be refused";
      } catch (const Error& error) {
        EXPECT_EQ(error.kind(), ErrorKind::usage);
        EXPECT_NE(std::string(error.what()).find("\"odd\""), std::string::npos) << error.what();
      }
    }
  });
}

}  // namespace
}  // namespace sg::dist
