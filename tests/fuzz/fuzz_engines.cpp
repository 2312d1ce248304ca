// Random models under random engines and options, against ddp with plain options: losses, norms and
// all state have the same bits. On the way exceptions are thrown on all ranks and the step
// repeated, freezing is tried and refused, another engine goes on from a checkpoint, streams run as
// late as they may, and some targets are left out.

// Test: Fuzz.Engines --count 60
#include <mutex>
#include <optional>

#include "autograd/targets.h"
#include "core/stream.h"
#include "dist/launch.h"
#include "tests/core/temporary_folder.h"
#include "tests/dist/tiny_model.h"
#include "tests/fuzz/random_model.h"

namespace {

using namespace sg;
using dist::EngineKind;
using dist::testing::Outcome;

constexpr int64_t steps = 3;

// What bits depend on.
struct Numerics {
  fuzz::ModelPlan plan;
  dist::Options options;
  int ranks = 1;
  int64_t rows = 1, length = 1;
  bool weighted = false;
  bool empty_batches = false;  // some have no target at all
};

// What they don't.
struct Course {
  dist::Options first, second;        // engines before and after a checkpoint
  std::optional<int64_t> checkpoint;  // after so many steps
  std::optional<int64_t> thrown;      // in this step
  int64_t point = 0, micro_step = 0;  // there
  std::optional<int64_t> frozen;      // before this step
  std::optional<uint64_t> lazy;       // seed
};

std::string text_of(const dist::Options& o) {
  return fmt::format(
      "{} k {} {} clip {} {} precision {} communication {} prescale {} predivide {} elastic {} | "
      "overlap {} {} buckets "
      "{}, {} all_reduce {} prefetch {} live {} persistent {} optimizer on {}",
      name_of(o.engine),
      o.micro_steps,
      name_of(o.accumulation),
      o.clip,
      o.optimizer.type,
      name_of(o.precision),
      o.communication ? name_of(*o.communication) : "–",
      o.prescale_gradients,
      o.predivide,
      o.elastic_determinism,
      o.overlap,
      name_of(o.partition),
      o.first_bucket_bytes,
      o.bucket_bytes,
      o.zero1_all_reduce,
      o.prefetch_elements,
      o.max_live_elements,
      o.persistent_elements,
      name_of(o.offload_optimizer));
}

std::string text_of(const Course& c) {
  std::string text = text_of(c.first);
  if (c.lazy)
    text += fmt::format("\n  lazy streams of seed {}", *c.lazy);
  if (c.thrown)
    text += fmt::format(
        "\n  thrown in step {}, micro-step {}, point {}", *c.thrown, c.micro_step, c.point);
  if (c.frozen)
    text += fmt::format("\n  freezing tried before step {}", *c.frozen);
  if (c.checkpoint)
    text += fmt::format("\n  after step {}: {}", *c.checkpoint, text_of(c.second));
  return text;
}

Numerics draw_numerics(fuzz::Random& random) {
  Numerics n;
  n.plan = fuzz::PlanMaker(random).make();
  n.ranks = static_cast<int>(random.between(1, 4));
  n.rows = random.between(1, 3);
  n.length = random.between(1, 5);
  n.weighted = random.chance(0.5);
  n.empty_batches = n.weighted && random.chance(0.3);
  dist::Options& o = n.options;
  o.lr = 0.02;
  o.micro_steps = static_cast<int>(random.between(1, 3));
  o.accumulation =
      random.chance(0.5) ? dist::Accumulation::local_first : dist::Accumulation::ranks_first;
  o.clip = random.pick({0.0, 0.05, 10.0});
  o.optimizer.type = random.pick({"adamw", "sgd", "lion"});
  o.precision = random.pick({DType::f32, DType::f32, DType::bf16, DType::f16});
  o.loss_scale.initial_power = 8;
  o.on_nonfinite = dist::OnNonFinite::skip;
  if (n.ranks != 3 && random.chance(0.15)) {
    o.elastic_determinism = true;
    o.accumulation = dist::Accumulation::ranks_first;
    return n;
  }
  if (random.chance(0.2))
    o.communication = random.pick({DType::f32, DType::bf16});
  if (random.chance(0.2))
    o.prescale_gradients = true;
  else if (random.chance(0.2))
    o.predivide = random.pick({2.0, 3.0});
  return n;
}

dist::Options draw_course_options(fuzz::Random& random, const Numerics& n) {
  dist::Options o = n.options;
  o.engine = random.pick({EngineKind::dp,
                          EngineKind::ddp,
                          EngineKind::zero1,
                          EngineKind::zero2,
                          EngineKind::zero3,
                          EngineKind::zero3});
  o.overlap = random.chance(0.7);
  o.partition = random.chance(0.5) ? dist::PartitionKind::bucket : dist::PartitionKind::contiguous;
  o.first_bucket_bytes = random.pick<int64_t>({1, 100, 4096, 1 << 14, 1 << 20});
  o.bucket_bytes = random.pick<int64_t>({1, 100, 4096, 1 << 14, 1 << 20});
  o.zero1_all_reduce = !o.elastic_determinism && random.chance(0.3);
  o.prefetch_elements = random.pick<int64_t>({0, 100, 2000, 1 << 20});
  o.persistent_elements = random.pick<int64_t>({0, 0, 40, 1200});
  int64_t all = 1;
  for (const fuzz::ParameterPlan& p : n.plan.parameters)
    all += numel(p.shape);
  o.max_live_elements = random.chance(0.3) ? all : 0;
  if (dist::has_any(dist::zero_engines, o.engine) && random.chance(0.3))
    o.offload_optimizer = dist::OffloadDevice::cpu;
  return o;
}

// Where ranks use other parameters, an exception finds them at different calls of their group,
// which they are told.
bool ranks_differ(const Numerics& n) {
  for (const fuzz::UnitPlan& unit : n.plan.units)
    for (const fuzz::LayerPlan& layer : unit.layers)
      if (layer.some_ranks)
        return true;
  return n.empty_batches;
}

Course draw_course(fuzz::Random& random, const Numerics& n) {
  Course c;
  c.first = draw_course_options(random, n);
  c.second = draw_course_options(random, n);
  if (random.chance(0.3))
    c.checkpoint = random.between(1, steps - 1);
  if (random.chance(0.4) && !ranks_differ(n)) {
    c.thrown = random.between(0, steps - 1);
    c.micro_step = random.between(0, n.options.micro_steps - 1);
    c.point = random.between(1, 20);
  }
  if (random.chance(0.2))
    c.frozen = random.between(0, steps - 1);
  if (random.chance(0.5))
    c.lazy = random.next();
  return c;
}

Tensor ids(uint64_t op, int64_t count, int64_t classes) {
  CategoryScope scope(Category::data);
  return cast(random_uniform({count}, {.seed = 11, .op = op}, 0, static_cast<float>(classes)),
              DType::i32);
}

// One rank of a run.
class Rank {
 public:
  Rank(const Numerics& n, const Course& course, dist::Comm& comm)
      : n_(n), course_(course), comm_(comm), model_(n.plan, trap_) {}

  void run(const dist::Options& options,
           int64_t first,
           int64_t end,
           const std::string& folder,
           Outcome& outcome,
           std::mutex& mutex) {
    auto engine = dist::initialize(model_.units(), options, comm_);
    if (first > 0)
      engine->load(folder);
    for (int64_t step = first; step < end; ++step) {
      if (course_.frozen == step)
        try_to_freeze();
      const std::optional<dist::StepResult> failing =
          course_.thrown == step ? try_step(*engine, true) : std::nullopt;
      const dist::StepResult result = failing ? *failing : *try_step(*engine, false);
      if (comm_.rank() != 0)
        continue;
      outcome.loss_bits.push_back(std::bit_cast<uint32_t>(result.loss));
      outcome.norms.push_back(result.norm);
    }
    if (end < steps)
      return engine->save(folder);
    engine->synchronize();  // nobody waits for a peer with the lock in hand
    dist::testing::collect(outcome, *engine, mutex);
  }

 private:
  dist::StepResult micro_step(dist::Engine& engine, int64_t j) {
    const auto step = static_cast<uint64_t>(engine.steps());
    const auto number = static_cast<uint64_t>(engine.steps() * n_.options.micro_steps * n_.ranks +
                                              j * n_.ranks + comm_.rank());
    const int64_t positions = n_.rows * n_.length;
    const Tensor tokens = ids(3 * number, positions, n_.plan.classes);
    Tensor targets = ids(3 * number + 1, positions, n_.plan.classes);
    if (n_.weighted)
      targets = with_some_left_out(targets, number);
    const auto loss = [&] {
      return model_.loss(
          tokens, targets, {comm_.rank(), step, number * static_cast<uint64_t>(positions)});
    };
    std::optional<dist::Targets> weight;
    if (n_.weighted)
      weight = dist::Targets{count_targets(targets), positions};
    engine.backward(engine.forward(loss, weight));
    return engine.step();
  }

  // Rank 0's keep at least one target.
  Tensor with_some_left_out(const Tensor& targets, uint64_t number) const {
    std::vector<int32_t> all = targets.to_vector<int32_t>();
    fuzz::Random random(number);
    const bool empty = n_.empty_batches && comm_.rank() != 0 && random.chance(0.4);
    for (size_t i = empty ? 0 : 1; i < all.size(); ++i)
      if (empty || random.chance(0.4))
        all[i] = -1;
    return from_vector(all);
  }

  // A whole step; nothing where the trap has dropped it. It springs at the same point on all ranks,
  // or not at all where a micro-step has fewer points.
  std::optional<dist::StepResult> try_step(dist::Engine& engine, bool trapped) {
    dist::StepResult result;
    for (int64_t j = 0; j < n_.options.micro_steps; ++j) {
      trap_.set(trapped && j == course_.micro_step ? course_.point : 0);
      try {
        result = micro_step(engine, j);
      } catch (const fuzz::Trapped&) {
        return std::nullopt;
      }
    }
    return result;
  }

  void try_to_freeze() {
    try {
      Variable& p = model_.parameter(0);
      p.set_requires_grad(!p.requires_grad());
    } catch (const Error&) {
      return;
    }
    throw fuzz::Failure("set_requires_grad was taken by an engine's parameter");
  }

  const Numerics& n_;
  const Course& course_;
  dist::Comm& comm_;
  fuzz::Trap trap_;
  fuzz::RandomModel model_;
};

Outcome run(const Numerics& n, const Course& course) {
  const test::TemporaryFolder folder;
  Outcome outcome;
  std::mutex mutex;
  dist::CommOptions comm_options;
  comm_options.ranks = n.ranks;
  comm_options.timeout = 20;
  comm_options.device.threads = 1;
  set_lazy_streams(course.lazy.has_value(), course.lazy.value_or(0));
  const int64_t turn = course.checkpoint.value_or(steps);
  dist::run_threads(comm_options, [&](dist::Comm& comm) {
    Rank(n, course, comm).run(course.first, 0, turn, folder.path(), outcome, mutex);
    if (turn < steps)
      Rank(n, course, comm).run(course.second, turn, steps, folder.path(), outcome, mutex);
  });
  set_lazy_streams(false);
  return outcome;
}

std::string first_difference(const Outcome& a, const Outcome& b) {
  for (size_t i = 0; i < a.norms.size(); ++i) {
    if (a.loss_bits[i] != b.loss_bits[i])
      return fmt::format("the loss of step {}: {}, not {}",
                         i,
                         std::bit_cast<float>(b.loss_bits[i]),
                         std::bit_cast<float>(a.loss_bits[i]));
    if (a.norms[i] != b.norms[i])
      return fmt::format("the norm of step {}: {}, not {}", i, b.norms[i], a.norms[i]);
  }
  for (const auto& [name, values] : a.state) {
    if (b.state.count(name) == 0)
      return name + " is missing";
    if (b.state.at(name) != values)
      return name;
  }
  return "state of parameters that ddp hasn't";
}

void one_case(fuzz::Random& random) {
  const Numerics n = draw_numerics(random);
  const Course course = draw_course(random, n);
  Course plain;
  plain.first = n.options;
  plain.first.engine = EngineKind::ddp;
  plain.first.overlap = false;
  const std::string what =
      fmt::format("{} ranks, {}\n{}\n", n.ranks, fuzz::text_of(n.plan), text_of(course));
  Outcome expected, found;
  try {
    expected = run(n, plain);
    found = run(n, course);
  } catch (const std::exception& e) {
    throw fuzz::Failure(fmt::format("{}\n{}", e.what(), what));
  }
  fuzz::expect(found == expected,
               "{} differs\n{}",
               found == expected ? "" : first_difference(expected, found),
               what);
}

}  // namespace

int main(int argc, char** argv) {
  return sg::fuzz::run(argc, argv, {.count = 60}, one_case);
}
