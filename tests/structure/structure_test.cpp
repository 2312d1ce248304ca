// What must hold of the sources themselves: which folder includes which, how long files and
// functions may be, which headers and words stay out, and the formatting where clang-format 14 is
// there.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace {

namespace fs = std::filesystem;

const fs::path root = SG_SOURCE_DIR;

// Each folder and those that it may include: the layers, leftwards only. dist/ works on autograd's
// units, never on nn/.
const std::map<std::string, std::set<std::string>> may_include = {
    {"kernels", {"kernels"}},
    {"core", {"kernels", "core"}},
    {"autograd", {"kernels", "core", "autograd"}},
    {"nn", {"kernels", "core", "autograd", "nn"}},
    {"optim", {"kernels", "core", "autograd", "optim"}},
    {"dist", {"kernels", "core", "autograd", "optim", "dist"}},
    {"models", {"kernels", "core", "autograd", "nn", "optim", "dist", "models"}},
};

// The rooms of a layer, lowest first: a file includes only what stands in its own room or in one
// before it. A room is a folder, or single files that stand beside the folders.
const std::map<std::string, std::vector<std::vector<std::string>>> rooms = {
    {"dist",
     {{"dist/comm/"},
      {"dist/setting"},
      {"dist/options", "dist/engine", "dist/numerics_rules"},
      {"dist/engines/"},
      {"dist/checkpoint/", "dist/config/"},
      {"dist/initialize", "dist/launch", "dist/explain_ring", "dist/plan", "dist/choose_engine"}}},
    {"models",
     {{"models/data/", "models/weights/"},
      {"models/size_options", "models/language_model", "models/family"},
      {"models/gpt2/", "models/llama/"},
      {"models/shardgrad"},
      {"models/run/"},
      {"models/measure/"}}},
};

struct File {
  fs::path path;      // from the root
  std::string layer;  // its first part
  std::vector<std::string> lines;
  bool is_code() const {
    return std::set<std::string>{".h", ".cpp", ".cu", ".cuh"}.contains(path.extension());
  }
  std::string at(size_t line) const { return path.string() + ":" + std::to_string(line + 1); }
};

File read(const fs::path& path) {
  File file{path, path.begin()->string(), {}};
  std::ifstream in(root / path);
  for (std::string line; std::getline(in, line);)
    file.lines.push_back(line);
  return file;
}

// Every source of the project, by path: code, build files and scripts.
const std::vector<File>& sources() {
  static const std::vector<File> files = [] {
    std::vector<File> found;
    for (const char* folder :
         {"kernels", "core", "autograd", "nn", "optim", "dist", "models", "tests", "tools"}) {
      if (!fs::exists(root / folder))
        continue;
      for (const auto& entry : fs::recursive_directory_iterator(root / folder)) {
        const std::set<std::string> kinds = {
            ".h", ".cpp", ".cu", ".cuh", ".sh", ".py", ".cmake", ".in", ".txt"};
        if (entry.is_regular_file() && kinds.contains(entry.path().extension()))
          found.push_back(read(fs::relative(entry.path(), root)));
      }
    }
    std::sort(
        found.begin(), found.end(), [](const File& a, const File& b) { return a.path < b.path; });
    return found;
  }();
  return files;
}

// The header that a line includes, with its opening quote or bracket: `"core/tensor.h`, `<vector`;
// empty if none.
std::string included(const std::string& line) {
  if (line.rfind("#include ", 0) != 0)
    return {};
  const std::string header = line.substr(9);
  return header.substr(0, header.find_first_of("\">", 1));
}

bool starts(const std::string& line, const char* prefix) {
  return line.rfind(prefix, 0) == 0;
}

// What a command prints, and whether it succeeded.
std::pair<bool, std::string> run(const std::string& command) {
  std::string output;
  FILE* pipe = popen((command + " 2>&1").c_str(), "r");
  if (!pipe)
    return {false, output};
  for (char buffer[4096]; size_t n = fread(buffer, 1, sizeof buffer, pipe);)
    output.append(buffer, n);
  return {pclose(pipe) == 0, output};
}

TEST(Structure, IncludesRunLeftwards) {
  for (const File& file : sources()) {
    const auto allowed = may_include.find(file.layer);
    if (allowed == may_include.end() || !file.is_code())
      continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string header = included(file.lines[i]);
      if (header.empty() || header[0] == '<') {
        EXPECT_FALSE(starts(header, "<shardgrad/"))
            << file.at(i) << ": the umbrella header is for users";
        continue;
      }
      const std::string folder = header.substr(1, header.find('/') - 1);
      EXPECT_TRUE(allowed->second.contains(folder))
          << file.at(i) << ": " << file.layer << "/ must not include " << header.substr(1)
          << " (paths start at the root; kernels < core < autograd < nn, optim < dist < models; "
             "dist never nn)";
    }
  }
}

// The floor of a file's room in its layer, and the room's name; −1: in none.
std::pair<int, std::string> room_of(const std::string& path,
                                    const std::vector<std::vector<std::string>>& floors) {
  for (size_t floor = 0; floor < floors.size(); ++floor) {
    for (const std::string& room : floors[floor]) {
      const bool folder = room.back() == '/';
      if (starts(path, room.c_str()) && (folder || path[room.size()] == '.'))
        return {static_cast<int>(floor), room};
    }
  }
  return {-1, {}};
}

TEST(Structure, RoomsIncludeOnlyWhatStandsBelowThem) {
  for (const File& file : sources()) {
    const auto layer = rooms.find(file.layer);
    if (layer == rooms.end() || !file.is_code())
      continue;
    const auto [floor, room] = room_of(file.path.string(), layer->second);
    EXPECT_GE(floor, 0) << file.path << " stands in no room; tests/structure has the list";
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string header = included(file.lines[i]);
      if (header.empty() || !starts(header.substr(1), (file.layer + "/").c_str()))
        continue;
      const auto [below, other] = room_of(header.substr(1), layer->second);
      const bool files_of_a_floor = room.back() != '/' && other.back() != '/';
      EXPECT_TRUE(room == other || below < floor || (below == floor && files_of_a_floor))
          << file.at(i) << ": " << room << " must not include " << header.substr(1);
    }
  }
}

TEST(Structure, FilesHaveAtMost450Lines) {
  ASSERT_FALSE(sources().empty()) << "no sources below " << root;
  for (const File& file : sources())
    EXPECT_LE(file.lines.size(), 450u)
        << file.path << ": split it where a reader would look for the parts";
}

// A function is what ends with a lone `}` in column 0, or in column 2 inside a class; it begins at
// the last line that starts in the same column. clang-format makes that exact enough.
TEST(Structure, FunctionsHaveAtMost60Lines) {
  for (const File& file : sources()) {
    if (!file.is_code())
      continue;
    size_t outer = 0, inner = 0;
    bool in_class = false;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      const size_t column = line.find_first_not_of(' ');
      if (column == std::string::npos || line[column] == '#' || starts(line, "//"))
        continue;
      const bool closes = line[column] == '}',
                 names = isalpha(static_cast<unsigned char>(line[column])) || line[column] == '_';
      const auto check = [&](size_t begin) {
        EXPECT_LE(i - begin + 1, 60u)
            << file.at(begin) << ": a function of this length has parts to name";
      };
      if (line == "}")
        check(outer);
      if (line == "  }" && in_class)
        check(inner);
      if (column == 0 && closes)
        in_class = false;
      if (column == 0 && names && !line.ends_with(':'))
        outer = i, in_class = starts(line, "class") || starts(line, "struct");
      if (column == 2 && !closes)
        inner = i;
    }
  }
}

// Code has 100 columns; scripts and build files, whose commands are long words, 120.
TEST(Structure, LinesStayWithinTheirColumns) {
  const auto continues = [](char c) {  // a byte of UTF-8 that isn't its character's first
    return (static_cast<unsigned char>(c) & 0xC0) == 0x80;
  };
  for (const File& file : sources()) {
    const int64_t limit = file.is_code() ? 100 : 120;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      const int64_t more_bytes = std::count_if(line.begin(), line.end(), continues);
      EXPECT_LE(std::ssize(line) - more_bytes, limit) << file.at(i);
    }
  }
}

// A line without its comment: what a reader has to take apart.
std::string code_of(const std::string& line) {
  return line.substr(0, line.find("//"));
}

// Names, numbers, strings, operators and brackets of a line.
int64_t tokens_in(const std::string& code) {
  static const std::set<std::string> pairs = {
      "::", "->", "<<", ">>", "&&", "||", "<=", ">=", "==", "!=", "+=", "-=", "*=", "/="};
  const auto of_a_word = [](char c) { return isalnum(static_cast<unsigned char>(c)) || c == '_'; };
  int64_t tokens = 0;
  for (size_t i = 0; i < code.size(); ++tokens) {
    const char c = code[i];
    if (isspace(static_cast<unsigned char>(c))) {
      --tokens;
      ++i;
    } else if (of_a_word(c)) {
      while (i < code.size() && (of_a_word(code[i]) || (isdigit(c) && code[i] == '.')))
        ++i;
    } else if (c == '"' || c == '\'') {
      for (++i; i < code.size() && code[i] != c; ++i)
        i += code[i] == '\\' ? 1 : 0;
      ++i;
    } else {
      i += pairs.contains(code.substr(i, 2)) ? 2 : 1;
    }
  }
  return tokens;
}

// Limits on columns and lines alone would reward packing.
TEST(Structure, ALineHasNineTokensOnAverage) {
  int64_t lines = 0;
  int64_t tokens = 0;
  for (const File& file : sources()) {
    if (!file.is_code() || file.layer == "tests")
      continue;
    for (const std::string& line : file.lines) {
      const int64_t of_line = tokens_in(code_of(line));
      lines += of_line > 0 ? 1 : 0;
      tokens += of_line;
    }
  }
  ASSERT_GT(lines, 0);
  EXPECT_LE(static_cast<double>(tokens) / static_cast<double>(lines), 9.0)
      << "one statement a line, a name for a nested call's result";
}

int64_t tokens_of(const std::string& path) {
  int64_t tokens = 0;
  for (const std::string& line : read(path).lines)
    tokens += tokens_in(code_of(line));
  return tokens;
}

// An engine's file, its two parts, the flat space and the course that all engines share.
TEST(Structure, DdpIsUnderstoodFromFivePairsOfFiles) {
  int64_t tokens = tokens_of("dist/engines/ddp.cpp");
  for (const char* pair : {"parameters", "gradients", "flat_space", "bucket_engine"}) {
    for (const char* kind : {".h", ".cpp"}) {
      const std::string path = "dist/engines/" + std::string(pair) + kind;
      ASSERT_TRUE(fs::exists(root / path)) << path;
      tokens += tokens_of(path);
    }
  }
  EXPECT_LE(tokens, 6500) << "tokens to read before one understands DDP";
}

// What varies between engines is in their parts; a file says which, what crosses and what follows.
TEST(Structure, AnEngineIsItsRowOfTheTable) {
  const auto times = [](const File& file, const std::string& text) {
    return std::count_if(file.lines.begin(), file.lines.end(), [&](const std::string& line) {
      return code_of(line).find(text) != std::string::npos;
    });
  };
  for (const char* engine : {"ddp", "dp", "zero1", "zero2", "zero3"}) {
    const File file = read("dist/engines/" + std::string(engine) + ".cpp");
    EXPECT_EQ(times(file, "hold<"), 2) << file.path << ": parameters and gradients";
    EXPECT_EQ(times(file, "Work send("), 1) << file.path;
    EXPECT_LE(times(file, " override"), 5) << file.path;
    EXPECT_EQ(times(file, " final : public BucketEngine"), 1) << file.path;
  }
  const File base = read("dist/engines/bucket_engine.h");
  EXPECT_EQ(times(base, "class BucketEngine : public Engine,"), 1) << "the second of three levels";
  EXPECT_LE(times(base, "  virtual "), 5) << base.path << ": what an engine overrides";
}

// A header that is part of another, inside its namespace, says "Included by" in its first line.
TEST(Structure, HeadersAreIncludedOnce) {
  for (const File& file : sources()) {
    if (file.path.extension() != ".h" || file.lines.empty())
      continue;
    const bool part = file.lines[0].find("Included by") != std::string::npos;
    const bool once =
        std::find(file.lines.begin(), file.lines.end(), "#pragma once") != file.lines.end();
    EXPECT_TRUE(once || part) << file.path << ": no #pragma once";
  }
}

// Both g++ 12 and clang 16 must compile the code; input is checked with messages, never asserted
// away.
TEST(Structure, ForbiddenHeadersAndWordsStayOut) {
  const std::set<std::string> headers = {
      "<format", "<ranges", "<cassert", "<assert.h", "<regex", "<bits/stdc++.h"};
  const std::vector<std::string> words = {
      "TO"
      "DO",
      "FIX"
      "ME",
      "__"
      "bf16",
      "<<"
      "<"};
  for (const File& file : sources()) {
    if (!file.is_code())
      continue;
    for (size_t i = 0; i < file.lines.size(); ++i) {
      const std::string& line = file.lines[i];
      EXPECT_FALSE(headers.contains(included(line))) << file.at(i) << ": " << line;
      for (const std::string& word : words)
        EXPECT_EQ(line.find(word), std::string::npos) << file.at(i) << ": " << word;
    }
  }
}

TEST(Structure, TopLevelIsFixed) {
  const auto [is_repository, listing] =
      run("git -C '" + root.string() + "' ls-tree --name-only HEAD");
  if (!is_repository)
    GTEST_SKIP() << "not a git checkout: " << listing;
  const std::set<std::string> fixed = {"CMakeLists.txt",
                                       "core",
                                       "autograd",
                                       "nn",
                                       "optim",
                                       "dist",
                                       "kernels",
                                       "models",
                                       "tests",
                                       "tools",
                                       "README.md",
                                       "CMakePresets.json",
                                       "LICENSE"};
  std::istringstream names(listing);
  for (std::string name; std::getline(names, name);)
    EXPECT_TRUE(name[0] == '.' || fixed.contains(name))
        << name << ": the top level is the architecture; move it below";
}

// The patches of a folder of tests/, each of which applies to the sources as they are.
std::vector<fs::path> applying_patches(const std::string& folder) {
  std::vector<fs::path> patches;
  for (const auto& entry : fs::directory_iterator(root / "tests" / folder)) {
    const std::string file = entry.path().string();
    const auto [applies, report] =
        run("patch --dry-run -s -f -F0 -p1 -d '" + root.string() + "' < '" + file + "'");
    EXPECT_TRUE(applies) << file << ": " << report;
    patches.push_back(entry.path());
  }
  return patches;
}

// tools/planted.sh sees that they are caught; here only that the sources haven't moved away from
// under them.
TEST(Structure, PlantedFaultsStillApply) {
  if (!run("patch --version").first)
    GTEST_SKIP() << "no patch program";
  EXPECT_FALSE(applying_patches("planted").empty());
}

// tools/walkthroughs.sh sees that they work. How many files each may touch, tests apart, is the
// patch's own "Files: n".
TEST(Structure, TheReadmesWalkThroughsStillApplyAndTouchFewFiles) {
  if (!run("patch --version").first)
    GTEST_SKIP() << "no patch program";
  for (const fs::path& patch : applying_patches("walkthroughs")) {
    std::ifstream file(patch);
    int most = 0, touched = 0;
    for (std::string line; std::getline(file, line);) {
      if (line.starts_with("Files: "))
        most = std::stoi(line.substr(7));
      touched += line.starts_with("+++ b/") && !line.starts_with("+++ b/tests/");
    }
    EXPECT_GT(touched, 0) << patch;
    EXPECT_LE(touched, most) << patch;
  }
}

TEST(Structure, MutantsStillApply) {
  if (!run("bash --version").first)
    GTEST_SKIP() << "no bash";
  const auto [applies, report] = run("'" + (root / "tools/mutants.sh").string() + "' --check");
  EXPECT_TRUE(applies) << report;
}

TEST(Structure, ClangFormat14Agrees) {
  std::string program;
  for (const char* candidate : {"clang-format-14", "clang-format"})
    if (program.empty() &&
        run(std::string(candidate) + " --version").second.find("version 14.") != std::string::npos)
      program = candidate;
  if (program.empty())
    GTEST_SKIP() << "clang-format 14 isn't here";
  std::string command =
      "cd '" + root.string() + "' && " + program + " --dry-run -Werror --ferror-limit=1";
  for (const File& file : sources())
    if (file.is_code())
      command += " " + file.path.string();
  const auto [clean, report] = run(command);
  EXPECT_TRUE(clean) << report;
}

}  // namespace
