#include "models/data/tokenizer.h"

#include <gtest/gtest.h>

#include "core/error.h"
#include "tests/errors.h"

namespace sg::models {
namespace {

using test::error_of;
using Ids = std::vector<int32_t>;

std::string decoded(const Tokenizer& tokenizer, const Ids& ids) {
  return tokenizer.decode(std::vector<int32_t>(ids.begin(), ids.end()));
}

TEST(Tokenizer, BytesTakeAnything) {
  const ByteTokenizer bytes;
  const std::string text("a\0\xff\xc3", 4);
  EXPECT_EQ(bytes.size(), 256);
  EXPECT_EQ(bytes.encode(text, "text"), (Ids{'a', 0, 255, 0xC3}));
  EXPECT_EQ(decoded(bytes, bytes.encode(text, "text")), text);
}

TEST(Tokenizer, CharsAreTheSortedCodePointsOfTheText) {
  const std::string text = "héllo €🙂\n";
  const CharTokenizer chars(text, "text");
  EXPECT_EQ(chars.size(), 8);  // \n, space, h, l, o, é, €, 🙂
  EXPECT_EQ(chars.encode("\n ho", "prompt"), (Ids{0, 1, 2, 4}));
  EXPECT_EQ(chars.encode("🙂", "prompt"), (Ids{7}));
  EXPECT_EQ(decoded(chars, chars.encode(text, "text")), text);
}

TEST(Tokenizer, ACharacterOutsideTheVocabularyIsNamed) {
  const CharTokenizer chars("abc", "text");
  const std::string error =
      error_of(ErrorKind::bad_input, [&] { (void)chars.encode("abé", "prompt"); });
  EXPECT_EQ(error, "prompt: character U+00E9 at byte 2 is none of the vocabulary's 3");
}

TEST(Tokenizer, TextThatIsNotUtf8IsRefusedWithItsOffset) {
  const std::vector<std::string> bad = {"\x80",
                                        "\xc3",
                                        "\xc3(",
                                        "\xc0\x80",
                                        "\xc1\xbf",
                                        "\xe0\x80\x80",
                                        "\xe2\x82",
                                        "\xed\xa0\x80",
                                        "\xf0\x80\x80\x80",
                                        "\xf4\x90\x80\x80",
                                        "\xf8\x88\x80\x80\x80",
                                        "\xff"};
  for (const std::string& sequence : bad) {
    const std::string error =
        error_of(ErrorKind::bad_input, [&] { CharTokenizer("ab" + sequence, "text"); });
    EXPECT_EQ(error.find("text: not UTF-8 at byte 2"), 0u) << error;
  }
  for (const std::string good : {"\x7f",
                                 "\xc2\x80",
                                 "\xe0\xa0\x80",
                                 "\xed\x9f\xbf",
                                 "\xee\x80\x80",
                                 "\xf0\x90\x80\x80",
                                 "\xf4\x8f\xbf\xbf"}) {
    const CharTokenizer chars(good, "text");
    EXPECT_EQ(chars.size(), 1);
    EXPECT_EQ(decoded(chars, {0}), good);
  }
}

TEST(Tokenizer, IdsBeyond16BitsStayWhatTheyAre) {
  std::string text;
  for (int c = 0x10000; c <= 0x20000; ++c)  // 65,537 characters of four bytes
    for (const int byte :
         {0xF0 | c >> 18, 0x80 | (c >> 12 & 63), 0x80 | (c >> 6 & 63), 0x80 | (c & 63)})
      text += static_cast<char>(byte);
  const CharTokenizer chars(text, "text");
  EXPECT_EQ(chars.size(), 65'537);
  const std::string last = text.substr(text.size() - 4);
  EXPECT_EQ(chars.encode(last, "prompt"), (Ids{65'536}));
  EXPECT_EQ(decoded(chars, {65'536}), last);
  EXPECT_EQ(Tokenizer::from_json(chars.to_json(), "json").size(), 65'537);
}

TEST(Tokenizer, IdsDecodeToTheirNumbers) {
  const IdTokenizer ids(50257);
  EXPECT_EQ(ids.size(), 50257);
  EXPECT_EQ(decoded(ids, {5, 50256}), "5 50256 ");
  EXPECT_EQ(ids.encode(" 5 50256", "prompt"), (Ids{5, 50256}));
  for (const char* prompt : {"text", "50257", "-1", "5x", "5.0", "1e3", "99999999999999999999"})
    EXPECT_NE(
        error_of(ErrorKind::bad_input, [&] { (void)ids.encode(prompt, "--prompt"); }).find(prompt),
        std::string::npos);
}

TEST(Tokenizer, AnIdOutsideTheVocabularyDoesNotDecode) {
  for (const int32_t id : {-1, 256})
    EXPECT_THROW((void)ByteTokenizer().decode(std::vector<int32_t>{id}), Error);
}

TEST(Tokenizer, JsonBringsEveryKindBack) {
  const CharTokenizer chars("b\n\"a€🙂", "text");
  for (const Tokenizer& tokenizer :
       {Tokenizer(ByteTokenizer()), Tokenizer(chars), Tokenizer(IdTokenizer(300))}) {
    const Tokenizer back = Tokenizer::from_json(tokenizer.to_json(), "manifest");
    EXPECT_EQ(back.kind(), tokenizer.kind());
    EXPECT_EQ(back.size(), tokenizer.size());
    EXPECT_EQ(back.to_json(), tokenizer.to_json());
  }
  EXPECT_EQ(Tokenizer::from_json(chars.to_json(), "manifest").encode("€", "prompt"),
            chars.encode("€", "prompt"));
}

TEST(Tokenizer, BadJsonIsRefused) {
  for (const char* json : {"",
                           "[]",
                           "{}",
                           R"({"kind":"words"})",
                           R"({"kind":"chars"})",
                           R"({"kind":"chars","vocabulary":[]})",
                           R"({"kind":"chars","vocabulary":[2,1]})",
                           R"({"kind":"chars","vocabulary":[1,1]})",
                           R"({"kind":"chars","vocabulary":[-1]})",
                           R"({"kind":"chars","vocabulary":[1114112]})",
                           R"({"kind":"chars","vocabulary":["a"]})",
                           R"({"kind":"ids"})",
                           R"({"kind":"ids","size":-1})"})
    EXPECT_EQ(error_of(ErrorKind::bad_input, [&] { Tokenizer::from_json(json, "manifest"); })
                  .find("manifest: "),
              0u)
        << json;
}

}  // namespace
}  // namespace sg::models
