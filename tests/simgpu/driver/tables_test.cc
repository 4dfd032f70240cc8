#include <cudaTypedefs.h>
#include <dlfcn.h>

#include <fstream>
#include <regex>
#include <set>

#include "tests/simgpu/driver/sim_program.h"

using namespace sim_test;

namespace {
void* open_driver() {
  void* driver = dlopen(LULL_SIM_CUDA, RTLD_NOW);
  REQUIRE(driver != nullptr);
  return driver;
}
}  // namespace

TEST_CASE("every export of the 13.0 driver is there") {
  void* driver = open_driver();
  std::ifstream list(LULL_DRIVER_EXPORTS);
  std::string name;
  int count = 0;
  while (list >> name) {
    INFO(name);
    CHECK(dlsym(driver, name.c_str()) != nullptr);
    ++count;
  }
  CHECK(count == 637);
}

TEST_CASE("cuGetProcAddress gives for each name and version the symbol that dlsym gives") {
  void* driver = open_driver();
  std::ifstream table(LULL_DRIVER_TABLES);
  const std::regex row(
      R"re(\{"(\w+)", (\d+), (true|false), reinterpret_cast<void\*>\(&::(\w+)\)\})re");
  std::string line;
  std::smatch m;
  int rows = 0;
  while (std::getline(table, line)) {
    if (!std::regex_search(line, m, row)) continue;
    ++rows;
    void* found = nullptr;
    CUdriverProcAddressQueryResult status;
    const cuuint64_t flags = m[3] == "true" ? CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM : 0;
    INFO(line);
    CHECK(cuGetProcAddress_v2(m[1].str().c_str(), &found, std::stoi(m[2]), flags, &status) ==
          CUDA_SUCCESS);
    CHECK(status == CU_GET_PROC_ADDRESS_SUCCESS);
    CHECK(found == dlsym(driver, m[4].str().c_str()));
  }
  CHECK(rows == 637);
}

TEST_CASE("cuGetProcAddress answers probes, missing names and old versions without a status too") {
  void* found = &found;
  CHECK(cuGetProcAddress_v2("", &found, 0, 0, nullptr) == CUDA_ERROR_NOT_FOUND);
  CHECK(found == nullptr);
  CHECK(cuGetProcAddress("cuNoSuchCall", &found, 13000, 0) == CUDA_ERROR_NOT_FOUND);
  CUdriverProcAddressQueryResult status;
  CHECK(cuGetProcAddress_v2("cuLaunchKernelEx", &found, 11000, 0, &status) == CUDA_ERROR_NOT_FOUND);
  CHECK(status == CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT);
  CHECK(cuGetProcAddress_v2(nullptr, &found, 13000, 0, nullptr) == CUDA_ERROR_INVALID_VALUE);
  CHECK(cuGetProcAddress_v2("cuInit", &found, 13000, 64, nullptr) == CUDA_ERROR_INVALID_VALUE);
  // A call without a per-thread form is the same under that flag.
  void* plain = nullptr;
  OK(cuGetProcAddress("cuInit", &plain, 13000, 0));
  OK(cuGetProcAddress("cuInit", &found, 13000, CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM));
  CHECK(found == plain);
  CHECK(plain == dlsym(open_driver(), "cuInit"));
}

TEST_CASE("each stream call has a per-thread twin of its own") {
  void* driver = open_driver();
  std::ifstream list(LULL_DRIVER_EXPORTS);
  std::set<void*> seen;
  std::string name;
  while (list >> name) {
    if (!name.ends_with("_ptsz") && !name.ends_with("_ptds")) continue;
    INFO(name);
    CHECK(dlsym(driver, name.c_str()) != dlsym(driver, name.substr(0, name.size() - 5).c_str()));
  }
}

TEST_CASE("errors have names and texts, and unknown ones are refused") {
  const char* text = nullptr;
  OK(cuGetErrorName(CUDA_ERROR_OUT_OF_MEMORY, &text));
  CHECK(std::string(text) == "CUDA_ERROR_OUT_OF_MEMORY");
  OK(cuGetErrorString(CUDA_ERROR_OUT_OF_MEMORY, &text));
  CHECK(std::string(text) == "out of memory");
  CHECK(cuGetErrorName(static_cast<CUresult>(12345), &text) == CUDA_ERROR_INVALID_VALUE);
  CHECK(text == nullptr);
}

TEST_CASE("private tables are not handed out") {
  const void* table = &table;
  CUuuid id = {};
  CHECK(cuGetExportTable(&table, &id) == CUDA_ERROR_NOT_FOUND);
  CHECK(table == nullptr);
}
