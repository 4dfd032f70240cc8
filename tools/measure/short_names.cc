#include "tools/measure/short_names.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <utility>

namespace lull::command {
namespace {

// Words and numbers are one token, any other character is one; none parts a character of UTF-8.
std::vector<std::string_view> tokens_of(std::string_view name) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || (c & 0x80) != 0;
  };
  std::vector<std::string_view> out;
  for (size_t from = 0; from < name.size();) {
    size_t until = from + 1;
    while (is_word(name[from]) && until < name.size() && is_word(name[until])) ++until;
    out.push_back(name.substr(from, until - from));
    from = until;
  }
  return out;
}

// The tokens of a name, some kept; what lies between two kept ones is shown as "..".
class Abridged {
 public:
  explicit Abridged(std::vector<std::string_view> tokens)
      : tokens_(std::move(tokens)), kept_(tokens_.size()) {}

  void keep(size_t token) {
    if (token < kept_.size()) kept_[token] = true;
  }
  // Keeps more, as far as it fits: the head, then what stands beside the kept tokens.
  void grow(size_t chars) {
    size_t head = 0;
    while (head < kept_.size() && (kept_[head] || try_to_keep(head, chars))) ++head;
    for (bool grown = true; grown;) {
      grown = false;
      const std::vector<bool> before = kept_;
      for (size_t i = 0; i < kept_.size(); ++i) {
        const bool beside = (i > 0 && before[i - 1]) || (i + 1 < before.size() && before[i + 1]);
        if (!kept_[i] && beside && try_to_keep(i, chars)) grown = true;
      }
    }
  }
  std::string text() const {
    std::string out, gap;
    const auto end_gap = [&] {
      out += gap.size() > 2 ? ".." : gap;
      gap.clear();
    };
    for (size_t i = 0; i < tokens_.size(); ++i) {
      if (!kept_[i]) {
        gap += tokens_[i];
        continue;
      }
      end_gap();
      out += tokens_[i];
    }
    end_gap();
    return out;
  }

 private:
  bool try_to_keep(size_t token, size_t chars) {
    kept_[token] = true;
    if (width_of(text()) <= chars) return true;
    kept_[token] = false;
    return false;
  }

  std::vector<std::string_view> tokens_;
  std::vector<bool> kept_;
};

// Names in alphabetical order of tokens are the leaves of a tree; where two part, both keep the
// token that tells them apart. So no two become equal, however little room there is.
std::vector<std::string> tell_apart(const std::vector<std::string>& names, size_t chars) {
  std::vector<std::pair<std::vector<std::string_view>, size_t>> sorted;
  for (size_t i = 0; i < names.size(); ++i) sorted.emplace_back(tokens_of(names[i]), i);
  std::sort(sorted.begin(), sorted.end());
  // Where each parts from the one before.
  std::vector<size_t> parts(sorted.size());
  for (size_t i = 1; i < sorted.size(); ++i) {
    const auto& [a, b] = std::pair(sorted[i - 1].first, sorted[i].first);
    parts[i] = static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first -
                                   a.begin());
  }
  std::vector<std::string> out(names.size());
  for (size_t i = 0; i < sorted.size(); ++i) {
    Abridged one(sorted[i].first);
    size_t least = SIZE_MAX;
    for (size_t j = i; j > 0; --j) one.keep(least = std::min(least, parts[j]));
    least = SIZE_MAX;
    for (size_t j = i + 1; j < sorted.size(); ++j) one.keep(least = std::min(least, parts[j]));
    one.grow(chars);
    out[sorted[i].second] = one.text();
  }
  return out;
}

}  // namespace

std::string cut_middle(std::string_view name, size_t chars) {
  chars = std::max<size_t>(chars, 3);
  const size_t width = width_of(name);
  if (width <= chars) return std::string(name);
  const size_t head = (chars - 2) / 2, tail = chars - 2 - head;
  // Where the n-th character begins.
  const auto at = [&](size_t n) {
    size_t i = 0;
    for (size_t seen = 0; i < name.size(); ++i) {
      if ((name[i] & 0xc0) != 0x80 && seen++ == n) break;
    }
    return i;
  };
  return std::string(name.substr(0, at(head))) + ".." + std::string(name.substr(at(width - tail)));
}

std::vector<std::string> shorten_names(const std::vector<std::string>& names, size_t chars,
                                       ShortenOne one) {
  std::map<std::string, std::vector<std::string>> by_short;
  for (const std::string& name : names) by_short[one(name, chars)].push_back(name);
  std::map<std::string, std::string> shown;
  for (auto& [text, same] : by_short) {
    std::sort(same.begin(), same.end());
    same.erase(std::unique(same.begin(), same.end()), same.end());
    const bool alone = same.size() == 1;
    const auto apart = alone ? std::vector<std::string>{text} : tell_apart(same, chars);
    for (size_t i = 0; i < same.size(); ++i) shown[same[i]] = apart[i];
  }
  std::vector<std::string> out;
  for (const std::string& name : names) out.push_back(shown[name]);
  return out;
}

}  // namespace lull::command
