#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/kernels/arrays.h"

namespace sg::test {
namespace {

constexpr DType gradients[] = {DType::f32, DType::f16, DType::bf16};
constexpr int64_t n = 33001;  // two tasks and a rest

AdamOptions adam_options(bool decoupled) {
  return {.lr = 1e-2f,
          .beta1 = 0.9f,
          .beta2 = 0.99f,
          .eps = 1e-8f,
          .weight_decay = 0.1f,
          .factor = 0.5f,
          .correction1 = 1 - 0.9f,
          .correction2 = 1 - 0.99f,
          .decoupled = decoupled,
          .first = false};
}

// Master, gradient and up to two moments of n elements, and 16-bit parameters.
struct State {
  Array master{DType::f32, {n}}, gradient, moment1{DType::f32, {n}}, moment2{DType::f32, {n}},
      parameter;
  State(DType g, DType p) : gradient(g, {n}), parameter(p, {n}) {
    master.random(1), gradient.random(2), moment1.random(3, 0.1), moment2.random(4, 0.1);
    for (int64_t i = 0; i < n; ++i)
      moment2.set(i, std::abs(moment2[i]));
  }
  bool same_bits(const State& o) const {
    return master.same_bits(o.master) && moment1.same_bits(o.moment1) &&
           moment2.same_bits(o.moment2) && parameter.same_bits(o.parameter);
  }
};

View slice(const View& v, int64_t begin, int64_t end) {
  View s = v;
  if (v.data)
    s.data = v.as<char>() + begin * static_cast<int64_t>(size_of(v.dtype));
  s.shape[0] = end - begin;
  return s;
}

using Step = void (*)(const KernelTable&,
                      DType,
                      const View& master,
                      const View& gradient,
                      const View& m1,
                      const View& m2,
                      const View& parameter,
                      StreamHandle);
struct Optimizer {
  const char* name;
  Step step;
  void (*reference)(double& p, double g, double& m, double& v);  // in f64, of adam_options' numbers
};

const Optimizer optimizers[] = {
    {"adamw",
     [](const KernelTable& t,
        DType g,
        const View& p,
        const View& d,
        const View& m,
        const View& v,
        const View& o,
        StreamHandle s) { t.adam[g](p, d, m, v, o, adam_options(true), s); },
     [](double& p, double g, double& m, double& v) {
       g *= 0.5, m = 0.9 * m + 0.1 * g, v = 0.99 * v + 0.01 * g * g;
       p = p - 1e-3 * p - 1e-2 * (m / 0.1) / (std::sqrt(v / 0.01) + 1e-8);
     }},
    {"adam",
     [](const KernelTable& t,
        DType g,
        const View& p,
        const View& d,
        const View& m,
        const View& v,
        const View& o,
        StreamHandle s) { t.adam[g](p, d, m, v, o, adam_options(false), s); },
     [](double& p, double g, double& m, double& v) {
       g = 0.5 * g + 0.1 * p, m = 0.9 * m + 0.1 * g, v = 0.99 * v + 0.01 * g * g;
       p -= 1e-2 * (m / 0.1) / (std::sqrt(v / 0.01) + 1e-8);
     }},
    {"sgd",
     [](const KernelTable& t,
        DType g,
        const View& p,
        const View& d,
        const View&,
        const View&,
        const View& o,
        StreamHandle s) {
       t.sgd[g](p,
                d,
                View{},
                o,
                {.lr = 0.1f,
                 .momentum = 0,
                 .weight_decay = 0.1f,
                 .factor = 0.5f,
                 .nesterov = false,
                 .first = false},
                s);
     },
     [](double& p, double g, double&, double&) { p -= 0.1 * (0.5 * g + 0.1 * p); }},
    {"momentum",
     [](const KernelTable& t,
        DType g,
        const View& p,
        const View& d,
        const View& m,
        const View&,
        const View& o,
        StreamHandle s) {
       t.sgd[g](p,
                d,
                m,
                o,
                {.lr = 0.1f,
                 .momentum = 0.9f,
                 .weight_decay = 0,
                 .factor = 0.5f,
                 .nesterov = false,
                 .first = false},
                s);
     },
     [](double& p, double g, double& m, double&) { m = 0.9 * m + 0.5 * g, p -= 0.1 * m; }},
    {"first_momentum",
     [](const KernelTable& t,
        DType g,
        const View& p,
        const View& d,
        const View& m,
        const View&,
        const View& o,
        StreamHandle s) {
       t.sgd[g](p,
                d,
                m,
                o,
                {.lr = 0.1f,
                 .momentum = 0.9f,
                 .weight_decay = 0,
                 .factor = 0.5f,
                 .nesterov = false,
                 .first = true},
                s);
     },
     [](double& p, double g, double& m, double&) { m = 0.5 * g, p -= 0.1 * m; }},
    {"nesterov",
     [](const KernelTable& t,
        DType g,
        const View& p,
        const View& d,
        const View& m,
        const View&,
        const View& o,
        StreamHandle s) {
       t.sgd[g](p,
                d,
                m,
                o,
                {.lr = 0.1f,
                 .momentum = 0.9f,
                 .weight_decay = 0,
                 .factor = 0.5f,
                 .nesterov = true,
                 .first = false},
                s);
     },
     [](double& p, double g, double& m, double&) {
       m = 0.9 * m + 0.5 * g, p -= 0.1 * (0.5 * g + 0.9 * m);
     }},
    {"lion",
     [](const KernelTable& t,
        DType g,
        const View& p,
        const View& d,
        const View& m,
        const View&,
        const View& o,
        StreamHandle s) {
       t.lion[g](p,
                 d,
                 m,
                 o,
                 {.lr = 0.01f, .beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f, .factor = 0.5f},
                 s);
     },
     [](double& p, double g, double& m, double&) {
       g *= 0.5;
       const double c = 0.9 * m + 0.1 * g;
       p = p - 1e-3 * p - 0.01 * (c > 0 ? 1 : c < 0 ? -1 : 0), m = 0.99 * m + 0.01 * g;
     }},
};

TEST(Update, MatchesTheReferenceAndRoundsTheParameters) {
  for (const KernelTable* table : tables()) {
    for (const Optimizer& o : optimizers) {
      for (DType g : gradients) {
        SCOPED_TRACE(std::string(table->name) + " " + o.name + " " + name_of(g));
        const DType p = g == DType::f32 ? DType::bf16 : g;
        State s(g, p), before(g, p);
        o.step(*table,
               g,
               s.master.view(),
               s.gradient.view(),
               s.moment1.view(),
               s.moment2.view(),
               s.parameter.view(),
               {&pool(2)});
        for (int64_t i = 0; i < n; ++i) {
          double master = before.master[i], m = before.moment1[i], v = before.moment2[i];
          o.reference(master, before.gradient[i], m, v);
          ASSERT_NEAR(s.master[i], master, 1e-6 * std::max(1.0, std::abs(master))) << i;
          ASSERT_NEAR(s.moment1[i], m, 1e-6);
          ASSERT_NEAR(s.moment2[i], v, 1e-6);
          Array rounded(p, {1});
          rounded.set(0, s.master[i]);
          ASSERT_EQ(s.parameter[i], rounded[0]);
        }
      }
    }
  }
}

// Any split, thread count and instruction set: the engines rely on it.
TEST(Update, HasTheSameBitsHoweverItIsCut) {
  for (const Optimizer& o : optimizers) {
    for (DType g : gradients) {
      State whole(g, DType::f16);
      o.step(*tables()[0],
             g,
             whole.master.view(),
             whole.gradient.view(),
             whole.moment1.view(),
             whole.moment2.view(),
             whole.parameter.view(),
             {});
      for (const KernelTable* table : tables()) {
        State cut(g, DType::f16);
        int64_t begin = 0;
        for (int64_t end : {int64_t{1}, int64_t{8}, int64_t{29}, int64_t{1000}, int64_t{1003}, n}) {
          o.step(*table,
                 g,
                 slice(cut.master.view(), begin, end),
                 slice(cut.gradient.view(), begin, end),
                 slice(cut.moment1.view(), begin, end),
                 slice(cut.moment2.view(), begin, end),
                 slice(cut.parameter.view(), begin, end),
                 {&pool(3)});
          begin = end;
        }
        EXPECT_TRUE(cut.same_bits(whole)) << o.name << " " << table->name << " " << name_of(g);
      }
    }
  }
}

TEST(Update, SumsOfSquaresAreTheDocumentedOnes) {
  for (const KernelTable* table : tables()) {
    for (DType type : gradients) {
      for (int64_t count : {0, 1, 7, 1023, 1024, 1025, 40000}) {
        Array x(type, {count});
        x.random(9);
        const int64_t chunks = (count + norm_chunk - 1) / norm_chunk;
        Array partial(DType::f64, {chunks});
        table->sum_squares[type](x.view(), partial.view(), {&pool(2)});
        for (int64_t c = 0; c < chunks; ++c) {
          double lane[8] = {};
          for (int64_t i = c * norm_chunk; i < std::min(count, (c + 1) * norm_chunk); ++i)
            lane[i % 8] += x[i] * x[i];
          ASSERT_EQ(partial[c],
                    ((lane[0] + lane[1]) + (lane[2] + lane[3])) +
                        ((lane[4] + lane[5]) + (lane[6] + lane[7])));
        }
      }
    }
    Array x(DType::f32, {2000}), partial(DType::f64, {2});
    x.fill(3e38);
    table->sum_squares.f32(x.view(), partial.view(), {});
    EXPECT_TRUE(std::isfinite(partial[0]));
    x.set(1999, std::numeric_limits<double>::infinity());
    table->sum_squares.f32(x.view(), partial.view(), {});
    EXPECT_FALSE(std::isfinite(partial[1]));
  }
}

float adjacent_pairs(std::vector<float> level) {
  while (level.size() > 1) {
    std::vector<float> next;
    for (size_t k = 0; k + 1 < level.size(); k += 2)
      next.push_back(level[k] + level[k + 1]);
    if (level.size() % 2)
      next.push_back(level.back());
    level = next;
  }
  return level[0];
}

// Sums of f32 show their order; those of a few bf16 values of one size are exact in any.
TEST(Update, TreeSumAddsAdjacentPairs) {
  for (const KernelTable* table : tables()) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      for (const auto& [in, out] : {std::pair(DType::f32, DType::f32),
                                    std::pair(DType::bf16, DType::f32),
                                    std::pair(DType::bf16, DType::bf16)}) {
        std::vector<Array> inputs;
        std::vector<View> views;
        for (int r = 0; r < ranks; ++r) {
          inputs.emplace_back(in, std::vector<int64_t>{1003}).random(r);
          views.push_back(inputs.back().view());
        }
        Array y(out, {1003});
        const float scale = 1.0f / static_cast<float>(ranks);
        const View to = y.view();
        table->tree_sum[in](views.data(), ranks, &to, 1, scale, {}, {&pool(2)});
        for (int64_t i = 0; i < 1003; ++i) {
          std::vector<float> terms;
          for (const Array& x : inputs)
            terms.push_back(static_cast<float>(x[i]));
          const float want = adjacent_pairs(terms) * scale;
          ASSERT_EQ(y[i], out == DType::f32 ? want : static_cast<float>(bf16(want)))
              << ranks << " ranks";
        }
      }
    }
  }
}

// One pass gives the sum to several places, one of them an input, and says where it isn't finite.
TEST(Update, TreeSumWritesEveryPlaceAndNamesTheFirstValueThatIsntFinite) {
  constexpr int64_t n = 70001;
  for (const KernelTable* table : tables()) {
    for (const DType type : {DType::f32, DType::f16, DType::bf16}) {
      for (const int64_t bad : {int64_t{-1}, int64_t{0}, int64_t{5000}, n - 1}) {
        Array a(type, {n}), b(type, {n}), apart(DType::f32, {n}), again(DType::f32, {n});
        a.random(1);
        b.random(2);
        if (bad >= 0)
          b.set(bad, bad % 2 ? INFINITY : -NAN);
        int64_t first[2] = {7, 7};
        const View at = flat_view(first, DType::i64, 2);
        const View inputs[] = {a.view(), b.view()};
        const View outs[] = {apart.view(), again.view()};
        table->tree_sum[type](inputs, 2, outs, 2, 0.5f, at, {&pool(2)});
        EXPECT_EQ(first[0], bad);
        EXPECT_EQ(first[1], bad < 0 ? -1 : 1);
        EXPECT_TRUE(apart.same_bits(again));
        table->find_nonfinite[type](b.view(), at, {&pool(2)});
        EXPECT_EQ(first[0], bad);
        const View in_place = a.view();
        table->tree_sum[type](inputs, 2, &in_place, 1, 0.5f, {}, {&pool(2)});
        for (int64_t i = 0; i < n; i += 997) {
          const bool finite = i != bad;
          ASSERT_TRUE(!finite || std::abs(a[i] - apart[i]) <= epsilon(type) * std::abs(apart[i]));
        }
      }
    }
  }
}

TEST(Update, AccumulateAddsIntoF32OrTheOwnDtype) {
  for (const KernelTable* table : tables()) {
    for (DType type : {DType::f32, DType::f64, DType::f16, DType::bf16}) {
      for (DType into : {type, type == DType::f64 ? DType::f64 : DType::f32}) {
        Array x(type, {5001}), acc(into, {5001}), before(into, {5001});
        x.random(1), acc.random(2), before.random(2);
        table->accumulate[type](x.view(), acc.view(), {&pool(2)});
        for (int64_t i = 0; i < 5001; ++i)
          ASSERT_NEAR(acc[i], before[i] + x[i], epsilon(into) * 4);
      }
    }
  }
}

}  // namespace
}  // namespace sg::test
