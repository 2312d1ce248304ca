// What every fuzz program shares: random numbers, the command line, and a failing case that can be
// run alone.
//
//   int main(int argc, char** argv) {
//     return sg::fuzz::run(argc, argv, {.count = 1000}, [](sg::fuzz::Random& random) {
//       const int64_t n = random.between(0, 9);
//       sg::fuzz::expect(f(n) == reference(n), "f({})", n);
//     });
//   }
//
// Case i draws from a generator of its own, made of the seed and i, so that `--first i --count 1`
// runs it alone.
#pragma once
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

namespace sg::fuzz {

// splitmix64 (Steele, Lea and Flood, 2014): the same numbers on every platform, which
// std::distributions aren't.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    uint64_t z = state_ += 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  // Both ends belong to it.
  int64_t between(int64_t low, int64_t high) {
    return low + static_cast<int64_t>(next() % static_cast<uint64_t>(high - low + 1));
  }
  bool chance(double probability) { return real() < probability; }
  double real() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // in [0, 1)
  double real(double low, double high) { return low + (high - low) * real(); }
  template <class T>
  T pick(std::initializer_list<T> values) {
    return values.begin()[between(0, static_cast<int64_t>(values.size()) - 1)];
  }
  template <class T>
  const T& pick(const std::vector<T>& values) {
    return values[static_cast<size_t>(between(0, static_cast<int64_t>(values.size()) - 1))];
  }

 private:
  uint64_t state_;
};

struct Failure : std::runtime_error {
  using std::runtime_error::runtime_error;
};
template <class... Args>
void expect(bool ok, fmt::format_string<Args...> format, Args&&... args) {
  if (!ok)
    throw Failure(fmt::format(format, std::forward<Args>(args)...));
}

struct Settings {
  uint64_t seed = 1;
  int64_t count = 1000;
  int64_t first = 0;
  int64_t long_factor = 50;  // SG_LONG=1 and --long: this many times the count
};

namespace detail {

// A line every ten seconds, so that a long run is seen to live.
class Progress {
 public:
  void at(int64_t done, int64_t count) {
    const auto now = std::chrono::steady_clock::now();
    if (now - last_ < std::chrono::seconds(10))
      return;
    last_ = now;
    fmt::print(stderr, "{} of {} cases\n", done, count);
  }

 private:
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

template <class Case>
bool passes(const std::string& program, const Settings& s, int64_t i, Case& one) {
  Random random(Random(s.seed + static_cast<uint64_t>(i) * 0xD1B54A32D192ED03ull).next());
  try {
    one(random);
    return true;
  } catch (const std::exception& e) {
    fmt::print(stderr,
               "case {}: {}\nrun it alone: {} --seed {} --first {} --count 1\n",
               i,
               e.what(),
               program,
               s.seed,
               i);
    return false;
  }
}

}  // namespace detail

// Runs the cases first … first + count − 1; ends with 1 at the first that throws, with 2 on a wrong
// command line.
template <class Case>
int run(int argc, char** argv, Settings s, Case one) {
  CLI::App app("Random cases against a plain reference");
  const char* const environment = std::getenv("SG_LONG");
  bool longer = environment && std::string(environment) == "1";
  app.add_option("--seed", s.seed, "of all random numbers")->capture_default_str();
  app.add_option("--count", s.count, "cases to run")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_option("--first", s.first, "number of the first case")
      ->capture_default_str()
      ->check(CLI::NonNegativeNumber);
  app.add_flag("--long",
               longer,
               fmt::format("{} times as many cases; SG_LONG=1 says the same", s.long_factor));
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    return app.exit(e) == 0 ? 0 : 2;
  }
  if (longer && s.count > 1)
    s.count *= s.long_factor;
  detail::Progress progress;
  for (int64_t i = 0; i < s.count; ++i) {
    if (!detail::passes(argv[0], s, s.first + i, one))
      return 1;
    progress.at(i + 1, s.count);
  }
  fmt::print("{} cases of seed {} passed\n", s.count, s.seed);
  return 0;
}

}  // namespace sg::fuzz
