#include "coordinator/command_line/command_line.h"

#include <CLI/CLI.hpp>

namespace lull {

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
