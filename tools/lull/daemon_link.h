// Asks lulld one question and gets its answer: a JSON object each way over the daemon's socket
// (coordinator/channel/messages.h). Called by the subcommands, on any thread; waits at most
// `kAnswerWait` for the whole answer. Does not start a daemon and keeps no connection.
#pragma once

#include <chrono>
#include <expected>
#include <nlohmann/json.hpp>
#include <string>

namespace lull::command {

inline constexpr std::chrono::milliseconds kAnswerWait{2000};
inline constexpr size_t kAnswerBytesMax = 64U << 20;

struct AskError {
  enum Kind { kUnreachable, kGarbled, kRefused } kind = kUnreachable;
  std::string text;  // "why: what to do"
};

// The daemon's answer with "ok": true, or why there is none.
std::expected<nlohmann::json, AskError> ask_daemon(const std::string& socket_path,
                                                   const nlohmann::json& question);

}  // namespace lull::command
