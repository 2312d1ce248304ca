// The command line of every program: subcommands, ranks, exit codes.
#include <poll.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <optional>

#include "core/nearest.h"
#include "dist/explain_ring.h"
#include "dist/launch.h"
#include "models/run/commands.h"
#include "models/run/signals.h"
#include "models/run/version.h"

namespace sg::models {
namespace {

std::string examples(const std::string& program) {
  const auto line = [&](const char* arguments) { return "  " + program + " " + arguments + "\n"; };
  return "Examples:\n" +
         line("train --out run                               # on this project's own sources") +
         line("train --data book.txt --tokenizer chars --steps 2000 --out run") +
         line("train --data book.txt --tokenizer chars --steps 2000 --out run --resume") +
         line("eval --from run --data book.txt") +
         line("generate --from run --prompt \"Once\" --tokens 200") +
         line("export --from run --to model.safetensors --dtype bf16") +
         line("export --from run --to huggingface-folder") +
         line("import --from huggingface-folder --to run") + line("compare --ranks 2 --steps 20") +
         line("bench --size 124m --micro-batch 4 --context 64 --receipt bench.json") +
         line("plan --params 7.5b --world 64 --precision fp16");
}

// The parser would only say that a command is missing.
void check_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-')
    return;
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands({}))
    names.push_back(command->get_name());
  if (std::find(names.begin(), names.end(), argv[1]) != names.end())
    return;
  const std::string hint = nearest_hint(argv[1], names);
  fail(ErrorKind::usage,
       "there is no command \"{}\"{}; there are {}",
       argv[1],
       hint,
       CLI::detail::join(names, ", "));
}

// Names the first option that the command doesn't have, where that is what the parser stumbled
// over.
void check_options(const CLI::App& app, int argc, char** argv) {
  const CLI::App* command = &app;
  for (const CLI::App* one : app.get_subcommands({}))
    if (argc > 1 && one->get_name() == argv[1])
      command = one;
  std::vector<std::string> known;
  for (const CLI::Option* option : command->get_options())
    for (const std::string& name : option->get_lnames())
      known.push_back("--" + name);
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i], name = word.substr(0, word.find('='));
    if (name.size() < 3 || !name.starts_with("--") || command->get_option_no_throw(name))
      continue;
    fail(ErrorKind::usage,
         "{}there is no option {}{} (--help lists the options)",
         command == &app ? "" : command->get_name() + ": ",
         name,
         nearest_hint(name, known));
  }
}

int report_parse_error(const CLI::App& app, const CLI::ParseError& e, int argc, char** argv) {
  try {
    check_options(app, argc, argv);
    std::fprintf(stderr, "%s: %s (--help lists the options)\n", app.get_name().c_str(), e.what());
  } catch (const Error& unknown) {
    std::fprintf(stderr, "%s: %s\n", app.get_name().c_str(), unknown.what());
  }
  return static_cast<int>(ErrorKind::usage);
}

int explain(int ranks) {
  try {
    std::fputs(dist::explain_ring(ranks > 0 ? ranks : 3).c_str(), stdout);
    return 0;
  } catch (const Error& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return e.exit_code();
  }
}

namespace {

// The subcommands with what the command line gives them.
struct Subcommands {
  Subcommands(CLI::App& app, const Family& family);

  TrainOptions train;
  EvalOptions eval;
  GenerateOptions generate;
  ExportOptions export_one;
  ImportOptions import_one;
  BenchOptions bench;
  CompareOptions compare;
  PlanOptions plan;
  CLI::App* train_command;
  CLI::App* eval_command;
  CLI::App* generate_command;
  CLI::App* export_command;
  CLI::App* import_command;
  CLI::App* bench_command;
  CLI::App* compare_command;
  CLI::App* plan_command;
};

Subcommands::Subcommands(CLI::App& app, const Family& family)
    : train_command(app.add_subcommand("train", "train on a text or token file")),
      eval_command(app.add_subcommand("eval", "the validation loss of a trained model")),
      generate_command(app.add_subcommand("generate", "write text with a trained model")),
      export_command(app.add_subcommand(
          "export", "the parameters of a trained model as safetensors, for Hugging Face too")),
      import_command(
          app.add_subcommand("import", "the weights of a Hugging Face folder as a run's folder")),
      bench_command(app.add_subcommand("bench", "measure speed and memory on random tokens")),
      compare_command(app.add_subcommand(
          "compare", "run the engines on the same data and show them side by side")),
      plan_command(
          app.add_subcommand("plan", "memory, traffic and time at any scale, without running it")) {
  for (CLI::App* command : app.get_subcommands({}))
    command->footer(examples(family.name));
  add_train_options(*train_command, train, family.sizes);
  add_eval_options(*eval_command, eval);
  add_generate_options(*generate_command, generate);
  add_export_options(*export_command, export_one);
  add_import_options(*import_command, import_one);
  add_bench_options(*bench_command, bench, family.sizes);
  add_compare_options(*compare_command, compare, family.sizes);
  add_plan_options(*plan_command, plan, family.sizes);
}

// Runs the command that was given, those in a group of ranks; the exit code.
int run(const Subcommands& given, const Family& family) {
  if (*given.train_command) {
    catch_stop_signals();
    return launch(given.train.group, [&](dist::Comm& comm) { train(family, given.train, comm); });
  }
  if (*given.eval_command)
    return launch(given.eval.group, [&](dist::Comm& comm) { evaluate(family, given.eval, comm); });
  if (*given.generate_command)
    return launch(given.generate.group,
                  [&](dist::Comm& comm) { generate(family, given.generate, comm); });
  if (*given.compare_command && !given.compare.explain.empty())
    return explain(given.compare.train.group.ranks);
  if (*given.compare_command)
    return launch(given.compare.train.group,
                  [&](dist::Comm& comm) { compare(family, given.compare, comm); });
  return launch(given.bench.group, [&](dist::Comm& comm) { bench(family, given.bench, comm); });
}

}  // namespace

int run_command(int argc, char** argv, const Family& family) {
  CLI::App app("Trains, validates, generates with and measures " + family.name + " models.",
               family.name);
  app.set_version_flag("--version", std::string(version));
  app.footer(examples(family.name));
  app.require_subcommand(1);

  std::optional<Subcommands> given;
  try {
    given.emplace(app, family);
    check_command(app, argc, argv);
    app.parse(argc, argv);
    if (*given->plan_command)
      plan(family, given->plan);  // these three need no group
    if (*given->export_command)
      export_model(family, given->export_one);
    if (*given->import_command)
      import_model(family, given->import_one);
    if (*given->plan_command || *given->export_command || *given->import_command)
      return 0;
  } catch (const CLI::Success& e) {  // --help, --version
    return app.exit(e);
  } catch (const CLI::ParseError& e) {
    return report_parse_error(app, e, argc, argv);
  } catch (const Error& e) {
    std::fprintf(stderr, "%s: %s\n", family.name.c_str(), e.what());
    return e.exit_code();
  }
  return run(*given, family);
}

// A pipe whose reader has gone, as behind `| head`: it has what it wanted.
bool reader_left() {
  pollfd out{STDOUT_FILENO, 0, 0};
  return ::poll(&out, 1, 0) == 1 && (out.revents & POLLERR) != 0;
}

}  // namespace

int run(int argc, char** argv, const Family& family) {
  const int code = run_command(argc, argv, family);
  const bool written = std::fflush(stdout) == 0 && std::ferror(stdout) == 0;
  if (code != 0 || written || reader_left())
    return code;
  std::fprintf(stderr, "%s: stdout can't be written, is its disk full?\n", family.name.c_str());
  return static_cast<int>(ErrorKind::io);
}

}  // namespace sg::models
