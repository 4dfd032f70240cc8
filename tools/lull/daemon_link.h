// Asks lulld one question and gets its answer: a JSON object each way over the daemon's socket, of
// which an answer may come in pages (coordinator/channel/messages.h). Called by the subcommands, on
// any thread; waits at most `kAnswerWait` for a page and `kWholeAnswerWait` for all of them. Does
// not start a daemon and keeps no connection.
#pragma once

#include <chrono>
#include <expected>
#include <nlohmann/json.hpp>
#include <string>

namespace lull::command {

// A daemon answers in a millisecond; on a machine with ten programs for each processor it may take seconds.
inline constexpr std::chrono::milliseconds kAnswerWait{10000};
inline constexpr std::chrono::milliseconds kWholeAnswerWait{30000};
inline constexpr size_t kAnswerBytesMax = 8U << 20;  // of a page
inline constexpr size_t kPagesMax = 4096;

struct AskError {
  // kUnreachable: there is no daemon. kSilent: it does not answer in time.
  enum Kind { kUnreachable, kSilent, kDistrusted, kGarbled, kRefused } kind = kUnreachable;
  std::string text;  // "why: what to do"
};

// Where a lulld is expected that no --socket names. Empty: the path is too long for a socket.
std::string default_socket();

// Adds the next page to the answer so far.
void add_page(nlohmann::json& answer, const nlohmann::json& page);

// The daemon's whole answer with "ok": true, or why there is none. One that is not trusted
// (coordinator/channel/trust.h) is asked nothing. `wait`: for each page.
std::expected<nlohmann::json, AskError> ask_daemon(const std::string& socket_path,
                                                   const nlohmann::json& question,
                                                   std::chrono::milliseconds wait = kAnswerWait);

}  // namespace lull::command
