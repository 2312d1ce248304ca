#include "models/run/plan.h"

#include "core/device.h"
#include "core/ops.h"
#include "dist/engines/facts.h"
#include "models/run/load.h"
#include "nn/micro_step.h"

namespace sg::models {
namespace {

// What a micro-step's data takes, as Feed holds it.
struct DryBatch {
  DryBatch(int64_t rows, int64_t context, dist::Engine& engine) {
    const CategoryScope category(Category::data);
    const dist::Comm& comm = engine.comm();
    const bool one_reader = dist::facts_of(engine.options().engine).one_reader;
    const bool scatters = one_reader && comm.size() > 1 && comm.rank() == 0;
    const Shape whole{scatters ? rows * comm.size() : 0, context};
    const Tensor all_tokens = empty(whole, DType::i32), all_targets = empty(whole, DType::i32);
    tokens = empty({rows, context}, DType::i32), targets = empty({rows, context}, DType::i32);
  }
  Tensor tokens, targets;
};

}  // namespace

dist::MakeDryModel dry_model(const Family& family, const PlanOptions& options) {
  return [family, size = options.size, rows = options.batch.micro] {
    const std::shared_ptr<LanguageModel> model = build_on_meta(family, size, 1);
    const auto micro_step = [=](dist::Engine& engine) {
      const nn::MicroStepScope scope(1, 0, 0);  // for dropout
      const DryBatch batch(rows, *size.context, engine);
      engine.backward(engine.forward([&] { return model->loss(batch.tokens, batch.targets); }));
      engine.step();
    };
    return dist::DryModel{model->units(), micro_step};
  };
}

}  // namespace sg::models
