// What liblull.so is as a file.
#include <catch2/catch.hpp>
#include <cstdio>
#include <fstream>
#include <regex>
#include <set>
#include <sstream>
#include <string>

namespace {

std::string output_of(const std::string& command) {
  std::string text;
  FILE* pipe = popen(command.c_str(), "r");
  char bytes[4096];
  while (size_t got = fread(bytes, 1, sizeof bytes, pipe)) text.append(bytes, got);
  pclose(pipe);
  return text;
}

std::string content_of(const std::string& path) {
  std::ifstream file(path);
  std::stringstream text;
  text << file.rdbuf();
  return text.str();
}

std::set<std::string> matches(const std::string& text, const std::string& pattern, int group = 1) {
  std::set<std::string> found;
  const std::regex expression(pattern);
  for (auto it = std::sregex_iterator(text.begin(), text.end(), expression);
       it != std::sregex_iterator(); ++it) {
    found.insert((*it)[static_cast<size_t>(group)]);
  }
  return found;
}

}  // namespace

TEST_CASE("liblull.so exports the rows of its list, dlsym and what NVTX calls, nothing else") {
  auto rows = matches(content_of(LULL_SHIM_SOURCE "/driver_api.def"), R"(\nLULL_HOOK\((\w+),)");
  REQUIRE(rows.size() > 200);
  rows.insert("dlsym");
  rows.insert("InitializeInjectionNvtx2");
  CHECK(matches(output_of("nm -D --defined-only " LULL_SHIM_PATH), R"( \w (\w+))") == rows);
}

TEST_CASE("liblull.so has nothing to construct") {
  const std::string dynamic = output_of("readelf -dW " LULL_SHIM_PATH);
  CHECK(dynamic.find("NEEDED") != std::string::npos);
  CHECK(dynamic.find("INIT") == std::string::npos);
  CHECK(dynamic.find("FINI") == std::string::npos);
}

TEST_CASE("every row of proc_versions.def is a typedef of cudaTypedefs.h, and every hook has one") {
  const std::string versions = content_of(LULL_SHIM_SOURCE "/proc_versions.def");
  const std::string typedefs = content_of(LULL_CUDA_TYPEDEFS);
  const auto known = matches(typedefs, R"(\(CUDAAPI \*(PFN_cu\w+)\))");
  const std::regex row(R"(\nLULL_VERSION\((\w+), (\d+), (\w+), (\w+)\))");
  std::set<std::string> named;
  for (auto it = std::sregex_iterator(versions.begin(), versions.end(), row);
       it != std::sregex_iterator(); ++it) {
    const std::string name = (*it)[4];
    const size_t cut = name.size() < 5 ? 0 : name.size() - 5;
    const std::string tail = name.substr(cut);
    const bool per_thread = tail == "_ptsz" || tail == "_ptds";
    CHECK(((*it)[3] == "true") == per_thread);
    const std::string type =
        "PFN_" + std::string((*it)[1]) + "_v" + std::string((*it)[2]) + (per_thread ? tail : "");
    INFO(type);
    CHECK(known.count(type) == 1);
    named.insert(name);
  }
  CHECK(named == matches(content_of(LULL_SHIM_SOURCE "/driver_api.def"), R"(\nLULL_HOOK\((\w+),)"));
}

TEST_CASE("programs without CUDA are left alone by the shim") {
  CHECK(output_of("LD_PRELOAD=" LULL_SHIM_PATH " LULL_SOCKET=/nonexistent /bin/true 2>&1").empty());
  CHECK(output_of("LD_PRELOAD=" LULL_SHIM_PATH " /bin/echo hello 2>&1") == "hello\n");
}
