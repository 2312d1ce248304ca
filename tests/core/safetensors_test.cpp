#include "core/io/safetensors.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "core/error.h"
#include "core/ops.h"
#include "tests/core/temporary_folder.h"

namespace sg {
namespace {

using test::put;
using test::TemporaryFolder;

std::string with_length(uint64_t length, const std::string& rest) {
  std::string text(8, '\0');
  std::memcpy(text.data(), &length, 8);
  return text + rest;
}
// A file of this header and so many bytes of data.
std::string file_of(const std::string& header, size_t data = 0) {
  return with_length(header.size(), header + std::string(data, '\0'));
}
// A tensor's entry with all fields given as JSON.
std::string entry(const std::string& shape,
                  const std::string& offsets,
                  const std::string& dtype = "\"F32\"") {
  return "{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
}
std::string one(const std::string& shape,
                const std::string& offsets,
                const std::string& dtype = "\"F32\"") {
  return "{\"a\":" + entry(shape, offsets, dtype) + "}";
}
std::string two(const std::string& a_offsets, const std::string& b_offsets) {
  return "{\"a\":" + entry("[1]", a_offsets) + ",\"b\":" + entry("[1]", b_offsets) + "}";
}
std::string repeated(const std::string& text, int n) {
  std::string all;
  for (int i = 0; i < n; ++i)
    all += text;
  return all;
}

struct Bad {
  const char* name;
  std::string file;
  const char* message;
};
void PrintTo(const Bad& bad, std::ostream* out) {
  *out << bad.name;
}

const std::vector<Bad>& bad_headers() {
  static const std::vector<Bad> table = {
      {"Empty", "", "0 bytes"},
      {"ShorterThanTheLength", std::string(7, '\0'), "7 bytes"},
      {"HeaderLengthZero", with_length(0, "{}"), "header of 0 bytes"},
      {"HeaderAboveTheLimit", with_length(100'000'001, "{}"), "header of 100000001 bytes"},
      {"HeaderLengthAllOnes", with_length(~uint64_t{0}, "{}"), "header of 18446744073709551615"},
      {"HeaderPastTheEnd", with_length(3, "{}"), "header of 3 bytes in a file of 10"},
      {"NotUtf8", file_of("{\"\xff\":1}"), "not JSON"},
      {"OverlongUtf8", file_of("{\"\xc0\x80\":1}"), "not JSON"},
      {"CutJson", file_of("{\"a\":{\"dtype\":"), "not JSON"},
      {"TextAfterTheBrace", file_of("{}x"), "not JSON"},
      {"SecondObject", file_of("{}{}"), "not JSON"},
      {"NulAfterTheBrace", file_of(std::string("{}\0", 3)), "NUL byte at byte 2"},
      {"ByteOrderMark", file_of("\xef\xbb\xbf{}"), "must begin with {"},
      {"SpaceBeforeTheBrace", file_of(" {}"), "must begin with {"},
      {"TopLevelArray", file_of("[]"), "must begin with {"},
      {"TensorTwice",
       file_of("{\"a\":" + entry("[1]", "[0,4]") + ",\"a\":" + entry("[1]", "[0,4]") + "}", 4),
       "a is there twice"},
      {"FieldTwice",
       file_of("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
               4),
       "a.dtype is there twice"},
      {"MetadataKeyTwice",
       file_of(R"({"__metadata__":{"k":"1","k":"2"}})"),
       "__metadata__.k is there twice"},
      {"MetadataTwice",
       file_of(R"({"__metadata__":{},"__metadata__":{}})"),
       "__metadata__ is there twice"},
      {"MetadataNotText", file_of(R"({"__metadata__":{"k":1}})"), "__metadata__.k must be text"},
      {"MetadataNotAnObject", file_of(R"({"__metadata__":"k"})"), "__metadata__ must be an object"},
      {"TensorNotAnObject", file_of("{\"a\":[]}"), "must be an object"},
  };
  return table;
}

const std::vector<Bad>& bad_tensors() {
  static const std::vector<Bad> table = {
      {"UnknownDtype", file_of(one("[1]", "[0,4]", "\"F31\""), 4), "dtype \"F31\" is none of"},
      {"DtypeNotText", file_of(one("[1]", "[0,4]", "32"), 4), "dtype must be text"},
      {"NoDtype", file_of(R"({"a":{"shape":[1],"data_offsets":[0,4]}})", 4), "dtype is missing"},
      {"NoShape", file_of(R"({"a":{"dtype":"F32","data_offsets":[0,4]}})", 4), "shape is missing"},
      {"NoOffsets", file_of(R"({"a":{"dtype":"F32","shape":[1]}})", 4), "data_offsets is missing"},
      {"AnotherField",
       file_of(R"({"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"x":1}})", 4),
       "4 fields"},
      {"ShapeNotAnArray", file_of(one("1", "[0,4]"), 4), "shape must be an array"},
      {"ShapeOfText", file_of(one("[\"1\"]", "[0,4]"), 4), "sizes must be integers"},
      {"OneOffset", file_of(one("[1]", "[4]"), 4), "data_offsets must be two"},
      {"ThreeOffsets", file_of(one("[1]", "[0,4,8]"), 4), "data_offsets must be two"},
      {"NegativeSize", file_of(one("[-1]", "[0,4]"), 4), "not -1"},
      {"NegativeOffset", file_of(one("[1]", "[-4,0]"), 4), "not -4"},
      {"FractionalSize", file_of(one("[1.0]", "[0,4]"), 4), "not 1.0"},
      {"SizeWithExponent", file_of(one("[1e0]", "[0,4]"), 4), "sizes must be integers"},
      {"SizeOver63Bits",
       file_of(one("[9223372036854775808]", "[0,4]"), 4),
       "not 9223372036854775808"},
      {"SizeOver64Bits",
       file_of(one("[18446744073709551616]", "[0,4]"), 4),
       "sizes must be integers"},
      {"OffsetOver64Bits",
       file_of(one("[1]", "[0,18446744073709551620]"), 4),
       "data_offsets must be integers"},
      {"ProductOverflows",
       file_of(one("[4294967296,4294967296]", "[0,0]")),
       "more than 2^63 bytes"},
      {"ProductTimesSizeOverflows",
       file_of(one("[2305843009213693952]", "[0,0]")),
       "more than 2^63 bytes"},
      {"OverflowHiddenByZero",
       file_of(one("[4294967296,4294967296,0]", "[0,0]")),
       "more than 2^63 bytes"},
      {"EndBeforeBegin", file_of(one("[1]", "[4,0]"), 4), "before its begin"},
      {"SpanTooLong", file_of(one("[1]", "[0,8]"), 8), "span 8 bytes"},
      {"SpanTooShort", file_of(one("[2]", "[0,4]"), 4), "span 4 bytes"},
      {"FirstBeginNotZero", file_of(one("[1]", "[4,8]"), 8), "begins at 4, after a hole from 0"},
      {"Overlap", file_of(two("[0,4]", "[2,6]"), 6), "inside the one before, which ends at 4"},
      {"SameRange", file_of(two("[0,4]", "[0,4]"), 4), "inside the one before"},
      {"Hole", file_of(two("[0,4]", "[8,12]"), 12), "after a hole from 4"},
      {"TrailingData", file_of(one("[1]", "[0,4]"), 5), "5 bytes of data, the header describes 4"},
      {"MissingData", file_of(one("[1]", "[0,4]"), 3), "3 bytes of data, the header describes 4"},
      {"DataWithoutTensors", file_of("{}", 1), "1 bytes of data, the header describes 0"},
      {"PetabytesInASmallFile",
       file_of(one("[281474976710656]", "[0,1125899906842624]")),
       "0 bytes of data"},
      {"AbsurdDepth",
       file_of("{\"a\":" + std::string(100'000, '[') + std::string(100'000, ']') + "}"),
       "nested deeper"},
      {"AbsurdRank", file_of(one("[" + repeated("1,", 12) + "1]", "[0,4]"), 4), "13 dimensions"},
      {"AbsurdCount",
       file_of("{\"a\":[" + repeated("0,", 100'000) + "0]}"),
       "more than 50066 values"},
  };
  return table;
}

class BadSafetensors : public testing::TestWithParam<Bad> {};

TEST_P(BadSafetensors, IsRefusedAndNamed) {
  const TemporaryFolder folder;
  put(folder / "file", GetParam().file);
  try {
    SafetensorsReader reader(folder / "file");
    FAIL() << "it was accepted";
  } catch (const Error& e) {
    const std::string message = e.what();
    EXPECT_EQ(e.kind(), ErrorKind::bad_input);
    EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
    EXPECT_EQ(message.find(folder / "file"), 0u) << message;
  }
}
const auto name_of_row = [](const auto& info) { return info.param.name; };
INSTANTIATE_TEST_SUITE_P(Header, BadSafetensors, testing::ValuesIn(bad_headers()), name_of_row);
INSTANTIATE_TEST_SUITE_P(Tensor, BadSafetensors, testing::ValuesIn(bad_tensors()), name_of_row);

TEST(Safetensors, FoldersAndFifosAreRefused) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "fifo").c_str(), 0600), 0);
  EXPECT_THROW(SafetensorsReader{folder / "fifo"}, Error);
  EXPECT_THROW(SafetensorsReader{folder.path()}, Error);
  EXPECT_THROW(SafetensorsReader{folder / "missing"}, Error);
}

TEST(Safetensors, AFileThatShrinksAfterOpeningIsAnError) {
  const TemporaryFolder folder;
  put(folder / "file", file_of(one("[4]", "[0,16]"), 16));
  const SafetensorsReader reader(folder / "file");
  ASSERT_EQ(truncate((folder / "file").c_str(), 60), 0);
  EXPECT_THROW(reader.read(reader.entries()[0]), Error);
}

TEST(Safetensors, AMappedFileThatShrinksIsAnErrorAndNoSignal) {
  constexpr int64_t elements = 40'000;  // many pages
  const TemporaryFolder folder;
  const Tensor x = full({elements}, 3);
  for (const char* name : {"one", "two"}) {
    AtomicFileWriter file(folder / name);
    SafetensorsWriter writer(file, {{"x", DType::f32, {elements}}});
    writer.write(x);
    file.commit();
  }
  const SafetensorsReader one(folder / "one"), two(folder / "two");
  const auto& entry = one.entries()[0];
  EXPECT_EQ(one.map(entry).to_vector<float>(), x.to_vector<float>());
  one.check_whole();
  one.forget(entry);
  ASSERT_EQ(truncate((folder / "one").c_str(), 10'000), 0);
  EXPECT_EQ(one.map(entry).slice(0, elements - 1, elements).item<float>(), 0);
  EXPECT_THROW(one.check_whole(), Error);
  EXPECT_EQ(two.map(two.entries()[0]).to_vector<float>(), x.to_vector<float>());
  two.check_whole();
}

TEST(Safetensors, WhatTheFormatAllowsIsAccepted) {
  const TemporaryFolder folder;
  const std::string scalar =
      "{\"data_offsets\":[0,4],\"shape\":[],\"dtype\":\"F32\"}";  // keys in another order
  const std::vector<std::pair<std::string, size_t>> files = {
      {file_of("{}"), 0},
      {file_of("{}     "), 0},
      {file_of("{ \"__metadata__\" : {} }"), 0},
      {file_of("{\"a\":" + scalar + "}", 4), 1},
      {file_of(one("[2,0]", "[0,0]")), 1},
      {file_of("{\"z\":" + entry("[0]", "[4,4]") + ",\"b\":" + entry("[1]", "[0,4]") +
                   ",\"a\":" + entry("[0]", "[0,0]") + "}",
               4),
       3},
      {file_of(one("[1,1,1,1,1,1]", "[0,4]"), 4), 1},
      {file_of("{\"\xc3\xa9\":" + entry("[1]", "[0,4]") + "}", 4), 1},
      {file_of("{\"__metadata__\":{\"format\":\"pt\"},\"b\":" + entry("[1]", "[4,8]") +
                   ",\"a\":" + entry("[1]", "[0,4]") + "}",
               8),
       2},
  };
  for (const auto& [file, count] : files) {
    put(folder / "file", file);
    const SafetensorsReader reader(folder / "file");
    EXPECT_EQ(reader.entries().size(), count);
    for (const auto& e : reader.entries())
      EXPECT_EQ(reader.read(e).shape(), e.shape);
  }
}

std::string bytes_of(const Tensor& x) {
  return {static_cast<const char*>(x.view().data), x.bytes()};
}

TEST(Safetensors, EveryDtypeComesBackBitForBit) {
  const TemporaryFolder folder;
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<Tensor> tensors = {
      from_vector<float>({1.5f, nan, -0.0f, INFINITY, 1e-42f, 3}, {2, 3}),
      from_vector<double>({1e300, -2}, {2}),
      cast(from_vector<float>({1, 2, 3}), DType::f16),
      cast(from_vector<float>({1, 2, 3}), DType::bf16),
      from_vector<int32_t>({-1, 7}, {1, 2}),
      from_vector<int64_t>({INT64_MIN}, {1}),
      from_vector<uint8_t>({0, 255}, {2}),
      cast(from_vector<float>({0, 1}), DType::boolean),
      from_vector<float>({4}, {}),
      empty({0, 5})};
  std::vector<TensorInfo> infos;
  for (size_t i = 0; i < tensors.size(); ++i)
    infos.push_back({"tensor." + std::to_string(i), tensors[i].dtype(), tensors[i].shape()});
  AtomicFileWriter file(folder / "file");
  SafetensorsWriter writer(file, infos, {{"quoted \"key\"", "line\n"}});
  for (const Tensor& t : tensors)
    writer.write(t);
  writer.check_complete();
  file.commit();

  const SafetensorsReader reader(folder / "file");
  EXPECT_EQ(reader.metadata(), (Metadata{{"quoted \"key\"", "line\n"}}));
  ASSERT_EQ(reader.entries().size(), tensors.size());
  for (size_t i = 0; i < tensors.size(); ++i) {
    const auto* found = reader.find(infos[i].name);
    ASSERT_NE(found, nullptr);
    const Tensor back = reader.read(*found);
    EXPECT_EQ(back.dtype(), tensors[i].dtype());
    EXPECT_EQ(back.shape(), tensors[i].shape());
    EXPECT_EQ(bytes_of(back), bytes_of(tensors[i])) << infos[i].name;
    EXPECT_EQ(bytes_of(reader.map(*found)), bytes_of(tensors[i])) << infos[i].name;
  }
  EXPECT_EQ(reader.find("none"), nullptr);
}

TEST(Safetensors, RangesAndStridedTensors) {
  const TemporaryFolder folder;
  const Tensor x = from_vector<float>({1, 2, 3, 4, 5, 6}, {2, 3});
  FileWriter file(folder / "file");
  SafetensorsWriter writer(file, {{"x", DType::f32, {3, 2}}});
  writer.write(x.transposed());
  file.finish();

  const SafetensorsReader reader(folder / "file");
  const auto& entry = reader.entries()[0];
  EXPECT_EQ(reader.read(entry).to_vector<float>(), (std::vector<float>{1, 4, 2, 5, 3, 6}));
  const Tensor part = zeros({3});
  const uint64_t version = part.version();
  reader.read_range(entry, 2, 5, part);
  EXPECT_EQ(part.to_vector<float>(), (std::vector<float>{2, 5, 3}));
  EXPECT_GT(part.version(), version);
  reader.read_range(entry, 6, 6, zeros({0}));
  EXPECT_THROW(reader.read_range(entry, 4, 7, part), Error);
  EXPECT_THROW(reader.read_range(entry, 0, 2, part), Error);
  EXPECT_THROW(reader.read_into(entry, part), Error);
  EXPECT_THROW(reader.read_into(entry, zeros({3, 2}, DType::i32)), Error);
  EXPECT_THROW(reader.read_into(entry, zeros({2, 3}).transposed()), Error);
}

TEST(Safetensors, WhatIsStridedOrOfAnotherTypeIsWrittenThroughAFewRows) {
  const TemporaryFolder folder;
  std::vector<float> values(1030 * 300);
  for (size_t i = 0; i < values.size(); ++i)
    values[i] = static_cast<float>(i) * 0.37f;
  const Tensor x = from_vector<float>(values, {300, 1030}), transposed = x.transposed();
  FileWriter file(folder / "file");
  SafetensorsWriter writer(
      file,
      {{"a", DType::bf16, {1030, 300}}, {"b", DType::f32, {1030, 300}}, {"c", DType::f16, {}}});
  writer.write_cast(transposed);
  writer.write(transposed);
  writer.write_cast(from_vector<float>({0.1f}, {}));
  file.finish();
  const SafetensorsReader reader(folder / "file");
  const Tensor a = contiguous(cast(transposed, DType::bf16));
  EXPECT_EQ(bytes_of(reader.read(*reader.find("a"))), bytes_of(a));
  EXPECT_EQ(bytes_of(reader.read(*reader.find("b"))), bytes_of(contiguous(transposed)));
  EXPECT_EQ(bytes_of(reader.read(*reader.find("c"))),
            bytes_of(cast(from_vector<float>({0.1f}, {}), DType::f16)));
}

TEST(Safetensors, TheWriterHoldsTheCallerToWhatWasAnnounced) {
  const TemporaryFolder folder;
  FileWriter file(folder / "file");
  EXPECT_THROW(SafetensorsWriter(file, {{"a", DType::f32, {1}}, {"a", DType::f32, {1}}}), Error);
  SafetensorsWriter writer(file, {{"a", DType::f32, {2}}});
  EXPECT_THROW(writer.check_complete(), Bug);
  EXPECT_THROW(SafetensorsWriter(file, {{"a", DType::f32, {2}}}).write(zeros({3})), Error);
  writer.write(zeros({2}));
  EXPECT_THROW(writer.write(zeros({2})), Bug);
}

// Written by PyTorch's safetensors library.
TEST(Safetensors, FilesOfTheReferenceLibraryAreRead) {
  for (const char* name : {"gpt2_golden", "gpt2_weights", "ops_golden"}) {
    const SafetensorsReader reader(std::string(SG_SOURCE_DIR "/tests/golden/") + name +
                                   ".safetensors");
    EXPECT_GT(reader.entries().size(), 0u);
  }
}

}  // namespace
}  // namespace sg
