// `generate` and `eval`: each option does what it says, and what can't be answered is refused by
// name.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <sstream>

#include "core/ops.h"
#include "dist/checkpoint/checkpoint.h"
#include "dist/launch.h"
#include "models/gpt2/gpt2.h"
#include "models/run/commands.h"
#include "models/run/load.h"
#include "models/run/validation.h"
#include "tests/core/temporary_folder.h"
#include "tests/errors.h"

namespace sg::models {
namespace {

using test::error_of;

constexpr int64_t context = 12;

const Family family{
    "gpt2",
    "nano",
    [](SizeOptions& o, int64_t vocab) {
      o.layers = o.heads = 2, o.width = 24, o.context = context;
      o.vocab = o.vocab.value_or(vocab);
    },
    {},
    [](const SizeOptions& o, uint64_t seed) {
      auto model = std::make_unique<Gpt2>(
          Gpt2Options{.layers = 2, .heads = 2, .width = 24, .context = context, .vocab = *o.vocab});
      model->initialize(seed);
      return model;
    }};

struct Trained : testing::Test {
  void SetUp() override {
    std::string text;  // whose beginning and end differ
    for (int i = 0; i < 300; ++i)
      text += std::to_string(i * i * 7919 % 1000) + (i < 280 ? " bottles. " : "; walls: ");
    test::put(folder / "text", text);
  }
  std::string train(const std::string& run,
                    const DataOptions& data,
                    std::optional<int64_t> vocab = {}) const {
    TrainOptions options;
    options.data = data;
    options.size.vocab = vocab;
    options.schedule = {.kind = optim::ScheduleKind::constant, .lr = 1e-2};
    options.schedule.warmup = 0;
    options.batch.micro = 8, options.steps = 60, options.quiet = true;
    options.out = folder / run;
    dist::run_threads(1, [&](dist::Comm& comm) { models::train(family, options, comm); });
    return options.out;
  }
  DataOptions text() const { return {.path = folder / "text", .tokenizer = "chars"}; }
  static std::string printed(const GenerateOptions& options) {
    testing::internal::CaptureStdout();
    try {
      dist::run_threads(1, [&](dist::Comm& comm) { generate(family, options, comm); });
    } catch (const Error&) {
      testing::internal::GetCapturedStdout();
      throw;
    }
    return testing::internal::GetCapturedStdout();
  }
  test::TemporaryFolder folder;
};

std::vector<float> logits_after(const Loaded& loaded, const std::vector<int32_t>& window) {
  NoGrad guard;
  return loaded.model->last_logits(from_vector(window, {1, static_cast<int64_t>(window.size())}))
      .tensor()
      .to_vector<float>();
}

// Ids that the likeliest choice adds to `ids`, each from the window that `cut` takes of those
// before.
template <class Cut>
std::string greedy(const Loaded& loaded, std::vector<int32_t> ids, int tokens, Cut cut) {
  std::string text;
  for (int i = 0; i < tokens; ++i) {
    const std::vector<float> logits = logits_after(loaded, cut(ids));
    ids.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
    text += loaded.tokenizer.decode({&ids.back(), 1});
  }
  return text;
}

std::vector<int32_t> ids_of(const Loaded& loaded, const std::string& text) {
  std::vector<int32_t> ids;
  for (const int32_t id : loaded.tokenizer.encode(text, "test"))
    ids.push_back(id);
  return ids;
}

TEST_F(Trained, GenerateSlidesAWindowOfTheWholeContext) {
  const std::string run = train("run", text());
  const Loaded loaded = load_model(family, run);
  const std::vector<int32_t> prompt = ids_of(loaded, "12 bot");
  const auto last = [](int64_t n) {
    return [n](const std::vector<int32_t>& ids) {
      return std::vector<int32_t>(
          ids.end() - std::min<int64_t>(n, static_cast<int64_t>(ids.size())), ids.end());
    };
  };
  const auto first = [](const std::vector<int32_t>& ids) {
    return std::vector<int32_t>(
        ids.begin(), ids.begin() + std::min<int64_t>(context, static_cast<int64_t>(ids.size())));
  };
  const std::string wanted = greedy(loaded, prompt, 60, last(context));
  EXPECT_EQ(printed({.from = run, .prompt = "12 bot", .tokens = 60, .temperature = 0}),
            "12 bot" + wanted + "\n");
  // Else the test would pass with any of these.
  EXPECT_NE(wanted, greedy(loaded, prompt, 60, first));
  EXPECT_NE(wanted, greedy(loaded, prompt, 60, last(context - 1)));
}

TEST_F(Trained, GenerateHonoursTemperatureTopKAndSeed) {
  const std::string run = train("run", text());
  const auto text_of = [&](double temperature, int64_t top_k, uint64_t seed = 1) {
    return printed({.from = run,
                    .prompt = "1",
                    .tokens = 80,
                    .temperature = temperature,
                    .top_k = top_k,
                    .seed = seed});
  };
  const std::string likeliest = text_of(0, 0);
  EXPECT_EQ(text_of(5, 1), likeliest) << "--top-k 1 leaves one choice at any temperature";
  EXPECT_EQ(text_of(1e-4, 0), likeliest) << "a low temperature takes the likeliest";
  EXPECT_NE(text_of(5, 0), likeliest);
  EXPECT_NE(text_of(5, 0), text_of(1, 0));
  EXPECT_NE(text_of(5, 3), text_of(5, 0));
  EXPECT_NE(text_of(5, 0, 1), text_of(5, 0, 2));
  EXPECT_EQ(text_of(5, 0, 1), text_of(5, 0, 1));

  const Loaded loaded = load_model(family, run);
  const auto worst_place =
      [&](const std::string& text) {  // of a chosen id among the likeliest, from 0
        std::vector<int32_t> ids = ids_of(loaded, text.substr(0, text.size() - 1));
        int64_t worst = 0;
        for (size_t i = 1; i < ids.size(); ++i) {
          const auto begin = ids.begin() + std::max<int64_t>(0, static_cast<int64_t>(i) - context);
          const std::vector<float> logits =
              logits_after(loaded, {begin, ids.begin() + static_cast<int64_t>(i)});
          const float chosen = logits[static_cast<size_t>(ids[i])];
          worst = std::max(worst, std::count_if(logits.begin(), logits.end(), [&](float x) {
                             return x > chosen;
                           }));
        }
        return worst;
      };
  EXPECT_EQ(worst_place(text_of(5, 3)), 2);
  EXPECT_GT(worst_place(text_of(5, 0)), 2);
}

TEST_F(Trained, EvalTakesTheBatchesThatItIsAskedFor) {
  const std::string run = train("run", text());
  const auto loss_of = [&](int64_t batches) {
    testing::internal::CaptureStdout();
    EvalOptions options{.from = run, .data = text(), .group = {}, .batch = 2, .batches = batches};
    options.data.val_fraction = 0.2;
    dist::run_threads(1, [&](dist::Comm& comm) { evaluate(family, options, comm); });
    return testing::internal::GetCapturedStdout();
  };
  DataOptions data = text();
  data.val_fraction = 0.2;
  const Loaded loaded = load_model(family, run);
  const Dataset dataset = open_dataset(data);
  const auto count = static_cast<int64_t>(dataset.validation_batches(2, context));
  ASSERT_GT(count, 3);
  const auto wanted = [&](int64_t batches) {
    NoGrad guard;
    double sum = 0, tokens = 0;
    for (int64_t i = 0; i < batches; ++i) {
      const Batch batch = dataset.validation_batch(static_cast<uint64_t>(i), 2, context);
      const auto n = static_cast<double>(batch.targets.numel());
      sum += n * loaded.model->loss(batch.tokens, batch.targets).item(), tokens += n;
    }
    return fmt::format("validation loss {:.4f} after step 60\n", sum / tokens);
  };
  EXPECT_EQ(loss_of(1), wanted(1));
  EXPECT_EQ(loss_of(3), wanted(3));
  EXPECT_EQ(loss_of(0), wanted(count));
  EXPECT_EQ(loss_of(count + 5), wanted(count));
  EXPECT_NE(wanted(1), wanted(3));
  EXPECT_NE(wanted(3), wanted(count));
}

// The last batch may be smaller than the others.
TEST_F(Trained, ValidationIsTheMeanOverTargetsWhateverTheBatches) {
  const Loaded loaded = load_model(family, train("run", text()));
  DataOptions options = text();
  options.val_fraction = 0.2;
  const Dataset data = open_dataset(options);
  dist::run_threads(1, [&](dist::Comm& comm) {
    const auto loss_of = [&](int64_t rows) {
      return validation_loss(*loaded.model, data, {.rows = rows}, comm);
    };
    const double expected = loss_of(1);
    for (const int64_t rows : {2, 3, 4, 5, 7})
      EXPECT_NEAR(loss_of(rows), expected, 1e-6) << rows;
    for (const bool training : {true, false}) {  // dropout is on again, or still off
      loaded.model->train(training);
      loss_of(2);
      EXPECT_EQ(loaded.model->training(), training);
    }
  });
}

TEST_F(Trained, IdsWithoutTextAreWrittenAsIds) {
  const std::string run = train("run", text(), 1000);
  const std::string text = printed({.from = run, .prompt = "1", .tokens = 40, .temperature = 100});
  EXPECT_NE(text.find('<'), std::string::npos) << text;
}

TEST_F(Trained, AModelOfATokenFileTakesAndWritesIds) {
  std::string ids;
  for (int i = 0; i < 3000; ++i)
    ids += {static_cast<char>(i * i % 50), '\0'};
  test::put(folder / "ids.bin", ids);
  const std::string run = train("run", {.path = folder / "ids.bin"}, 50);
  const auto words_of = [&](const std::string& prompt) {
    std::istringstream words(printed({.from = run, .prompt = prompt, .tokens = 5}));
    return std::vector<int>(std::istream_iterator<int>(words), {});
  };
  EXPECT_EQ(words_of("").size(), 5u);
  const std::vector<int> words = words_of("3 49");
  ASSERT_EQ(words.size(), 7u);
  EXPECT_EQ(words[0], 3);
  EXPECT_EQ(words[1], 49);
  for (const int id : words)
    EXPECT_TRUE(0 <= id && id < 50) << id;
  for (const char* prompt : {"Once", "50"})
    EXPECT_NE(error_of(ErrorKind::bad_input, [&] { words_of(prompt); }).find(prompt),
              std::string::npos);
}

// The newest checkpoint of `run`, saved again as `to` with one element of a parameter replaced.
void save_spoilt(const std::string& run,
                 const std::string& to,
                 const std::string& parameter,
                 float value) {
  const dist::CheckpointReader from(run);
  dist::Checkpoint spoilt{.tag = "step-000060",
                          .step = from.step(),
                          .numerics = from.numerics(),
                          .engine = from.engine(),
                          .state = from.state()};
  for (const std::string& kind : from.kinds())
    for (const auto& [name, shape] : from.parameters(kind)) {
      const Tensor values = empty({numel(shape)});
      from.read(name, kind, 0, numel(shape), values);
      if (name == parameter && kind == "master")
        values.data<float>()[5] = value;
      spoilt.entries.push_back({name, kind, shape, 0, numel(shape), values, false});
    }
  dist::save_checkpoint(to, spoilt);
}

TEST_F(Trained, AParameterThatIsntFiniteIsNamedAndNothingIsWritten) {
  const std::string run = train("run", text()), spoilt = folder / "spoilt",
                    to = folder / "model.safetensors";
  const std::string parameter = dist::CheckpointReader(run).parameters().begin()->first;
  for (const float value : {std::nanf(""), INFINITY}) {
    save_spoilt(run, spoilt, parameter, value);
    const auto expect_named = [&](const std::function<void()>& command) {
      const std::string message = error_of(ErrorKind::numeric, command);
      for (const std::string& words :
           {parameter, std::string("element 5"), fmt::format("{}", value)})
        EXPECT_NE(message.find(words), std::string::npos) << message;
    };
    expect_named([&] { printed({.from = spoilt}); });
    expect_named([&] {
      dist::run_threads(
          1, [&](dist::Comm& comm) { evaluate(family, {.from = spoilt, .data = text()}, comm); });
    });
    expect_named([&] { export_model(family, {.from = spoilt, .to = to}); });
    EXPECT_FALSE(std::filesystem::exists(to));
    export_model(family, {.from = spoilt, .to = to, .allow_nonfinite = true});
    EXPECT_TRUE(std::filesystem::remove(to));
  }
}

}  // namespace
}  // namespace sg::models
