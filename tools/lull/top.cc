// `lull top`: what the daemon's clients do, drawn anew each second. Ends with q or an interrupt and
// leaves the terminal as it was; without a terminal, or with -n, it prints and ends.
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <nlohmann/json.hpp>

#include "tools/lull/command.h"
#include "tools/lull/daemon_link.h"
#include "tools/lull/json_output.h"
#include "tools/lull/output_width.h"
#include "tools/lull/top_view.h"

namespace lull::command {
namespace {

constexpr std::string_view kEnter = "\x1b[?1049h\x1b[?25l";
constexpr std::string_view kLeave = "\x1b[0m\x1b[?25h\x1b[?1049l";

volatile sig_atomic_t g_ended = 0;
void end_by_signal(int) { g_ended = 1; }
void look_again(int) {}

void put(std::string_view text) {
  while (!text.empty()) {
    const ssize_t done = ::write(STDOUT_FILENO, text.data(), text.size());
    if (done < 0 && errno == EINTR) continue;
    if (done <= 0) return;
    text.remove_prefix(static_cast<size_t>(done));
  }
}

// The other screen, no cursor, no echo; everything as before when it goes.
class Screen {
 public:
  Screen() {
    struct sigaction action {};
    action.sa_handler = end_by_signal;
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::sigaction(signal, &action, nullptr);
    action.sa_handler = look_again;
    ::sigaction(SIGWINCH, &action, nullptr);
    has_keys_ = ::tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
      termios quiet = before_;
      quiet.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      quiet.c_cc[VMIN] = 0;
      quiet.c_cc[VTIME] = 0;
      ::tcsetattr(STDIN_FILENO, TCSANOW, &quiet);
    }
    put(kEnter);
  }
  ~Screen() {
    put(kLeave);
    if (has_keys_) ::tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void draw(const std::vector<TopLine>& lines, size_t height) const {
    std::string picture = "\x1b[H";
    for (size_t i = 0; i < lines.size() && i < height; ++i) {
      if (i > 0) picture += "\r\n";
      const TopLine& line = lines[i];
      picture += line.heading ? "\x1b[7m" + line.text + "\x1b[0m\x1b[K" : line.text + "\x1b[K";
    }
    put(picture + "\x1b[J");
  }
  // False: the user has had enough.
  bool wait(int ms) const {
    pollfd keys{.fd = has_keys_ ? STDIN_FILENO : -1, .events = POLLIN, .revents = 0};
    const int ready = ::poll(&keys, 1, ms);
    if (g_ended != 0) return false;
    if (ready <= 0 || !has_keys_) return true;
    char key = 0;
    if (::read(STDIN_FILENO, &key, 1) == 0) return false;  // the terminal has gone
    return key != 'q' && key != 'Q' && key != '\x03';
  }

 private:
  termios before_{};
  bool has_keys_ = false;
};

// Columns and rows of the screen.
std::pair<size_t, size_t> screen_size() {
  winsize size{};
  if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) {
    return {size.ws_col, size.ws_row > 0 ? size.ws_row : 24};
  }
  return {80, 24};
}

}  // namespace

int top_main(const Words& words) {
  JsonOutput as_json;
  uint32_t times = 0;
  uint32_t every_ms = 1000;
  size_t width = 0;
  std::string socket;
  CommandLine line("Shows live who uses the GPUs, how much, who is held, and who is slowed down.",
                   "lull top");
  line.option("-n,--times", times, "print so often, as plain text, and end").range(1, 1'000'000);
  line.option("--every-ms", every_ms, "how long between two looks (default 1000)")
      .range(50, 3'600'000);
  line.option("--width", width, "columns to fit into (default: COLUMNS, else the terminal's)")
      .range(20, 1000);
  as_json.add_to(line);
  line.option("--socket", socket, "socket of lulld");
  if (const auto code = parse_words(line, words)) return *code;
  if (socket.empty()) socket = default_socket();

  const auto ask = [&] { return ask_daemon(socket, {{"op", "status"}}); };
  auto answer = ask();
  if (!answer) {
    complain("top: " + answer.error().text);
    return kFailed;
  }
  if (times > 0 || as_json.asked() || ::isatty(STDOUT_FILENO) == 0) {
    for (uint32_t n = 0;; ++n) {
      if (!as_json.write("top", *answer, /*indent=*/-1)) return kFailed;
      if (!as_json.replaces_text()) {
        std::string text = n > 0 ? "\n" : "";
        for (const TopLine& shown : top_lines(*answer, width > 0 ? width : output_width())) {
          text += shown.text + "\n";
        }
        put(text);
      }
      if (n + 1 >= std::max(times, 1U)) return kDone;
      ::poll(nullptr, 0, static_cast<int>(every_ms));
      answer = ask();
      if (!answer) {
        complain("top: " + answer.error().text);
        return kFailed;
      }
    }
  }
  const Screen screen;
  for (;;) {
    const auto [columns, rows] = screen_size();
    const size_t fits = width > 0 ? std::min(width, columns) : columns;
    if (answer) {
      screen.draw(top_lines(*answer, fits), rows);
    } else {
      screen.draw({{("lull: top: " + answer.error().text).substr(0, fits)}}, rows);
    }
    if (!screen.wait(static_cast<int>(every_ms))) return kDone;
    answer = ask();
  }
}

}  // namespace lull::command
