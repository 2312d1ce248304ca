// Every op of core/ops.h against wrong arguments, one table: undefined tensors, other devices,
// other dtypes, no elements, other strides. An op works, or it is refused by a typed error that
// names it; it never reads what isn't there.
#include "tests/core/op_table.h"

#include <gtest/gtest.h>

#include <fstream>

#include "tests/errors.h"

namespace sg {
namespace {

using test::all_rows;
using test::OpRow;
using test::Tensors;

// What comes of a call: "" where it works, else the message of its usage error.
std::string outcome(const OpRow& row, const Tensors& inputs) {
  try {
    for (const Tensor& x : row.call(inputs)) {
      if (x.device().type != DeviceType::meta)
        static_cast<void>(cast(x, DType::f64).to_vector<double>());
    }
    return {};
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::usage) << row.name << ": " << e.what();
    EXPECT_NE(std::string(e.what()).find(':'), std::string::npos)
        << row.name << " isn't named: " << e.what();
    return e.what();
  }
}

Tensor on(Device device, const Tensor& x) {
  Tensor out = empty(x.shape(), x.dtype(), device);
  if (device.type != DeviceType::meta)
    copy_(out, x);
  return out;
}

// The functions that core/ops.h declares, but for draws, which take no tensor.
std::set<std::string> declared() {
  std::ifstream in(std::string(SG_SOURCE_DIR) + "/core/ops.h");
  std::set<std::string> names;
  for (std::string line; std::getline(in, line);) {
    const size_t open = line.find('('), space = line.find(' ');
    const bool declares = !line.empty() && std::isalpha(static_cast<unsigned char>(line[0])) &&
                          open != line.npos && line.rfind("inline", 0) != 0 &&
                          line.rfind("double", 0) != 0 && space < open;
    if (declares)
      names.insert(line.substr(space + 1, open - space - 1));
  }
  for (const char* draw : {"random_uniform", "random_normal"})
    names.erase(draw);
  return names;
}

TEST(OpTable, HasEveryOpOfItsHeader) {
  std::set<std::string> names;
  for (const OpRow& row : all_rows())
    names.insert(row.name);
  ASSERT_GT(declared().size(), 25u);
  for (const std::string& name : declared())
    EXPECT_TRUE(names.contains(name)) << name << " has no row";
}

TEST(OpTable, WorksOnWhatItIsFor) {
  for (const OpRow& row : all_rows())
    EXPECT_EQ(outcome(row, row.inputs(5)), "") << row.name;
}

TEST(OpTable, UndefinedTensorsAreNamed) {
  for (const OpRow& row : all_rows()) {
    for (size_t i = 0; i < row.inputs(5).size(); ++i) {
      if (row.optional.contains(i))
        continue;
      Tensors inputs = row.inputs(5);
      inputs[i] = {};
      EXPECT_NE(outcome(row, inputs).find("undefined"), std::string::npos)
          << row.name << " input " << i;
    }
  }
}

TEST(OpTable, TensorsOfAnotherDeviceAreRefused) {
  for (const OpRow& row : all_rows()) {
    const size_t count = row.inputs(5).size();
    for (size_t i = 0; !row.any_device && count > 1 && i < count; ++i) {
      for (const Device device : {meta(), cpu(1), host}) {
        Tensors inputs = row.inputs(5);
        inputs[i] = on(device, inputs[i]);
        EXPECT_NE(outcome(row, inputs), "")
            << row.name << " input " << i << " on " << to_string(device);
      }
    }
  }
}

TEST(OpTable, OnMetaAlone) {
  for (const OpRow& row : all_rows()) {
    Tensors inputs = row.inputs(5);
    for (Tensor& x : inputs)
      x = on(meta(), x);
    const std::string message = outcome(row, inputs);
    EXPECT_TRUE(message.empty() || row.any_device) << row.name << ": " << message;
  }
}

TEST(OpTable, OtherTypesWorkOrAreRefusedAndOnMetaAlike) {
  for (const OpRow& row : all_rows()) {
    for (const DType dtype :
         {DType::i32, DType::i64, DType::u8, DType::boolean, DType::f64, DType::bf16}) {
      Tensors inputs = row.inputs(5);
      for (size_t i = 0; i < inputs.size(); ++i) {
        if (!row.integers.contains(i) && inputs[i].dtype() == DType::f32)
          inputs[i] = cast(inputs[i], dtype);
      }
      const std::string here = outcome(row, inputs);
      for (Tensor& x : inputs)
        x = on(meta(), x);
      if (!row.any_device) {
        EXPECT_EQ(outcome(row, inputs), here) << row.name << " of " << name_of(dtype);
      }
      for (size_t i = 0; i < inputs.size(); ++i) {  // one alone
        Tensors one = row.inputs(5);
        one[i] = cast(one[i], dtype);
        static_cast<void>(outcome(row, one));
      }
    }
  }
}

TEST(OpTable, IndicesMustBeIntegers) {
  for (const OpRow& row : all_rows()) {
    for (const size_t i : row.integers) {
      for (const DType dtype : {DType::f32, DType::boolean, DType::u8}) {
        Tensors inputs = row.inputs(5);
        inputs[i] = cast(inputs[i], dtype);
        EXPECT_NE(outcome(row, inputs).find("must be i32 or i64"), std::string::npos) << row.name;
      }
      Tensors inputs = row.inputs(5);
      inputs[i] = cast(inputs[i], DType::i32);
      EXPECT_EQ(outcome(row, inputs), "") << row.name << " of i32";
    }
  }
}

TEST(OpTable, EmptyTensorsWorkOrAreRefusedByName) {
  for (const OpRow& row : all_rows())
    EXPECT_EQ(outcome(row, row.inputs(0)), "") << row.name;
}

TEST(OpTable, StridesChangeNothing) {
  const auto strided =
      [](const Tensor& x) {  // the same values, every second element of a larger one
        Shape doubled = x.shape();
        doubled.push_back(2);
        return contiguous(x.unsqueeze(-1).expand(doubled)).select(-1, 0);
      };
  for (const OpRow& row : all_rows()) {
    const Tensors expected = row.call(row.inputs(5));
    for (size_t i = 0; i < row.inputs(5).size(); ++i) {
      Tensors inputs = row.inputs(5);
      inputs[i] = strided(inputs[i]);
      Tensors found;
      try {
        found = row.call(inputs);
      } catch (const Error&) {
        continue;
      }  // it may ask for dense ones
      for (size_t k = 0; k < found.size(); ++k) {
        EXPECT_EQ(cast(found[k], DType::f32).to_vector<float>(),
                  cast(expected[k], DType::f32).to_vector<float>())
            << row.name << " input " << i << " strided";
      }
    }
  }
}

}  // namespace
}  // namespace sg
