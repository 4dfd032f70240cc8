#include "coordinator/command_line/command_line.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "coordinator/command_line/wrapped.h"

namespace lull {
namespace {

constexpr size_t kHelpColumns = 80;
constexpr size_t kHelpIndent = 30;  // of what an option does

// CLI11 keeps the words of one_of() only as a part of the type's name: "TEXT:{off,sampled}".
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find(":{"), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  return CLI::detail::split(type.substr(open + 2, close - open - 2), ',');
}

std::vector<std::string> names_of(const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (names.empty()) names.push_back(option.get_single_name());
  return names;
}

// Also of a flag that may have a value, whose name is "--sim{default}" in CLI11.
bool takes_value(const CLI::Option& option) {
  return option.get_items_expected_max() > 0 ||
         option.get_name(false, true).find('{') != std::string::npos;
}

// What stands for the value: the words that it may be, else the name that it was given, else a word
// for its type.
std::string value_of(const CLI::Option& option) {
  if (!takes_value(option)) return "";
  if (const auto choices = choices_of(option); !choices.empty()) {
    return CLI::detail::join(choices, "|");
  }
  const std::string type = option.get_type_name();
  const std::string word = type.substr(0, type.find(':'));
  if (word == "UINT" || word == "INT") return "N";
  if (word == "FLOAT") return "X";
  return word.empty() || word == "TEXT" ? "VALUE" : word;
}

// "1 to 16" of a value that is checked to be within; empty: it is not. CLI11 has "UINT:INT in [1 -
// 16]".
std::string range_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.rfind(" in ["), between = type.rfind(" - ");
  if (open == std::string::npos || between == std::string::npos) return "";
  return type.substr(open + 5, between - open - 5) + " to " +
         type.substr(between + 3, type.size() - between - 4);
}

// `text` in lines that fit, behind `begin` and in the columns behind it. A paragraph that begins
// with blanks has its further lines two behind those.
std::string behind(const std::string& begin, const std::string& text) {
  const size_t indent = begin.size();
  std::string out;
  for (const std::string& paragraph : CLI::detail::split(text, '\n')) {
    const size_t own = std::min(paragraph.find_first_not_of(' '), paragraph.size());
    const std::string line = std::string(indent, ' ') + paragraph;
    out += command::wrapped(line, kHelpColumns, indent + (own > 0 ? own + 2 : 0)) + '\n';
  }
  return out.replace(0, indent, begin);
}

// CLI11's help in lines that fit, in the words of the manual pages.
class Help : public CLI::Formatter {
 public:
  std::string make_description(const CLI::App* app) const override {
    return behind("", app->get_description());
  }
  std::string make_option_name(const CLI::Option* option, bool positional) const override {
    if (!positional) return CLI::detail::join(names_of(*option), ", ");
    std::string name = option->get_name(true, false);
    for (char& c : name) {
      if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
    }
    return name;
  }
  std::string make_option_opts(const CLI::Option* option) const override {
    const std::string value = value_of(*option);
    if (value.empty()) return "";
    return option->get_items_expected_min() > 0 ? " " + value : "[=" + value + "]";
  }
  std::string make_option_desc(const CLI::Option* option) const override {
    std::string what = option->get_description();
    if (const std::string range = range_of(*option); !range.empty()) what += "; " + range;
    if (option->get_required() && !option->get_positional()) what += "; it must be given";
    for (const CLI::Option* other : option->get_needs()) what += "; with " + other->get_name();
    for (const CLI::Option* other : option->get_excludes()) {
      what += "; not with " + names_of(*other).front();
    }
    return what;
  }
  std::string make_option(const CLI::Option* option, bool positional) const override {
    std::string line = "  " + make_option_name(option, positional);
    if (!positional) line += make_option_opts(option);
    return row(std::move(line), make_option_desc(option));
  }
  std::string make_subcommand(const CLI::App* command) const override {
    return row("  " + command->get_name(), command->get_description());
  }

 private:
  static std::string row(std::string line, const std::string& what) {
    if (what.empty()) return line + '\n';
    const bool fits = line.size() + 2 <= kHelpIndent;
    const std::string above = fits ? "" : std::exchange(line, "") + '\n';
    line.resize(kHelpIndent, ' ');
    return above + behind(line, what);
  }
};

nlohmann::ordered_json describe_option(const CLI::Option& option) {
  return {{"names", names_of(option)},
          {"positional", option.get_positional()},
          {"what", option.get_description()},
          {"value", value_of(option)},
          {"takes_value", takes_value(option)},
          {"needs_value", option.get_items_expected_min() > 0},
          {"several", option.get_items_expected_max() > 1 ||
                          option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll},
          {"required", option.get_required()},
          {"choices", choices_of(option)}};
}

nlohmann::ordered_json describe_app(const CLI::App& app) {
  nlohmann::ordered_json options = nlohmann::json::array(), commands = nlohmann::json::array();
  for (const CLI::Option* option : app.get_options()) {
    if (!option->get_group().empty()) options.push_back(describe_option(*option));
  }
  for (const CLI::App* command : app.get_subcommands({}))
    commands.push_back(describe_app(*command));
  return {{"name", app.get_name()},
          {"what", app.get_description()},
          {"options", std::move(options)},
          {"commands", std::move(commands)}};
}

}  // namespace

Option Option::required() const {
  option_->required();
  return *this;
}

Option Option::integer_range(int64_t low, int64_t high) const {
  option_->check(CLI::Range(low, high));
  return *this;
}

Option Option::range(double low, double high) const {
  option_->check(CLI::Range(low, high));
  return *this;
}

Option Option::one_of(std::initializer_list<const char*> words) const {
  option_->check(CLI::IsMember(std::vector<std::string>(words.begin(), words.end())));
  return *this;
}

Option Option::repeated() const {
  option_->expected(1)->allow_extra_args(false)->multi_option_policy(
      CLI::MultiOptionPolicy::TakeAll);
  return *this;
}

Option Option::optional_value(std::string otherwise) const {
  option_->expected(0, 1)->default_str(std::move(otherwise));
  return *this;
}

Option Option::excludes(Option other) const {
  option_->excludes(other.option_);
  return *this;
}

Option Option::needs(Option other) const {
  option_->needs(other.option_);
  return *this;
}

Option Option::value_name(std::string name) const {
  option_->type_name(std::move(name));
  return *this;
}

Option Option::hidden() const {
  option_->group("");
  return *this;
}

Option::operator bool() const { return option_->count() > 0; }

CommandLine::CommandLine(std::string description, std::string name)
    : owned_(std::make_unique<CLI::App>(std::move(description), std::move(name))),
      app_(owned_.get()) {
  app_->formatter(std::make_shared<Help>());
}

CommandLine::CommandLine(CLI::App* app) : app_(app) {}

CommandLine::~CommandLine() = default;

template <typename T>
Option CommandLine::option(std::string names, T& value, std::string what) {
  return Option(app_->add_option(std::move(names), value, std::move(what)));
}
template Option CommandLine::option(std::string, std::string&, std::string);
template Option CommandLine::option(std::string, std::vector<std::string>&, std::string);
template Option CommandLine::option(std::string, int&, std::string);
template Option CommandLine::option(std::string, uint32_t&, std::string);
template Option CommandLine::option(std::string, uint64_t&, std::string);
template Option CommandLine::option(std::string, double&, std::string);

Option CommandLine::flag(std::string names, bool& value, std::string what) {
  return Option(app_->add_flag(std::move(names), value, std::move(what)));
}

Option CommandLine::flag(std::string names, std::string& value, std::string what) {
  return Option(app_->add_flag(std::move(names), value, std::move(what)));
}

void CommandLine::version(std::string text) {
  for (const auto& command : commands_) command->version(text);
  app_->set_version_flag("--version", std::move(text));
}

CommandLine& CommandLine::command(std::string name, std::string what) {
  CLI::App* app = app_->add_subcommand(std::move(name), std::move(what));
  commands_.push_back(std::unique_ptr<CommandLine>(new CommandLine(app)));
  return *commands_.back();
}

void CommandLine::require_command() { app_->require_subcommand(1); }

bool CommandLine::given() const { return app_->parsed(); }

std::optional<CommandLine::Stop> CommandLine::parse(const std::vector<std::string>& words) {
  if (words.size() == 1 && words[0] == kDescribeWord) {
    return Stop{false, describe_app(*app_).dump(1) + "\n"};
  }
  try {
    app_->parse(std::vector<std::string>(words.rbegin(), words.rend()));  // it takes them reversed
    return std::nullopt;
  } catch (const CLI::CallForHelp&) {
    return Stop{false, app_->help()};
  } catch (const CLI::CallForVersion& version) {
    return Stop{false, std::string(version.what()) + "\n"};
  } catch (const CLI::ParseError& error) {
    return Stop{true, error.what()};
  }
}

bool CommandLine::takes_value(std::string_view word) const {
  const CLI::Option* option = app_->get_option_no_throw(std::string(word));
  return option != nullptr && option->get_items_expected_max() > 0;
}

size_t CommandLine::given_count() const { return app_->parse_order().size(); }

std::string CommandLine::short_name() const {
  const std::string& name = app_->get_name();
  return name.substr(name.find(' ') + 1);
}

}  // namespace lull
