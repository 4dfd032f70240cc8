#include "coordinator/command_line/command_line.h"

#include <CLI/CLI.hpp>
#include <nlohmann/json.hpp>

namespace lull {
namespace {

// CLI11 keeps the words of one_of() only as a part of the type's name: "TEXT:{off,sampled}".
std::vector<std::string> choices_of(const CLI::Option& option) {
  const std::string type = option.get_type_name();
  const size_t open = type.find(":{"), close = type.rfind('}');
  if (open == std::string::npos || close == std::string::npos || close < open) return {};
  return CLI::detail::split(type.substr(open + 2, close - open - 2), ',');
}

nlohmann::ordered_json describe_option(const CLI::Option& option) {
  nlohmann::ordered_json names = nlohmann::json::array();
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (names.empty()) names.push_back(option.get_single_name());
  const std::string type = option.get_type_name();
  return {{"names", std::move(names)},
          {"positional", option.get_positional()},
          {"what", option.get_description()},
          {"value", type.substr(0, type.find(':'))},
          {"takes_value", option.get_items_expected_max() > 0},
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
  for (const CLI::App* command : app.get_subcommands({})) commands.push_back(describe_app(*command));
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
      app_(owned_.get()) {}

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
