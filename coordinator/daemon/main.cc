// lulld: reads options and configuration, starts the daemon, and ends with its exit code
// (0 asked to stop, 1 failed, 2 wrong usage).
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "coordinator/channel/socket_place.h"
#include "coordinator/daemon/daemon.h"
#include "coordinator/daemon/options.h"
#include "policies/launch/registry.h"

namespace {

using namespace lull::daemon;

int fail(int code, const std::string& text) {
  fmt::print(stderr, "lulld: {}\n", printable(text));
  return code;
}

std::expected<void, std::string> check_policy(const std::string& text) {
  if (const auto good = lull::policies::check_policy(text); !good) {
    return std::unexpected(good.error());
  }
  return {};
}

// Removed again when the daemon ends.
class PidFile {
 public:
  explicit PidFile(std::string path) : path_(std::move(path)) {}
  ~PidFile() {
    if (written_) ::unlink(path_.c_str());
  }
  PidFile(const PidFile&) = delete;
  PidFile& operator=(const PidFile&) = delete;
  bool write() {
    if (path_.empty()) return true;
    const FileDescriptor file(
        ::open(path_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644));
    const std::string text = fmt::format("{}\n", ::getpid());
    written_ =
        file && ::write(file.get(), text.data(), text.size()) == static_cast<ssize_t>(text.size());
    return written_;
  }

 private:
  std::string path_;
  bool written_ = false;
};

int serve(const Options& options) {
  DaemonSettings settings;
  settings.socket_path =
      options.socket.empty() ? lull::channel::socket_place().path : options.socket;
  if (!options.policy.empty()) {
    if (const auto good = check_policy(options.policy); !good) {
      return fail(2, fmt::format("cannot use --policy: {}", good.error()));
    }
  }
  if (!options.config.empty()) {
    auto config = load_config(options.config, check_policy);
    if (!config) return fail(1, config.error());
    settings.config = std::move(*config);
  }
  settings.config_path = options.config;
  settings.policy = options.policy;
  settings.trace = options.trace;
  settings.decision_log = options.decision_log;
  settings.timing = parse_timing(options.timing);
  if (settings.timing) settings.config.timing = *settings.timing;
  settings.simulated = options.simulated;
  settings.sim_device = options.sim_device;
  settings.verbose = options.verbose;
  settings.handle_signals = true;

  sigset_t handled;
  ::sigemptyset(&handled);
  for (const int signal : {SIGTERM, SIGINT, SIGHUP}) ::sigaddset(&handled, signal);
  ::sigprocmask(SIG_BLOCK, &handled, nullptr);
  ::signal(SIGPIPE, SIG_IGN);
  ::signal(SIGXFSZ, SIG_IGN);

  auto daemon = Daemon::start(std::move(settings));
  if (!daemon) return fail(1, daemon.error());
  PidFile pid_file(options.pid_file);
  if (!pid_file.write()) {
    return fail(1, fmt::format("cannot write {}: {}: choose another --pid-file", options.pid_file,
                               strerror(errno)));
  }
  (*daemon)->run();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const auto parsed = parse_options(argc, argv);
    if (const auto* code = std::get_if<ExitCode>(&parsed)) return code->value;
    return serve(std::get<Options>(parsed));
  } catch (const std::exception& error) {
    return fail(1, fmt::format("stopped: {}: report this", error.what()));
  }
}
