#include "tools/lull/trace/kernel_display.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <map>
#include <utility>

#include "tools/play/kernel_name.h"

namespace lull::trace {
namespace {

// Where a parameter list at the end of `name` begins; its length where there is none.
size_t end_without_parameters(std::string_view name) {
  size_t end = name.size();
  if (name.ends_with(" const")) end -= 6;
  if (end == 0 || name[end - 1] != ')') return name.size();
  int depth = 0;
  for (size_t i = end; i-- > 0;) {
    if (name[i] == ')' || name[i] == '}' || name[i] == ']') ++depth;
    if (name[i] == '(' || name[i] == '{' || name[i] == '[') --depth;
    if (depth == 0) return i == 0 ? name.size() : i;
  }
  return name.size();
}

// "void f<int>" -> "f<int>": the return type ends at the first blank outside all brackets.
std::string_view without_return_type(std::string_view name) {
  int depth = 0;
  size_t start = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    if (c == '<' || c == '(' || c == '{' || c == '[') ++depth;
    if (c == '>' || c == ')' || c == '}' || c == ']') --depth;
    if (c == ' ' && depth == 0 && name.substr(0, i).find("operator") == std::string_view::npos) {
      start = i + 1;
      break;
    }
  }
  return start < name.size() ? name.substr(start) : name;
}

std::string without_template_arguments(std::string_view name) {
  std::string out;
  int depth = 0;
  for (size_t i = 0; i < name.size(); ++i) {
    const char c = name[i];
    const bool arrow = c == '>' && i > 0 && name[i - 1] == '-';
    if (c == '<') {
      if (depth++ == 0) out += "<..>";
    } else if (c == '>' && depth > 0 && !arrow) {
      --depth;
    } else if (depth == 0) {
      out += c;
    }
  }
  return out;
}

}  // namespace

std::string without_controls(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 32 || c == 127) c = ' ';
  }
  return text;
}

std::string program_name(const std::string& name) {
  // No compiler puts a '$' into a kernel's name.
  const bool escaped = !name.starts_with("_Z") && name.find('$') != std::string::npos;
  return escaped ? play::unescape_kernel_name(name) : name;
}

std::string display_name(const std::string& name) {
  std::string shown = program_name(name);
  if (shown.starts_with("_Z")) {
    int status = 0;
    char* demangled = abi::__cxa_demangle(shown.c_str(), nullptr, nullptr, &status);
    if (status == 0 && demangled != nullptr) shown = demangled;
    std::free(demangled);
  }
  return without_controls(std::move(shown));
}

std::string shorten_name(std::string_view name, size_t chars) {
  chars = std::max<size_t>(chars, 8);
  if (name.size() <= chars) return std::string(name);
  const bool is_copy = name.starts_with("Memcpy") || name.starts_with("Memset");
  if (!is_copy) {
    const size_t end = end_without_parameters(name);
    name = without_return_type(name.substr(0, end));
    if (name.size() <= chars) return std::string(name);
  }
  std::string shorter = is_copy ? std::string(name) : without_template_arguments(name);
  if (shorter.size() <= chars) return shorter;
  const size_t head = (chars - 2) / 3, tail = chars - 2 - head;
  return shorter.substr(0, head) + ".." + shorter.substr(shorter.size() - tail);
}

namespace {

// Words and numbers are one token, any other character is one.
std::vector<std::string_view> tokens_of(std::string_view name) {
  const auto is_word = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
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
    if (text().size() <= chars) return true;
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

std::vector<std::string> shorten_names(const std::vector<std::string>& names, size_t chars) {
  std::map<std::string, std::vector<std::string>> by_short;
  for (const std::string& name : names) by_short[shorten_name(name, chars)].push_back(name);
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

std::string shape_text(const KernelInfo& kernel) {
  if (kernel.kind != UnitKind::kKernel) return {};
  const auto& g = kernel.grid;
  const auto& b = kernel.block;
  return fmt::format("{}x{}x{} / {}x{}x{}", g[0], g[1], g[2], b[0], b[1], b[2]);
}

std::string_view kind_name(UnitKind kind) {
  switch (kind) {
    case UnitKind::kKernel:
      return "kernel";
    case UnitKind::kGraph:
      return "graph";
    case UnitKind::kCopy:
      return "copy";
    case UnitKind::kMemset:
      return "memset";
  }
  return "?";
}

}  // namespace lull::trace
