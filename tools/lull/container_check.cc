#include "tools/lull/container_check.h"

#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

#include "coordinator/channel/trust_facts.h"

namespace lull::command {
namespace {

// The number of the first pid namespace is a constant of Linux (PROC_PID_INIT_INO).
constexpr ino_t kFirstPidNamespace = 0xEFFFFFFC;

bool exists(const char* path) { return access(path, F_OK) == 0; }

}  // namespace

ContainerFacts container_facts(const std::string& socket_path) {
  ContainerFacts facts;
  struct stat about {};
  facts.proc = stat("/proc/self/ns/pid", &about) == 0;
  facts.own_pid_namespace = facts.proc && about.st_ino != kFirstPidNamespace;
  facts.marked = exists("/.dockerenv") || exists("/run/.containerenv");
  facts.user_namespace = channel::trust_facts(socket_path.c_str()).in_user_namespace;
  facts.directory = std::filesystem::path(socket_path).parent_path();
  if (facts.directory.empty()) facts.directory = ".";
  facts.directory_exists = exists(facts.directory.c_str());
  facts.socket_exists = exists(socket_path.c_str());
  facts.socket_is_mount = channel::facts::is_mount(socket_path.c_str());
  facts.read_only = channel::facts::is_read_only(socket_path.c_str());
  return facts;
}

void check_container(Findings& findings, const ContainerFacts& facts) {
  if (!in_container(facts)) return;
  findings.push_back(
      {Verdict::kOk, "container",
       fmt::format(
           "{}{}{}",
           facts.own_pid_namespace ? "a pid namespace of its own" : "with the machine's processes",
           facts.user_namespace ? ", a user namespace" : "", facts.proc ? "" : ", no /proc"),
       ""});
  if (facts.socket_is_mount) {
    findings.push_back({Verdict::kWarn, "socket",
                        "is mounted by itself: once lulld has started anew nobody answers there",
                        "mount the folder that holds it"});
  }
  if (facts.socket_exists && facts.user_namespace && !facts.read_only) {
    findings.push_back({Verdict::kWarn, "socket",
                        "is not mounted read-only: in a user namespace root's lulld is not "
                        "taken for root's",
                        fmt::format("mount it so: -v {0}:{0}:ro", facts.directory)});
  }
}

std::string mend_silence(const ContainerFacts& facts) {
  if (!in_container(facts)) {
    return facts.socket_exists ? "look at its log, or start it again" : "start lulld";
  }
  const std::string mount = fmt::format("-v {0}:{0}:ro", facts.directory);
  if (!facts.directory_exists) return "start lulld, or start the container with " + mount;
  if (!facts.socket_exists) {
    return fmt::format("start lulld outside; if it runs, start the container with {}", mount);
  }
  return fmt::format(
      "start lulld outside; if it has started anew since, mount its folder and not "
      "its socket: {}",
      mount);
}

}  // namespace lull::command
