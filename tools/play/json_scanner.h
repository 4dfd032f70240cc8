// Reads JSON token by token and passes over what nobody wants at the speed of memory: recordings of
// gigabytes, of which a tenth is read. A reader that builds or checks all of it takes several times
// as long. Used by the trace reader (kineto.cc) from one thread; the text is never held whole.
//
// What a handler has, all returning what to do next:
//   key(text)                      of an object's member
//   string(text), number(text), literal(text)    a value, raw: without quotes, with its escapes
//   start_object(), start_array(), end_object(), end_array()
// Views stand until the return. Of what is passed over only strings and brackets are looked at; of
// the rest numbers are not checked, and that strings are valid UTF-8 is the handler's question.
#pragma once

#include <fmt/format.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "tools/play/text_source.h"

namespace lull::play {

enum class Then : uint8_t {
  kOn,
  kPassValue,  // of a key: its value is passed over, nothing is called for it
  kPassRest,   // of the container that the token stands in; its end is told
  kStop,       // reading ends, without an error of the scanner's
};

template <typename Handler>
class JsonScanner {
 public:
  static constexpr size_t kMaxDepth = 512;
  static constexpr size_t kMaxTokenBytes = 64UL << 20;

  JsonScanner(TextSource& source, Handler& handler) : source_(source), handler_(handler) {}

  // True: one whole value, and nothing but space behind it. Otherwise `problem` says why, or the
  // handler has stopped it.
  bool run() {
    if (!value()) return false;
    while (!open_.empty()) {
      if (!(open_.back() ? member() : element())) return false;
    }
    if (peek() != kEnd) return bad();
    return true;
  }
  const std::string& problem() const { return problem_; }

 private:
  static constexpr int kEnd = -1;

  bool fail(const char* what) {
    if (problem_.empty()) {
      problem_ = fmt::format("it is {} at byte {}", what, source_.passed() + at_);
    }
    return false;
  }
  bool bad() { return at_ >= text_.size() && !more() ? fail("cut off") : fail("not JSON"); }

  // Reads on; what lies before `keep_` is given up.
  bool more() {
    if (text_.size() - keep_ > kMaxTokenBytes) return false;
    const bool any = source_.more(keep_);
    text_ = source_.window();
    at_ -= keep_;
    keep_ = 0;
    return any;
  }
  // The next character that is no space, not taken.
  int peek() {
    for (;;) {
      while (at_ < text_.size()) {
        const char c = text_[at_];
        if (c != ' ' && c != '\n' && c != '\r' && c != '\t') return static_cast<unsigned char>(c);
        ++at_;
      }
      keep_ = at_;
      if (!more()) return kEnd;
    }
  }

  // Behind the opening quote: to behind the closing one. `raw` without them.
  bool string_token(std::string_view& raw) {
    keep_ = at_;
    size_t from = at_;
    for (;;) {
      const void* quote = from < text_.size()
                              ? std::memchr(text_.data() + from, '"', text_.size() - from)
                              : nullptr;
      if (quote == nullptr) {
        from = text_.size() - keep_;
        if (!more()) {
          at_ = text_.size();
          return fail("cut off");
        }
        continue;
      }
      const auto end = static_cast<size_t>(static_cast<const char*>(quote) - text_.data());
      size_t slashes = 0;
      while (end - slashes > keep_ && text_[end - slashes - 1] == '\\') ++slashes;
      if (slashes % 2 == 1) {
        from = end + 1;
        continue;
      }
      raw = text_.substr(keep_, end - keep_);
      at_ = end + 1;
      return true;
    }
  }
  // A number or a literal.
  std::string_view bare_token() {
    keep_ = at_;
    for (;;) {
      while (at_ < text_.size()) {
        const char c = text_[at_];
        const bool inside = (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || c == '-' ||
                            c == '+' || c == '.' || c == 'E';
        if (!inside) return text_.substr(keep_, at_ - keep_);
        ++at_;
      }
      if (!more()) return text_.substr(keep_, at_ - keep_);
    }
  }

  // Over strings and brackets until `depth` of them are closed.
  bool pass(size_t depth) {
    enum : uint8_t { kOther, kQuote, kOpen, kClose };
    static constexpr auto kClass = [] {
      std::array<uint8_t, 256> classes{};
      classes['"'] = kQuote;
      classes['{'] = classes['['] = kOpen;
      classes['}'] = classes[']'] = kClose;
      return classes;
    }();
    while (depth > 0) {
      while (at_ < text_.size() && kClass[static_cast<unsigned char>(text_[at_])] == kOther) ++at_;
      if (at_ == text_.size()) {
        keep_ = at_;
        if (!more()) return fail("cut off");
        continue;
      }
      const uint8_t kind = kClass[static_cast<unsigned char>(text_[at_++])];
      if (kind == kQuote) {
        std::string_view raw;
          if (!string_token(raw)) return false;
      } else {
        depth += kind == kOpen ? 1 : -1UL;
      }
    }
    return true;
  }

  // After a token inside the innermost container.
  bool then(Then what) {
    if (what == Then::kStop) return false;
    if (what != Then::kPassRest) return true;
    if (open_.empty()) return true;
    if (!pass(1)) return false;
    return close();
  }
  bool close() {
    const bool object = open_.back();
    open_.pop_back();
    first_ = false;
    return then(object ? handler_.end_object() : handler_.end_array());
  }

  bool value() {
    const int c = peek();
    if (c == '"') {
      ++at_;
      std::string_view raw;
      if (!string_token(raw)) return false;
      return then(handler_.string(raw));
    }
    if (c == '{' || c == '[') {
      ++at_;
      if (open_.size() == kMaxDepth) return fail("nested too deep");
      open_.push_back(c == '{');
      first_ = true;
      return then(c == '{' ? handler_.start_object() : handler_.start_array());
    }
    const bool number = c == '-' || (c >= '0' && c <= '9');
    if (!number && c != 't' && c != 'f' && c != 'n') return bad();
    const std::string_view token = bare_token();
    if (number) return then(handler_.number(token));
    const bool known = token == "true" || token == "false" || token == "null";
    if (!known) {
      if (at_ < text_.size()) at_ = keep_;
      return bad();
    }
    return then(handler_.literal(token));
  }

  // False: an error. Otherwise at the next one, or `ended`.
  bool next_in_container(char closing, bool& ended) {
    const int c = peek();
    ended = c == closing;
    if (ended) {
      ++at_;
      return true;
    }
    if (first_) {
      first_ = false;
      return true;
    }
    if (c != ',') return bad();
    ++at_;
    return true;
  }
  bool element() {
    bool ended = false;
    if (!next_in_container(']', ended)) return false;
    return ended ? close() : value();
  }
  bool member() {
    bool ended = false;
    if (!next_in_container('}', ended)) return false;
    if (ended) return close();
    if (peek() != '"') return bad();
    ++at_;
    std::string_view raw;
    if (!string_token(raw)) return false;
    const Then what = handler_.key(raw);
    if (what == Then::kStop) return false;
    if (peek() != ':') return bad();
    ++at_;
    if (what == Then::kPassRest) return then(what);
    return what == Then::kPassValue ? pass_value() : value();
  }
  bool pass_value() {
    const int c = peek();
    if (c == '"') {
      ++at_;
      std::string_view raw;
      return string_token(raw);
    }
    if (c == '{' || c == '[') {
      ++at_;
      return pass(1);
    }
    return !bare_token().empty() || bad();
  }

  TextSource& source_;
  Handler& handler_;
  std::string_view text_ = source_.window();
  size_t at_ = 0;
  size_t keep_ = 0;         // the token in hand begins here
  std::vector<bool> open_;  // the containers: true for objects
  bool first_ = false;      // nothing yet in the innermost one
  std::string problem_;
};

}  // namespace lull::play
