#include "tools/play/kernel_name.h"

#include <catch2/catch.hpp>

using namespace lull::play;

TEST_CASE("a kernel name that is an identifier stays as it is") {
  for (const std::string name : {"saxpy", "_Z5saxpyfPKfPf", "gemm_f16_64x64_tn", "_9"}) {
    CHECK(escape_kernel_name(name) == name);
    CHECK(unescape_kernel_name(name) == name);
  }
}

TEST_CASE("other characters and a leading digit are escaped") {
  CHECK(escape_kernel_name("a b") == "a$20b");
  CHECK(escape_kernel_name("3d") == "$33d");
  CHECK(escape_kernel_name("f<int>()") == "f$3cint$3e$28$29");
  CHECK(escape_kernel_name("$") == "$24");
  CHECK(escape_kernel_name("\xc3\xa4") == "$c3$a4");
}

TEST_CASE("escaping turns back to the same name") {
  for (const std::string name :
       {"void f<4, (anonymous namespace)::g(a&)::{lambda(float)#1}>(int, a<char*, 2ul>)", "7", "$$",
        "$2", "a$zz", "\x01\x7f\xff", " "}) {
    const std::string escaped = escape_kernel_name(name);
    CHECK(unescape_kernel_name(escaped) == name);
    for (const char c : escaped)
      CHECK((std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '$'));
    CHECK_FALSE(std::isdigit(static_cast<unsigned char>(escaped[0])));
  }
}

TEST_CASE("a name whose escape is longer than 900 characters is cut and told apart by its hash") {
  CHECK(escape_kernel_name(std::string(900, 'x')) == std::string(900, 'x'));
  const std::string one = escape_kernel_name(std::string(901, 'x'));
  const std::string other = escape_kernel_name(std::string(900, 'x') + "y");
  CHECK(one.size() == 880 + 2 + 16);
  CHECK(one.substr(0, 880) == std::string(880, 'x'));
  CHECK(one.substr(880, 2) == "$$");
  CHECK(one != other);
  CHECK(unescape_kernel_name(one) == std::string(880, 'x') + "...");
  // The cut goes through an escape.
  const std::string blanks = escape_kernel_name(std::string(400, ' '));
  CHECK(unescape_kernel_name(blanks) == std::string(293, ' ') + "...");
}

TEST_CASE("the hash is FNV-1a 64") {
  CHECK(fnv1a_64("") == 0xcbf29ce484222325ULL);
  CHECK(fnv1a_64("a") == 0xaf63dc4c8601ec8cULL);
  CHECK(fnv1a_64("foobar") == 0x85944171f73967e8ULL);
}
