// load_workload: tells workloads from traces by the outermost keys of the file, wherever they are.
#include <filesystem>
#include <string_view>

#include "coordinator/trace/block_file.h"
#include "tools/play/kineto.h"
#include "tools/play/text_source.h"
#include "tools/play/workload.h"

namespace lull::play {
namespace {

constexpr size_t kMaxWorkloadBytes = 64 << 20;

std::string stem_of(const std::string& path) {
  std::string name = path.substr(path.find_last_of('/') + 1);
  for (const std::string_view ending : {".gz", ".json", ".pt.trace"}) {
    if (name.size() > ending.size() && name.ends_with(ending))
      name.resize(name.size() - ending.size());
  }
  return name.substr(0, 200);
}

std::expected<Workload, std::string> load_own(const std::string& path, const std::string& failed) {
  auto source = TextSource::open(path);
  if (!source) return std::unexpected(failed + source.error());
  const auto text = (*source)->read_all(kMaxWorkloadBytes);
  if (!text) return std::unexpected(failed + text.error() + ": give a whole workload");
  return parse_workload(*text, path);
}

}  // namespace

std::string workload_file(const std::string& word) {
  std::error_code ignored;
  if (word.find('/') != std::string::npos || std::filesystem::exists(word, ignored)) return word;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const auto shipped =
      program.parent_path().parent_path() / "share/lull/workloads" / (word + ".json");
  return std::filesystem::exists(shipped, ignored) ? shipped.string() : word;
}

std::expected<Workload, std::string> load_workload(const std::string& path) {
  const std::string failed = "cannot read " + path + ": ";
  auto source = TextSource::open(path);
  if (!source) {
    return std::unexpected(failed + source.error() +
                           ": give a workload or a PyTorch profiler trace");
  }
  const std::string_view beginning = (*source)->window();
  if (beginning.empty() && (*source)->error().empty()) {
    return std::unexpected(failed + "it is empty: give a workload or a PyTorch profiler trace");
  }
  if (beginning.starts_with(trace::kFileMagic)) {
    return std::unexpected(failed +
                           "it is a recording of lull, not a workload: make one of it with `lull "
                           "trace export --format workload`");
  }
  const auto trace = read_kineto(**source);
  if (!trace && trace.error() == kIsWorkload) return load_own(path, failed);
  if (!trace) return std::unexpected(failed + trace.error());
  auto import = import_kineto(*trace, stem_of(path));
  if (!import) return std::unexpected(failed + import.error());
  return std::move(import->workload);
}

}  // namespace lull::play
