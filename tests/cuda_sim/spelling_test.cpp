// Kernels keep to the spellings that plain C++ understands; launch.h alone knows CUDA's own.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <string>

TEST(CudaSources, LaunchAndShareMemoryByLaunchHeaderOnly) {
  const std::string chevrons = std::string(2, '<') + "<", shared = "__shared__";
  int files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(SG_SOURCE_DIR "/kernels/cuda")) {
    const std::string name = entry.path().filename().string();
    std::ifstream in(entry.path());
    int number = 0;
    for (std::string line; std::getline(in, line);) {
      ++number;
      EXPECT_EQ(line.find(chevrons), std::string::npos)
          << name << ":" << number << ": call launch()";
      EXPECT_TRUE(name == "launch.h" || line.find(shared) == std::string::npos)
          << name << ":" << number << ": use SG_SHARED or SG_DYN_SHARED";
    }
    ++files;
  }
  EXPECT_GT(files, 0);
}
