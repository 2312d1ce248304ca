#include "models/run/options.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <sstream>

namespace sg::models {
namespace {

// Text that one of our parse functions turns into a value; its error is the option's.
template <class Value, class Parse>
CLI::Option* add_parsed(CLI::App& app,
                        const std::string& name,
                        Value& value,
                        Parse parse,
                        const std::string& help,
                        const std::string& shown_default) {
  return app
      .add_option_function<std::string>(
          name, [&value, parse](const std::string& text) { value = parse(text); }, help)
      ->default_str(shown_default)
      ->type_name("TEXT");
}

void add_switch(CLI::App& app, const std::string& name, bool& value, const std::string& help) {
  add_parsed(
      app,
      name,
      value,
      [name](const std::string& text) { return parse_switch(name, text); },
      help,
      value ? "on" : "off")
      ->type_name("on|off");
}

CLI::Option* add_number(CLI::App& app,
                        const std::string& name,
                        double& value,
                        const std::string& help,
                        double low,
                        double high = INFINITY) {
  return app.add_option(name, value, help)
      ->capture_default_str()
      ->check([=](const std::string& text) {
        double x = NAN;
        CLI::detail::lexical_cast(text, x);
        const bool ok = std::isfinite(x) && low <= x && x <= high;
        return ok ? std::string() : fmt::format("{} isn't a number from {} to {}", text, low, high);
      });
}

constexpr int64_t largest_count = std::numeric_limits<int64_t>::max() >> 16;

CLI::Option* add_count(CLI::App& app,
                       const std::string& name,
                       int64_t& value,
                       const std::string& help,
                       int64_t low = 1) {
  return app.add_option(name, value, help)
      ->capture_default_str()
      ->check(CLI::Range(low, largest_count).description(""));
}

void add_size(CLI::App& app, SizeOptions& o, const std::string& sizes) {
  app.add_option("--size", o.size, sizes)->capture_default_str();
  const CLI::Range positive(int64_t{1}, int64_t{1} << 31);
  const auto add_optional = [&](const char* name, std::optional<int64_t>& value, const char* help) {
    app.add_option(name, value, help)->check(positive);
  };
  add_optional("--layers", o.layers, "blocks; the size's unless given, like the next four");
  add_optional("--heads", o.heads, "attention heads; they divide the width");
  add_optional("--width", o.width, "of the residual stream");
  add_optional("--context", o.context, "tokens that the model sees at once");
  add_optional("--vocab", o.vocab, "token ids");
}

void add_training_size(CLI::App& app, SizeOptions& o, const std::string& sizes) {
  add_size(app, o, sizes);
  app.add_option("--dropout", o.dropout, "probability")
      ->capture_default_str()
      ->check(CLI::Range(0.0, 0.999));
  add_switch(app, "--tied", o.tied, "classifier and token embedding are one parameter");
}

void add_data(CLI::App& app, DataOptions& o) {
  app.add_option("--data",
                 o.path,
                 "a text, or a file of tokens (.bin: raw uint16 or llm.c's form); without it, this "
                 "project's own sources");
  app.add_option("--tokenizer", o.tokenizer, "bytes or chars, for a text; bytes unless given")
      ->check(CLI::IsMember({"bytes", "chars"}));
  add_number(app, "--val-fraction", o.val_fraction, "the end of the data that validates", 0, 0.9);
}

// A parser of sizes for one option.
template <class Number>
auto bytes_of(const std::string& option) {
  return
      [option](const std::string& text) { return static_cast<Number>(parse_bytes(option, text)); };
}

void add_group(CLI::App& app, GroupOptions& o) {
  app.add_option("--ranks",
                 o.comm.ranks,
                 "thread ranks in this process; under mpirun or srun the world decides")
      ->check(CLI::Range(1, 64));
  app.add_option("--threads",
                 o.comm.device.threads,
                 "per rank; without it the processors are dealt to the ranks")
      ->check(CLI::Range(1, 1024));
  add_parsed(app,
             "--device-memory",
             o.device_memory,
             bytes_of<uint64_t>("--device-memory"),
             "capacity of each rank's device, such as 512MiB",
             "unlimited");
  add_number(
      app, "--comm-timeout", o.comm.timeout, "seconds that a call waits for other ranks", 1e-3);
  add_parsed(app,
             "--link-bandwidth",
             o.comm.link_bandwidth,
             bytes_of<double>("--link-bandwidth"),
             "bytes a second of an emulated link between thread ranks",
             "none");
  add_number(app, "--link-latency", o.comm.link_latency, "seconds per message on that link", 0);
}

// What decides an engine's books.
void add_layout(CLI::App& app, dist::Options& o) {
  add_parsed(
      app,
      "--precision",
      o.precision,
      parse_precision,
      "of parameters, activations and gradients: f32, bf16 or fp16; masters and sums are f32",
      precision_name(o.precision));
  add_parsed(app,
             "--accumulation",
             o.accumulation,
             dist::parse_accumulation,
             "order of micro-steps and ranks: auto, local_first, ranks_first",
             dist::name_of(o.accumulation));
  add_parsed(app,
             "--partition",
             o.partition,
             dist::parse_partition,
             "how zero engines shard: bucket or contiguous",
             dist::name_of(o.partition));
  add_parsed(app,
             "--reduction",
             o.reduction,
             dist::parse_algorithm,
             "how gradients are summed: ordered, ring or native",
             dist::name_of(o.reduction));
  add_parsed(app,
             "--bucket-bytes",
             o.bucket_bytes,
             bytes_of<int64_t>("--bucket-bytes"),
             "size at which a bucket of gradients closes",
             "25MiB");
  app.add_flag("--elastic-determinism",
               o.elastic_determinism,
               "the same bits on 1, 2, 4, 8, ... ranks at the same global batch; a resume may "
               "change the ranks");
  add_switch(app, "--overlap", o.overlap, "communicate while computing");
  add_parsed(app,
             "--zero1-reduce",
             o.zero1_all_reduce,
             parse_zero1_reduce,
             "how zero1's gradients cross: reduce_scatter or, for study, all_reduce",
             "reduce_scatter");
  add_count(
      app,
      "--prefetch-elements",
      o.prefetch_elements,
      "zero3: parameters gathered ahead of their unit, or kept from forward to backward, at most",
      0);
  add_count(app,
            "--max-live-elements",
            o.max_live_elements,
            "zero3: parameters gathered at once, at most; 0: any",
            0);
  add_count(app,
            "--persistent-elements",
            o.persistent_elements,
            "zero3: parameters smaller than this stay whole on every rank",
            0);
}

// What every engine takes.
void add_communicating(CLI::App& app, dist::Options& o) {
  add_layout(app, o);
  add_parsed(
      app,
      "--on-nonfinite",
      o.on_nonfinite,
      dist::parse_on_nonfinite,
      "what a gradient that isn't finite does: stop, or skip the step; with fp16 it always skips",
      dist::name_of(o.on_nonfinite));
}

void add_optimizer_type(CLI::App& app, dist::Options& o) {
  app.add_option("--optimizer", o.optimizer.type, "adamw, adam, sgd or lion")
      ->capture_default_str()
      ->check(CLI::IsMember({"adamw", "adam", "sgd", "lion"}));
}

void add_engine(CLI::App& app, dist::Options& o) {
  add_parsed(app,
             "--engine",
             o.engine,
             dist::parse_engine,
             "none, dp, ddp, zero1, zero2, zero3, or auto: the first of ddp, zero1, zero2, zero3 "
             "that fits",
             dist::name_of(o.engine));
  add_communicating(app, o);
}

void add_optimizer(CLI::App& app, TrainOptions& train) {
  dist::Options& o = train.engine;
  optim::Schedule& schedule = train.schedule;
  add_optimizer_type(app, o);
  add_parsed(app,
             "--schedule",
             schedule.kind,
             optim::parse_schedule,
             "learning rate after the warm-up: cosine, linear, constant, wsd, or DeepSpeed's "
             "WarmupLR, WarmupDecayLR, "
             "WarmupCosineLR",
             optim::name_of(schedule.kind));
  add_number(app, "--lr", schedule.lr, "largest learning rate", 0);
  add_number(app, "--min-lr", schedule.min_lr, "last learning rate", 0);
  app.add_option("--warmup",
                 train.warmup,
                 "steps in which it rises from 0; 100, or all where there are fewer")
      ->check(CLI::Range(int64_t{0}, largest_count).description(""));
  add_count(app,
            "--decay",
            schedule.decay,
            "wsd: steps in which it falls at the end; 0: a tenth of all",
            0);
  add_number(app, "--beta1", o.optimizer.beta1, "of adamw, adam, lion", 0, 0.9999999);
  add_number(app, "--beta2", o.optimizer.beta2, "of adamw, adam, lion", 0, 0.9999999);
  add_number(app,
             "--weight-decay",
             o.optimizer.weight_decay,
             "of matrices; norms and biases never decay",
             0);
  add_number(app, "--clip", o.clip, "largest global gradient norm; 0: any", 0);
}

void add_batch(CLI::App& app, TrainOptions& o) {
  add_count(app, "--micro-batch", o.micro_batch, "sequences in one forward pass of a rank");
  add_count(app,
            "--global-batch",
            o.global_batch,
            "sequences in a step of all ranks; 0: micro-batch times ranks",
            0);
  add_count(app, "--steps", o.steps, "optimizer steps");
  app.add_option("--seed", o.seed, "of initial values, order of the data and dropout")
      ->capture_default_str();
}

void add_config(CLI::App& app, TrainOptions& o) {
  app.add_option(
      "--config", o.config, "JSON in DeepSpeed's format; options given here win over it");
  app.callback([&app, &o] { merge_config(app, o); });
}

void add_reports(CLI::App& app, TrainOptions& o) {
  app.add_option("--trace", o.trace, "file for a Chrome trace (opens in Perfetto)");
  app.add_option("--receipt", o.receipt, "file for the receipt (JSON)");
  app.add_flag("--verbose",
               o.verbose,
               "say at the start all that the run's bits depend on, as the receipt does");
}

void add_run(CLI::App& app, TrainOptions& o) {
  app.add_option("--out", o.out, "folder for checkpoints and metrics.jsonl");
  app.add_option(
         "--resume", o.resume, "go on from the newest checkpoint of --out, or of the folder given")
      ->expected(0, 1)
      ->type_name("[DIR]");
  app.add_flag("--overwrite",
               o.overwrite,
               "the run that --out holds goes; without it such a folder is refused");
  app.add_option("--accept-change",
                 o.accept_change,
                 "let a resume differ in world (which keeps the run's global batch unless another "
                 "is given), isa, "
                 "library, rules (of the numerics: another version's), steps (the schedule is "
                 "stretched to the new "
                 "length); by commas");
  add_count(
      app, "--save-every", o.save_every, "steps between checkpoints; 0: by time and at the end", 0);
  add_number(app,
             "--save-minutes",
             o.save_minutes,
             "minutes between checkpoints, at most; 0: any",
             0,
             1e6);
  app.add_flag(
      "--async-save",
      o.async_save,
      "write checkpoints beside training, which stops only while they are copied to host memory");
  add_count(app, "--eval-every", o.eval_every, "steps between validations; 0: at the end only", 0);
  add_count(
      app, "--eval-batches", o.eval_batches, "batches of a validation; 0: the whole split", 0);
  add_reports(app, o);
}

}  // namespace

void add_train_options(CLI::App& app, TrainOptions& o, const std::string& sizes) {
  add_config(app, o);
  add_training_size(app, o.size, sizes);
  add_data(app, o.data);
  add_batch(app, o);
  add_run(app, o);
  add_optimizer(app, o);
  add_engine(app, o.engine);
  add_group(app, o.group);
}

void add_eval_options(CLI::App& app, EvalOptions& o) {
  app.add_option("--from", o.from, "folder of a training run")->required();
  add_data(app, o.data);
  add_count(app, "--micro-batch", o.batch, "sequences in one forward pass");
  add_count(app, "--eval-batches", o.batches, "batches; 0: the whole validation split", 0);
  add_group(app, o.group);
}

void add_generate_options(CLI::App& app, GenerateOptions& o) {
  app.add_option("--from", o.from, "folder of a training run")->required();
  app.add_option(
      "--prompt", o.prompt, "text to go on from; of a model of a token file: its ids, by spaces");
  add_count(app, "--tokens", o.tokens, "tokens to write");
  add_number(app, "--temperature", o.temperature, "0: always the likeliest token", 0);
  add_count(app, "--top-k", o.top_k, "choose among the likeliest k; 0: all", 0);
  app.add_option("--seed", o.seed, "of the choices")->capture_default_str();
  add_group(app, o.group);
}

void add_export_options(CLI::App& app, ExportOptions& o) {
  app.add_option("--from", o.from, "folder of a training run")->required();
  app.add_option("--to", o.to, "safetensors file to write, replaced if it is there")->required();
  add_parsed(
      app,
      "--dtype",
      o.dtype,
      [](const std::string& text) {
        for (const DType dtype : {DType::f32, DType::bf16, DType::f16})
          if (text == name_of(dtype))
            return dtype;
        fail(ErrorKind::usage, "--dtype: \"{}\" is none of f32, bf16, f16", text);
      },
      "f32, bf16 or f16; the masters rounded to nearest even",
      name_of(o.dtype));
  app.add_flag(
      "--allow-nonfinite", o.allow_nonfinite, "export parameters that hold NaN or infinities too");
}

void add_bench_options(CLI::App& app, BenchOptions& o, const std::string& sizes) {
  add_config(app, o);
  add_training_size(app, o.size, sizes);
  add_count(app, "--micro-batch", o.micro_batch, "sequences in one forward pass of a rank");
  add_count(app, "--steps", o.steps, "steps");
  add_engine(app, o.engine);
  add_group(app, o.group);
  add_reports(app, o);
}

void add_compare_options(CLI::App& app, CompareOptions& o, const std::string& sizes) {
  TrainOptions& train = o.train;
  train.steps = 8;
  add_parsed(app,
             "--engines",
             o.engines,
             parse_engines,
             "all, or some by commas",
             "all that the ranks can run");
  app.add_option("--explain",
                 o.explain,
                 "ring: who holds what after each step of a ring all-reduce, and nothing else")
      ->check(CLI::IsMember({"ring"}));
  add_config(app, train);
  add_training_size(app, train.size, sizes);
  add_data(app, train.data);
  add_batch(app, train);
  add_optimizer(app, train);
  add_communicating(app, train.engine);
  add_group(app, train.group);
  app.add_option(
      "--receipt", train.receipt, "file for the comparison with each engine's receipt (JSON)");
}

void add_plan_options(CLI::App& app, PlanOptions& o, const std::string& sizes) {
  add_training_size(app, o.size, sizes);
  add_parsed(app,
             "--params",
             o.parameters,
             parse_count,
             "the model nearest to so many parameters, such as 7.5b",
             "");
  for (const char* decided : {"--size", "--layers", "--heads", "--width"})
    app.get_option("--params")->excludes(app.get_option(decided));
  app.add_option("--world", o.world, "ranks")->capture_default_str()->check(CLI::Range(1, 1 << 16));
  o.engines = parse_engines("all");
  app.add_option_function<std::string>(
      "--engine",
      [&o](const std::string& text) { o.engines = parse_engines(text); },
      "all, or some of dp,ddp,zero1,zero2,zero3");
  add_layout(app, o.engine);
  add_optimizer_type(app, o.engine);
  app.add_option("--micro-steps", o.engine.micro_steps, "per optimizer step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  add_count(app, "--micro-batch", o.micro_batch, "sequences in one forward pass of a rank");
  app.add_option("--threads",
                 o.threads,
                 "of a rank's device; 0: this machine's processors dealt to the ranks")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  app.add_option("--device", o.hardware, "for the time: a100, h100, h200, or this")
      ->capture_default_str();
  app.add_flag("--json", o.json, "print JSON");
}

}  // namespace sg::models
