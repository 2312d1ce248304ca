#include "models/run/options.h"

#include "models/run/command_line.h"

namespace sg::models {
namespace {

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
  add_settings(app, data_settings, o, {Topic::run});
}

void add_group(CLI::App& app, dist::CommOptions& o) {
  add_settings(app, dist::group_settings, o, {Topic::group});
}

void add_engine(CLI::App& app, dist::Options& o, std::initializer_list<Topic> topics) {
  dist::visit_engine(o, [&](auto rows, auto& owner) { add_settings(app, rows, owner, topics); });
}

void add_rates(CLI::App& app, TrainOptions& o) {
  add_settings(app, dist::optimizer_settings, o.engine.optimizer, {Topic::optimizer});
  add_settings(app, dist::schedule_settings, o.schedule, {Topic::rates});
  add_engine(app, o.engine, {Topic::rates});
}

void add_batch(CLI::App& app, TrainOptions& o) {
  add_settings(app, dist::batch_settings, o.batch, {Topic::batch});
  add_setting(app, run_settings, o, "--steps");
  add_setting(app, run_settings, o, "--seed");
}

template <class Options>
void add_config(CLI::App& app, Options& options, std::string& file) {
  app.add_option("--config", file, "JSON in DeepSpeed's format; options given here win over it");
  app.callback([&app, &options] { merge_config(app, options); });
}

void add_resume(CLI::App& app, TrainOptions& o) {
  app.add_option(
         "--resume", o.resume, "go on from the newest checkpoint of --out, or of the folder given")
      ->expected(0, 1)
      ->type_name("[DIR]");
}

}  // namespace

void add_train_options(CLI::App& app, TrainOptions& o, const std::string& sizes) {
  add_config(app, o, o.config);
  add_training_size(app, o.size, sizes);
  add_data(app, o.data);
  add_settings(app, dist::batch_settings, o.batch, {Topic::batch});
  add_settings(app, run_settings, o, {Topic::run});
  add_resume(app, o);
  for (const char* decided :
       {"--size", "--layers", "--heads", "--width", "--context", "--vocab", "--tied"})
    app.get_option("--init-from")->excludes(app.get_option(decided));
  add_settings(app, run_settings, o, {Topic::report});
  add_rates(app, o);
  add_engine(app, o.engine, {Topic::engine, Topic::layout, Topic::failures});
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
  add_number(app, "--temperature", o.temperature, "0: always the likeliest token");
  add_count(app, "--top-k", o.top_k, "choose among the likeliest k; 0: all", 0);
  app.add_option("--seed", o.seed, "of the choices")->capture_default_str();
  add_group(app, o.group);
}

void add_export_options(CLI::App& app, ExportOptions& o) {
  app.add_option("--from", o.from, "folder of a training run")->required();
  app.add_option(
         "--to",
         o.to,
         "NAME.safetensors: one file of our names, replaced if it is there; another name: a "
         "new folder in Hugging Face's form")
      ->required();
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
  const OptionRow shards{.name = "--shard-bytes",
                         .help = "of a file in a folder, at most",
                         .shown_default = "5GiB",
                         .range = {.low = 1},
                         .form = dist::Form::bytes};
  add_option(app, shards, &o.shard_bytes);
  app.add_flag(
      "--allow-nonfinite", o.allow_nonfinite, "export parameters that hold NaN or infinities too");
  add_setting(app, dist::group_settings, o.group, "--device-memory");
}

void add_import_options(CLI::App& app, ImportOptions& o) {
  app.add_option("--from", o.from, "a Hugging Face folder: config.json and safetensors")
      ->required();
  app.add_option("--to", o.to, "folder of a run to make, for eval, generate, export, --init-from")
      ->required();
  add_setting(app, dist::group_settings, o.group, "--device-memory");
}

void add_bench_options(CLI::App& app, BenchOptions& o, const std::string& sizes) {
  TrainOptions& train = o;
  add_config(app, train, o.config);
  add_training_size(app, o.size, sizes);
  add_setting(app, dist::batch_settings, o.batch, "--micro-batch");
  add_setting(app, run_settings, train, "--steps");
  add_engine(app, o.engine, {Topic::engine, Topic::layout, Topic::failures});
  add_group(app, o.group);
  add_settings(app, run_settings, train, {Topic::report});
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
  add_config(app, o, train.config);
  add_training_size(app, train.size, sizes);
  add_data(app, train.data);
  add_batch(app, train);
  add_rates(app, train);
  add_engine(app, train.engine, {Topic::layout, Topic::failures});
  add_group(app, train.group);
  app.add_option(
      "--receipt", train.receipt, "file for the comparison with each engine's receipt (JSON)");
}

void add_plan_options(CLI::App& app, PlanOptions& o, const std::string& sizes) {
  add_config(app, o, o.config);
  add_training_size(app, o.size, sizes);
  add_parsed(app,
             "--params",
             o.parameters,
             parse_count,
             "the model nearest to so many parameters, such as 7.5b",
             "");
  for (const char* decided : {"--size", "--layers", "--heads", "--width"})
    app.get_option("--params")->excludes(app.get_option(decided));
  app.add_option("--world", o.group.ranks, "ranks")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 16));
  o.engines = parse_engines("all");
  app.add_option_function<std::string>(
      "--engine",
      [&o](const std::string& text) { o.engines = parse_engines(text); },
      "all, or some of dp,ddp,zero1,zero2,zero3");
  add_engine(app, o.engine, {Topic::layout, Topic::optimizer});
  app.add_option("--micro-steps", o.engine.micro_steps, "per optimizer step")
      ->capture_default_str()
      ->check(CLI::Range(1, 1 << 20));
  add_setting(app, dist::batch_settings, o.batch, "--micro-batch");
  app.add_option("--threads",
                 o.group.threads,
                 "of a rank's device; 0: this machine's processors dealt to the ranks")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
  app.add_option("--device", o.hardware, "for the time: a100, h100, h200, or this")
      ->capture_default_str();
  app.add_flag("--json", o.json, "print JSON");
}

}  // namespace sg::models
