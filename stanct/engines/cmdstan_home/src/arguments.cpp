#include "arguments.hpp"
#include "flags.hpp"

#include <stan/callbacks/structured_writer.hpp>
#include <stan/callbacks/writer.hpp>

#include <algorithm>
#include <sstream>
#include <stdexcept>
#include <utility>

namespace stanct {

namespace {

std::pair<std::string, std::string> split(const std::string& word) {
  const auto equals = word.find('=');
  if (equals == std::string::npos) return {word, ""};
  return {word.substr(0, equals), word.substr(equals + 1)};
}

std::string as_text(const Value& value) {
  std::ostringstream out;
  out << std::boolalpha;
  std::visit([&out](const auto& held) { out << held; }, value);
  return out.str();
}

// The whole word must be a value of the type that `like` holds.
Value read(const std::string& word, const Value& like) {
  const auto whole_word = [&word](auto value, std::size_t used) {
    if (used != word.size()) throw std::invalid_argument(word);
    return Value(value);
  };
  std::size_t used = 0;
  if (std::holds_alternative<bool>(like)) {
    if (word == "1" || word == "true") return true;
    if (word == "0" || word == "false") return false;
    throw std::invalid_argument(word);
  }
  if (std::holds_alternative<long long>(like)) {
    const long long value = std::stoll(word, &used);
    return whole_word(value, used);
  }
  if (std::holds_alternative<double>(like)) {
    const double value = std::stod(word, &used);
    return whole_word(value, used);
  }
  return word;
}

std::string indent(int depth) { return std::string(2 * depth, ' '); }

}  // namespace

Argument::Argument(Kind kind, std::string name, std::string about)
    : kind_(kind), name_(std::move(name)), about_(std::move(about)) {}

Argument Argument::category(std::string name, std::string about,
                            std::vector<Argument> children) {
  Argument made(Kind::category, std::move(name), std::move(about));
  made.children_ = std::move(children);
  return made;
}

Argument Argument::word(std::string name, std::string about) {
  return Argument(Kind::word, std::move(name), std::move(about));
}

Argument Argument::choice(std::string name, std::string about, std::string standard,
                          std::vector<Argument> alternatives) {
  Argument made(Kind::choice, std::move(name), std::move(about));
  for (const auto& alternative : alternatives)
    made.valid_ += (made.valid_.empty() ? "" : ", ") + alternative.name();
  made.children_ = std::move(alternatives);
  made.value_ = made.standard_ = std::move(standard);
  return made;
}

Argument Argument::leaf(std::string name, std::string about, Value standard, std::string valid,
                        Check accepts) {
  Argument made(Kind::leaf, std::move(name), std::move(about));
  made.value_ = made.standard_ = std::move(standard);
  made.valid_ = std::move(valid);
  made.accepts_ = std::move(accepts);
  return made;
}

Argument* Argument::find(const std::string& name) {
  const auto found = std::find_if(children_.begin(), children_.end(),
                                  [&name](const auto& child) { return child.name_ == name; });
  return found == children_.end() ? nullptr : &*found;
}

Argument& Argument::operator[](const std::string& name) {
  if (auto* found = find(name)) return *found;
  throw std::logic_error("the argument " + name_ + " has no part " + name);
}

const Argument& Argument::operator[](const std::string& name) const {
  return const_cast<Argument&>(*this)[name];
}

bool Argument::accept(const std::string& word) {
  try {
    Value value = read(word, standard_);
    const bool good = kind_ == Kind::choice ? find(word) != nullptr : accepts_(value);
    if (good) value_ = std::move(value);
    return good;
  } catch (const std::logic_error&) {  // not a number, or one that no number type holds
    return false;
  }
}

std::string Argument::shown() const {
  return is_standard() && !shown_.empty() ? shown_ : as_text(value_);
}

void Argument::print(stan::callbacks::writer& out, int depth) const {
  if (kind_ == Kind::word) return;
  if (kind_ == Kind::category) {
    out(indent(depth) + name_);
    for (const auto& child : children_) child.print(out, depth + 1);
    return;
  }
  out(indent(depth) + name_ + " = " + shown() + (is_standard() ? " (Default)" : ""));
  if (kind_ == Kind::choice) (*this)[text()].print(out, depth + 1);
}

void Argument::print(stan::callbacks::structured_writer& out) const {
  if (kind_ == Kind::word) return;
  if (kind_ == Kind::leaf) {
    if (is_standard() && !shown_.empty())
      out.write(name_, shown_);
    else if (std::holds_alternative<long long>(value_))
      whole() < 0 ? out.write(name_, integer())
                  : out.write(name_, static_cast<std::size_t>(whole()));
    else
      std::visit([&](const auto& held) { out.write(name_, held); }, value_);
    return;
  }
  out.begin_record(name_);
  if (kind_ == Kind::choice) {
    out.write("value", text());
    (*this)[text()].print(out);
  } else {
    for (const auto& child : children_) child.print(out);
  }
  out.end_record();
}

std::string Argument::type() const {
  static const char* const names[] = {"boolean", "int", "double", "string"};
  return kind_ == Kind::choice ? "list element" : names[value_.index()];
}

void Argument::help(std::ostream& out, int depth, bool recurse) const {
  out << indent(depth) << name_ << (has_value() ? "=<" + type() + ">" : "") << '\n'
      << indent(depth + 1) << about_ << '\n';
  if (!has_value()) {
    if (!children_.empty()) {
      out << indent(depth + 1) << "Valid subarguments:";
      for (const auto& child : children_)
        out << (&child == &children_.front() ? " " : ", ") << child.name_;
      out << '\n';
    }
  } else {
    const auto standard = as_text(standard_);
    out << indent(depth + 1) << "Valid values: " << valid_ << '\n'
        << indent(depth + 1) << "Defaults to " << (standard.empty() ? "\"\"" : standard) << '\n';
  }
  out << '\n';
  if (recurse)
    for (const auto& child : children_) child.help(out, depth + 1, true);
}

void Argument::paths_to(const std::string& name, const std::string& prefix,
                        std::vector<std::string>& paths) const {
  if (name == name_)
    paths.push_back(prefix + name_ + (has_value() ? "=<" + type() + ">" : ""));
  const auto inner = prefix + name_ + (kind_ == Kind::choice ? "=" : " ");
  for (const auto& child : children_) child.paths_to(name, inner, paths);
}

Parsed Parser::parse(int count, const char* const* words) {
  words_.assign(words + 1, words + count);
  if (words_.empty()) {
    usage(words[0]);
    errors_ << "A method must be specified!\n";
    return Parsed::wrong;
  }
  bool has_method = false;
  std::vector<std::string> seen;
  while (next_ < words_.size()) {
    std::string& word = words_[next_];
    if (word == "help" || word == "help-all") {
      if (word == "help-all")
        for (const auto& child : tree_.children_) child.help(info_, 1, true);
      usage(words[0]);
      return Parsed::stop;
    }
    if (word == "info") {
      print_info(info_);
      return Parsed::stop;
    }
    if (!has_method && tree_["method"].find(word) != nullptr) word = "method=" + word;
    const std::string name = split(word).first;
    has_method |= name == "method";
    auto* argument = tree_.find(name);
    if (argument == nullptr || std::find(seen.begin(), seen.end(), name) != seen.end()) {
      tell_misplaced(word);
      return Parsed::wrong;
    }
    seen.push_back(name);
    if (!take(*argument)) return Parsed::wrong;
    if (stopped_) return Parsed::stop;
  }
  if (!has_method) errors_ << "A method must be specified!\n";
  return has_method ? Parsed::run : Parsed::wrong;
}

bool Parser::descend(Argument& category) {
  while (next_ < words_.size() && !stopped_) {
    if (helped(category)) return true;
    auto* child = category.find(split(words_[next_]).first);
    if (child == nullptr) return true;
    if (!take(*child)) return false;
  }
  return true;
}

bool Parser::take(Argument& argument) {
  const std::string word = split(words_[next_++]).second;
  if (!argument.has_value()) return descend(argument);
  if (next_ < words_.size() && word.empty() && helped(argument)) return true;
  if (!argument.accept(word)) {
    errors_ << word << " is not a valid value for \"" << argument.name_ << "\"\n  Valid values: "
            << argument.valid_ << '\n';
    return false;
  }
  return argument.kind_ == Argument::Kind::leaf || descend(argument[argument.text()]);
}

bool Parser::helped(const Argument& argument) {
  const auto& word = words_[next_];
  if (word != "help" && word != "help-all") return false;
  argument.help(info_, 0, word == "help-all");
  return stopped_ = true;
}

void Parser::usage(const std::string& program) {
  info_ << "Usage: " << program
        << " <method> <arguments of the method> <data, init, random, output, ...>\n\nMethods\n";
  for (const auto& method : tree_["method"].children_)
    info_ << "  " << method.name_ << ": " << method.about_ << '\n';
  info_ << "\nFurther arguments\n";
  for (const auto& child : tree_.children_)
    if (child.name_ != "method") info_ << "  " << child.name_ << ": " << child.about_ << '\n';
  info_ << "\n" << program << " help-all shows everything, " << program
        << " <method> help one method, " << program << " info this build.\n";
}

void Parser::tell_misplaced(const std::string& word) {
  errors_ << word << " is either mistyped or misplaced.\n";
  if (word == "opencl" && !has_opencl())
    errors_ << "Re-compile the model with STAN_OPENCL to use OpenCL CmdStan arguments.\n";
  std::vector<std::string> paths;
  for (const auto& child : tree_.children_) child.paths_to(split(word).first, "", paths);
  if (!paths.empty())
    errors_ << "Perhaps you meant one of the following valid configurations?\n";
  for (const auto& path : paths) errors_ << "  " << path << '\n';
}

}  // namespace stanct
