// `bench`: the training loop on random tokens, timed against its own matrix products.
#include <cstdio>

#include "core/io/output_file.h"
#include "models/run/commands.h"
#include "models/run/peak.h"
#include "models/run/run_folder.h"
#include "models/run/trainer.h"

namespace sg::models {
namespace {

struct RandomTokens : Dataset {
  RandomTokens(int64_t vocabulary, int64_t count)
      : Dataset("random tokens",
                IdTokenizer(vocabulary),
                tokens_in_memory(draw_ids(vocabulary, count)),
                0) {}

  static std::vector<int32_t> draw_ids(int64_t vocabulary, int64_t count) {
    std::vector<int32_t> ids(static_cast<size_t>(count));
    for (size_t i = 0; i < ids.size(); ++i)
      ids[i] =
          static_cast<int32_t>(draw({.seed = 1}, 0, i).word[0] % static_cast<uint64_t>(vocabulary));
    return ids;
  }
};

constexpr int64_t byte_vocabulary = 256;  // of a size that leaves it to the tokenizer

TrainOptions training(const Family& family, const BenchOptions& options) {
  TrainOptions training = options;
  family.resolve(training.size, byte_vocabulary);
  training.show_mfu = false;
  return training;
}

}  // namespace

void bench(const Family& family, const BenchOptions& options, dist::Comm& comm) {
  const TrainOptions settled = training(family, options);
  if (comm.rank() == 0)
    check_reports(settled);
  const int64_t context = *settled.size.context;
  Trainer trainer(family, settled, RandomTokens(*settled.size.vocab, 64 * context + 1), comm);
  trainer.run();
  Json receipt = trainer.receipt();
  if (comm.rank() != 0)
    return;
  // The receipt's peak_rss_bytes is from before this measuring.
  const TrainOptions& ran = trainer.options();
  const double alone = ran.engine.micro_steps *
                       measure_products(training_products(family, ran.size, ran.batch.micro),
                                        {.dtype = ran.engine.precision});
  receipt["matmul_efficiency"] = alone / trainer.median_step_seconds();
  std::printf(
      "median step %.1f ms, %.0f tokens/s, matmul efficiency %.3f (products alone: %.1f ms), peak "
      "memory %s\n",
      1e3 * trainer.median_step_seconds(),
      receipt["tokens_per_second"].get<double>(),
      receipt["matmul_efficiency"].get<double>(),
      1e3 * alone,
      format_bytes(receipt["peak_rss_bytes"].get<uint64_t>()).c_str());
  if (!options.receipt.empty())
    write_output(options.receipt, receipt.dump(2) + "\n");
}

}  // namespace sg::models
