#include "tools/lull/trace/kernel_display.h"

#include <cxxabi.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <utility>

#include "tools/measure/short_names.h"
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

std::vector<std::string> shorten_names(const std::vector<std::string>& names, size_t chars) {
  return command::shorten_names(names, chars, shorten_name);
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
