// Strided sums against a plain walk.
// Test: Fuzz.StridedOps --count 2000
#include "core/ops.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace sg;

void one_case(fuzz::Random& random) {
  const Shape shape = {random.between(0, 5), random.between(0, 5)};
  std::vector<double> values(static_cast<size_t>(numel(shape)));
  for (double& value : values) value = static_cast<double>(random.between(-9, 9));
  double expected = 0;
  for (double value : values) expected += value;
  const double found = sum(from_vector(values, shape).transposed()).item<double>();
  fuzz::expect(found == expected, "sum of a transposed {}: {}, not {}", shape, found, expected);
}

}  // namespace

int main(int argc, char** argv) { return sg::fuzz::run(argc, argv, {}, one_case); }
