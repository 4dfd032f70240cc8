#include "tools/play/kineto.h"

#include <unistd.h>
#include <zlib.h>

#include <catch2/catch.hpp>
#include <cstdlib>
#include <filesystem>
#include <fstream>

using namespace lull::play;

namespace {

// A file of its own in a folder that goes away with it.
class ScratchFile {
 public:
  explicit ScratchFile(const std::string& text, const std::string& name = "t.json") {
    char folder[] = "/tmp/lull-kineto-XXXXXX";
    REQUIRE(mkdtemp(folder) != nullptr);
    folder_ = folder;
    path = folder_ + "/" + name;
    std::ofstream(path, std::ios::binary) << text;
  }
  ~ScratchFile() { std::filesystem::remove_all(folder_); }
  ScratchFile(const ScratchFile&) = delete;
  ScratchFile& operator=(const ScratchFile&) = delete;
  std::string path;

 private:
  std::string folder_;
};

std::string call(const std::string& name, double ts, double dur, int correlation, int thread = 1,
                 const std::string& category = "cuda_runtime") {
  return "{\"ph\": \"X\", \"cat\": \"" + category + "\", \"name\": \"" + name +
         "\", \"pid\": 9, \"tid\": " + std::to_string(thread) + ", \"ts\": " + std::to_string(ts) +
         ", \"dur\": " + std::to_string(dur) +
         ", \"args\": {\"External id\": 5, \"correlation\": " + std::to_string(correlation) + "}}";
}
std::string kernel(const std::string& name, double ts, double dur, int correlation,
                   int stream = 7) {
  return "{\"ph\": \"X\", \"cat\": \"kernel\", \"name\": \"" + name +
         "\", \"pid\": 0, \"tid\": 7, \"ts\": " + std::to_string(ts) +
         ", \"dur\": " + std::to_string(dur) +
         ", \"args\": {\"stream\": " + std::to_string(stream) +
         ", \"correlation\": " + std::to_string(correlation) +
         ", \"shared memory\": 2112, \"grid\": [16, 2, 1], \"block\": [128, 1, 1], \"occupancy\": "
         "0.5}}";
}
std::string copy(const std::string& name, double ts, double dur, int correlation, int stream = 7) {
  return "{\"ph\": \"X\", \"cat\": \"gpu_memcpy\", \"name\": \"" + name +
         "\", \"pid\": 0, \"tid\": 7, \"ts\": " + std::to_string(ts) +
         ", \"dur\": " + std::to_string(dur) +
         ", \"args\": {\"bytes\": 4096, \"stream\": " + std::to_string(stream) +
         ", \"correlation\": " + std::to_string(correlation) + "}}";
}
std::string trace_of(const std::vector<std::string>& events) {
  std::string text =
      "{\"schemaVersion\": 1, \"deviceProperties\": [{\"id\": 0, \"args\": {\"grid\": [1]}}],\n"
      "\"traceEvents\": [{\"ph\": \"M\", \"name\": \"process_name\", \"args\": {\"name\": "
      "\"python\"}}";
  for (const auto& event : events) text += ",\n" + event;
  return text + "], \"traceName\": \"x\", \"ints\": [1, 2]}";
}
Import import_text(const std::string& text, Unmatched unmatched = Unmatched::Crop) {
  const ScratchFile file(text);
  const auto trace = read_kineto_file(file.path);
  if (!trace) FAIL(trace.error());
  auto import = import_kineto(*trace, "t", unmatched);
  if (!import) FAIL(import.error());
  return *import;
}

}  // namespace

TEST_CASE("launches become operations with the host's pauses and call lengths between them") {
  const auto w = import_text(trace_of({call("cudaDeviceSynchronize", 1000, 5, 1),
                                       call("cudaLaunchKernel", 1100.5, 4.25, 2),
                                       call("cudaFuncSetAttribute", 1107, 1, 3),
                                       call("cudaLaunchKernel", 1110, 6, 4),
                                       kernel("f", 1106, 3.136, 2), kernel("g", 1120, 50, 4)}))
                     .workload;
  REQUIRE(w.ops.size() == 3);
  CHECK(w.ops[0].kind == OpKind::Launch);
  CHECK(w.ops[0].pause_ns == 0);  // the iteration begins with its first work
  CHECK(w.ops[0].call_ns == 4250);
  CHECK(w.ops[0].duration_ns == 3136);
  CHECK(w.ops[1].pause_ns == 5250);  // other calls in between are host time
  CHECK(w.ops[1].call_ns == 6000);
  CHECK(w.ops[2].kind == OpKind::DeviceSync);
  REQUIRE(w.kernels.size() == 2);
  CHECK(w.kernels[0] == Kernel{"f", {16, 2, 1}, {128, 1, 1}, 2112});
}

TEST_CASE("waiting inside a synchronisation is not host time") {
  const auto w =
      import_text(trace_of({call("cudaLaunchKernel", 10, 5, 1), kernel("f", 16, 900, 1),
                            call("cudaStreamSynchronize", 20, 896, 2),
                            call("cudaLaunchKernel", 926, 5, 3), kernel("f", 932, 9, 3)}))
          .workload;
  REQUIRE(w.ops.size() == 4);
  CHECK(w.ops[1].kind == OpKind::StreamSync);
  CHECK(w.ops[1].pause_ns == 5'000);
  CHECK(w.ops[1].call_ns == 0);
  CHECK(w.ops[2].pause_ns == 10'000);
  CHECK(w.kernels.size() == 1);
}

TEST_CASE(
    "a copy from pageable memory waits by itself, an ordinary copy call gets a wait behind it") {
  const auto w = import_text(trace_of({call("cudaMemcpyAsync", 10, 500, 1),
                                       copy("Memcpy HtoD (Pageable -> Device)", 12, 480, 1),
                                       call("cudaMemcpy", 520, 30, 2),
                                       copy("Memcpy DtoH (Device -> Pinned)", 525, 20, 2),
                                       call("cudaMemcpyAsync", 560, 4, 3),
                                       copy("Memcpy DtoD (Device -> Device)", 565, 2, 3)}))
                     .workload;
  REQUIRE(w.ops.size() == 5);
  CHECK(w.ops[0].kind == OpKind::CopyToDevice);
  CHECK(w.ops[0].pageable);
  CHECK(w.ops[0].call_ns == 0);
  CHECK(w.ops[0].bytes == 4096);
  CHECK(w.ops[0].recorded_ns == 480'000);
  CHECK(w.ops[1].kind == OpKind::CopyToHost);
  CHECK_FALSE(w.ops[1].pageable);
  CHECK(w.ops[1].pause_ns == 10'000);
  CHECK(w.ops[2].kind == OpKind::StreamSync);
  CHECK(w.ops[3].kind == OpKind::CopyOnDevice);
  CHECK(w.ops[3].pause_ns == 10'000);
  CHECK(w.ops[3].call_ns == 4'000);
}

TEST_CASE("kernels of one graph launch are issued one after the other at the call") {
  const auto w = import_text(trace_of({call("cudaGraphLaunch", 10, 8, 1), kernel("b", 30, 5, 1),
                                       kernel("a", 20, 5, 1), kernel("c", 40, 5, 1)}))
                     .workload;
  REQUIRE(w.ops.size() == 4);
  CHECK(w.kernels[w.ops[0].kernel].name == "a");
  CHECK(w.kernels[w.ops[1].kernel].name == "b");
  CHECK(w.ops[0].call_ns + w.ops[1].call_ns + w.ops[2].call_ns == 8'000);
  CHECK(w.ops[1].pause_ns == 0);
}

TEST_CASE("device work without its host call is cropped, or issued first when asked for") {
  const std::string text =
      trace_of({kernel("early", 5, 100, 77), call("cudaDeviceSynchronize", 8, 97, 2),
                call("cudaLaunchKernel", 120, 5, 3), kernel("f", 130, 10, 3),
                call("cudaLaunchKernel", 140, 5, 4)});
  const auto cropped = import_text(text);
  CHECK(cropped.cropped == 1);
  CHECK(cropped.calls_without_work == 1);
  CHECK(cropped.recorded_ns == 20'000);
  CHECK(cropped.workload.ops.size() == 2);
  const auto kept = import_text(text, Unmatched::IssueFirst);
  CHECK(kept.cropped == 0);
  REQUIRE(kept.workload.ops.size() == 3);
  CHECK(kept.workload.kernels[kept.workload.ops[0].kernel].name == "early");
}

TEST_CASE("calls of several host threads become one timeline") {
  const auto w =
      import_text(trace_of({call("cudaLaunchKernel", 10, 10, 1, 1), kernel("a", 22, 5, 1, 7),
                            call("cudaLaunchKernel", 15, 10, 2, 2), kernel("b", 30, 5, 2, 20),
                            call("cudaStreamSynchronize", 30, 6, 3, 2)}))
          .workload;
  REQUIRE(w.ops.size() == 4);
  CHECK(w.streams == 2);
  CHECK(w.ops[0].call_ns == 10'000);
  CHECK(w.ops[1].pause_ns == 0);
  CHECK(w.ops[1].call_ns == 5'000);  // 20 .. 25: the rest is covered by the first call
  CHECK(w.ops[2].pause_ns == 5'000);
  CHECK(w.ops[2].stream == w.ops[1].stream);  // the stream its thread used last
}

TEST_CASE("an event wait without streams is inferred from what the recording shows") {
  const auto import =
      import_text(trace_of({call("cudaLaunchKernel", 10, 2, 1), kernel("a", 13, 100, 1, 7),
                            call("cudaLaunchKernel", 14, 2, 2), kernel("slow", 20, 900, 2, 21),
                            call("cudaStreamWaitEvent", 18, 1, 3),
                            call("cudaLaunchKernel", 20, 2, 4), kernel("n", 114, 50, 4, 20)}));
  CHECK(import.guessed_waits == 1);
  const auto& w = import.workload;
  REQUIRE(w.ops.size() == 6);
  CHECK(w.ops[2].kind == OpKind::EventRecord);
  CHECK(w.ops[2].stream == w.ops[0].stream);  // "slow" was still running when "n" began
  CHECK(w.ops[3].kind == OpKind::EventWait);
  CHECK(w.ops[3].stream == w.ops[4].stream);
  CHECK(w.ops[3].event == w.ops[2].event);
  CHECK(w.ops[3].event < w.events);
}

TEST_CASE("an event wait whose streams the file says is taken as said") {
  const auto import = import_text(trace_of(
      {call("cudaLaunchKernel", 10, 2, 1), kernel("a", 13, 100, 1, 7),
       call("cudaLaunchKernel", 14, 2, 2), kernel("slow", 20, 900, 2, 21),
       call("cudaStreamWaitEvent", 18, 1, 3),
       R"({"ph": "X", "cat": "cuda_sync", "name": "Stream Wait Event", "ts": 18, "dur": 0, "args":
                    {"cuda_sync_kind": "Stream Wait Event", "stream": 7,
                     "wait_on_stream": 21, "correlation": 3}})",
       call("cudaLaunchKernel", 2000, 2, 4), kernel("n", 2005, 50, 4, 7)}));
  CHECK(import.guessed_waits == 0);
  const auto& w = import.workload;
  REQUIRE(w.ops.size() == 6);
  CHECK(w.ops[2].stream == w.ops[1].stream);
  CHECK(w.ops[3].stream == w.ops[0].stream);
}

TEST_CASE("a bare list of events and a gzip file are read too") {
  std::string text =
      trace_of({call("cuLaunchKernel", 10, 2, 1, 1, "cuda_driver"), kernel("a", 13, 100, 1)});
  const size_t from = text.find("[{\"ph\"");
  const std::string list = text.substr(from, text.find("], \"traceName\"") + 1 - from);
  CHECK(import_text(list).workload.ops.size() == 2);

  const ScratchFile file("", "my.trace.json.gz");
  gzFile out = gzopen(file.path.c_str(), "wb");
  gzwrite(out, text.data(), static_cast<unsigned>(text.size()));
  gzclose(out);
  const auto workload = load_workload(file.path);
  REQUIRE(workload.has_value());
  CHECK(workload->name == "my.trace");
  std::filesystem::resize_file(file.path, std::filesystem::file_size(file.path) - 12);
  const auto cut = load_workload(file.path);
  REQUIRE_FALSE(cut.has_value());
  CHECK(cut.error().find("damaged or cut off") != std::string::npos);
}

TEST_CASE("a trace that cannot be replayed is refused with its reason") {
  struct Row {
    std::string text, reason;
  };
  const Row rows[] = {
      {"", "it is empty"},
      {"{\"traceEvents\": [", "cut off"},
      {"\x7f"
       "ELF",
       "not JSON"},
      {"{\"a\": 1, \"b c\": {\"traceEvents\": []}}",
       "it is JSON of a, b c, with neither \"lull_workload\" nor \"traceEvents\": give a workload"},
      {"3", "it is JSON without a key, with neither"},
      {"lulltrc\n and what follows", "it is a recording of lull, not a workload: make one"},
      {trace_of({}), "no work on a GPU"},
      {trace_of({call("cudaLaunchKernel", 10, 2, 1)}), "no work on a GPU"},
      {trace_of({kernel("a", 13, 100, 1)}), "none of its device operations has a host call"},
      {trace_of({kernel("a", 13, -100, 1)}), "sensible ts and dur"},
      {trace_of({kernel("a", 1e17, 100, 1)}), "sensible ts and dur"},
      {trace_of({kernel("a", 13, 1e12, 1)}), "sensible ts and dur"},
      {trace_of({call("cudaLaunchKernel", 10, 2, 1), kernel("a", 13, 1, 1),
                 call("cudaLaunchKernel", 1e10, 2, 2), kernel("a", 1e10, 1, 2)}),
       "does nothing for 9999 s"},
  };
  for (const Row& row : rows) {
    INFO(row.text);
    const ScratchFile file(row.text);
    const auto workload = load_workload(file.path);
    REQUIRE_FALSE(workload.has_value());
    INFO(workload.error());
    CHECK(workload.error().find(row.reason) != std::string::npos);
    CHECK(workload.error().find('\n') == std::string::npos);
    CHECK(workload.error().starts_with("cannot read " + file.path + ": "));
  }
}

TEST_CASE("a trace cut off at any byte is refused") {
  const std::string text = trace_of({call("cudaLaunchKernel", 10, 2, 1), kernel("a", 13, 100, 1)});
  for (size_t length = 0; length < text.size(); length += 7) {
    const ScratchFile file(text.substr(0, length));
    CHECK_FALSE(load_workload(file.path).has_value());
  }
}

TEST_CASE("the summary of a recording counts busy time once where streams overlap") {
  const ScratchFile file(trace_of(
      {kernel("a", 0, 10, 1, 7), kernel("b", 5, 10, 2, 8), copy("Memcpy DtoH", 25, 5, 3)}));
  const auto trace = read_kineto_file(file.path);
  REQUIRE(trace.has_value());
  const auto sum = summarize(*trace);
  CHECK(sum.operations == 3);
  CHECK(sum.kernels == 2);
  CHECK(sum.copies == 1);
  CHECK(sum.span_ns == 30'000);
  CHECK(sum.busy_ns == 20'000);
  CHECK(sum.work_ns == 25'000);
  CHECK(sum.gap_max_ns == 10'000);
}
