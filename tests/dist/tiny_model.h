// A small language model made of autograd's ops alone, and a run of it under any engine, for the
// tests of engines.
#pragma once
#include <bit>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "autograd/ops.h"
#include "dist/engine.h"
#include "dist/launch.h"

namespace sg::dist::testing {

struct Dropout {
  float probability = 0;
  RandomKey key = {};
};

// Embedding, one block with a parameter that is used only if asked for, and a classifier; about
// 8,000 parameters in chunks of odd sizes.
class TinyModel {
 public:
  // strided: the matrices' tensors aren't dense
  explicit TinyModel(bool tied, bool with_unused = true, bool strided = false)
      : strided_(strided),
        table_(parameter("table", {131, 24})),
        gain_(parameter("block.gain", {24})),
        up_(parameter("block.up", {48, 24})),
        up_bias_(parameter("block.up_bias", {48})),
        unused_(parameter("block.unused", {1500})),
        down_(parameter("block.down", {24, 48})),
        classifier_(tied ? table_ : parameter("head.weight", {131, 24})) {
    units_ = {
        {"embed", {table_}}, {"block", {gain_, up_, up_bias_, down_}}, {"head", {classifier_}}};
    if (with_unused)
      units_[1].parameters.insert(units_[1].parameters.end() - 1, unused_);
  }

  std::vector<Unit> units() const { return units_; }

  // tokens, targets (rows) i32; use_all: block.unused takes part after all
  Variable loss(const Tensor& tokens,
                const Tensor& targets,
                bool use_all = false,
                const Dropout& drop = {}) const {
    const Variable x = call_unit(units_[0].hooks, [&] { return embedding(table_, tokens); });
    const Variable y = call_unit(units_[1].hooks, [&] {
      const Variable h =
          linear_activation(PointwiseOp::gelu_tanh, rmsnorm(x, gain_, 1e-5f), up_, up_bias_);
      const Variable sum_of_all =
          add(x,
              drop.probability > 0 ? dropout(linear(h, down_), drop.probability, drop.key)
                                   : linear(h, down_));
      return use_all ? add(sum_of_all, mean(unused_)) : sum_of_all;
    });
    return call_unit(units_[2].hooks, [&] { return classifier_loss(y, classifier_, targets); });
  }

 private:
  Variable parameter(const std::string& name, const Shape& shape) {
    CategoryScope scope(Category::parameters);
    Tensor value =
        random_normal(shape, {.seed = 7, .op = next_++}, shape.rank() == 1 ? 1.0f : 0.0f, 0.1f);
    if (strided_ && shape.rank() == 2)
      value = clone(value.transposed()).transposed();
    return Variable(value, true, name);
  }

  const bool strided_;
  uint64_t next_ = 0;
  Variable table_, gain_, up_, up_bias_, unused_, down_, classifier_;
  std::vector<Unit> units_;
};

inline Tensor random_ids(uint64_t op, int64_t rows) {
  CategoryScope scope(Category::data);
  return cast(random_uniform({rows}, {.seed = 11, .op = op}, 0, 131), DType::i32);
}

struct Outcome {
  std::vector<uint32_t> loss_bits;                  // by step
  std::vector<double> norms;                        // by step
  std::map<std::string, std::vector<float>> state;  // "kind/parameter" → all elements
  std::vector<TrafficTable> traffic;                // by rank, of all steps
  std::vector<Ledger> memory;                       // by rank

  friend bool operator==(const Outcome& a, const Outcome& b) {
    return a.loss_bits == b.loss_bits && a.norms == b.norms && a.state == b.state;
  }
};

struct Training {
  Options options;
  int ranks = 1;
  int steps = 3;
  bool tied = true;
  bool with_unused = true;
  int64_t rows = 24;  // of a micro-batch
  float dropout = 0;
  int first_step = 0;
  bool strided = false;
  std::string frozen = {};  // a parameter
  int forwards = 1;         // of each micro-step; the last one is run backward
};

inline void collect(Outcome& outcome, Engine& engine, std::mutex& mutex) {
  std::lock_guard lock(mutex);
  for (const StateEntry& entry : engine.state()) {
    auto& all = outcome.state[entry.kind + "/" + entry.parameter];
    all.resize(static_cast<size_t>(numel(entry.shape)));
    const std::vector<float> values = cast(entry.values, DType::f32).to_vector<float>();
    std::copy(values.begin(), values.end(), all.begin() + entry.begin);
  }
}

// `visit(engine, step)` is called on every rank after each step, `prepare(engine)` before the
// first.
template <class Visit, class Prepare>
Outcome train(const Training& r, Visit&& visit, Prepare&& prepare) {
  Outcome outcome;
  outcome.traffic.resize(static_cast<size_t>(r.ranks));
  outcome.memory.resize(static_cast<size_t>(r.ranks));
  std::mutex mutex;
  CommOptions comm_options;
  comm_options.ranks = r.ranks;
  comm_options.timeout = 60;
  run_threads(comm_options, [&](Comm& comm) {
    const TinyModel model(r.tied, r.with_unused, r.strided);
    for (const Unit& unit : model.units())
      for (Variable p : unit.parameters)
        if (p.name() == r.frozen)
          p.set_requires_grad(false);
    auto engine = initialize(model.units(), r.options, comm);
    prepare(*engine);
    const int k = r.options.micro_steps;
    const auto rows = static_cast<uint64_t>(r.rows);
    for (int step = r.first_step; step < r.steps; ++step) {
      for (int j = 0; j < k; ++j) {
        const auto number = static_cast<uint64_t>((step * k + j) * r.ranks + comm.rank());
        const Tensor tokens = random_ids(2 * number, r.rows),
                     targets = random_ids(2 * number + 1, r.rows);
        const RandomKey key{
            .seed = 13, .step = static_cast<uint64_t>(step), .first_sample = number * rows};
        const auto forward = [&] {
          return engine->forward([&] {
            return model.loss(tokens, targets, false, {r.dropout, key});
          });
        };
        for (int unused = 1; unused < r.forwards; ++unused)
          forward();
        engine->backward(forward());
        const StepResult result = engine->step();
        if (!result.complete || comm.rank() != 0)
          continue;
        outcome.loss_bits.push_back(std::bit_cast<uint32_t>(result.loss));
        outcome.norms.push_back(result.norm);
      }
      visit(*engine, step);
    }
    engine->synchronize();
    const auto rank = static_cast<size_t>(comm.rank());
    outcome.traffic[rank] = comm.traffic().table();
    outcome.memory[rank] = pool(comm.device()).ledger();
    collect(outcome, *engine, mutex);
  });
  return outcome;
}
template <class Visit>
Outcome train(const Training& r, Visit&& visit) {
  return train(r, std::forward<Visit>(visit), [](Engine&) {});
}
inline Outcome train(const Training& r) {
  return train(r, [](Engine&, int) {});
}

}  // namespace sg::dist::testing
