// The tree of arguments of the command line: what may be said, what was said, and how it is shown.
#ifndef STANCT_ARGUMENTS_HPP
#define STANCT_ARGUMENTS_HPP

#include <functional>
#include <initializer_list>
#include <ostream>
#include <string>
#include <variant>
#include <vector>

namespace stan::callbacks {
class writer;
class structured_writer;
}  // namespace stan::callbacks

namespace stanct {

using Value = std::variant<bool, long long, double, std::string>;

// A category holds children; a choice selects one of its children; a leaf holds a value; a word is
// an alternative of a choice with nothing more to say, which listings leave out.
class Argument {
 public:
  using Check = std::function<bool(const Value&)>;

  static Argument category(std::string name, std::string about,
                           std::vector<Argument> children);
  static Argument word(std::string name, std::string about);
  static Argument choice(std::string name, std::string about, std::string standard,
                         std::vector<Argument> alternatives);
  static Argument leaf(std::string name, std::string about, Value standard,
                       std::string valid = "All",
                       Check accepts = [](const Value&) { return true; });

  const std::string& name() const { return name_; }

  // The child of this name; throws std::logic_error where the tree has none.
  const Argument& operator[](const std::string& name) const;
  Argument& operator[](const std::string& name);

  bool flag() const { return std::get<bool>(value_); }
  double real() const { return std::get<double>(value_); }
  int integer() const { return static_cast<int>(std::get<long long>(value_)); }
  long long whole() const { return std::get<long long>(value_); }
  // The value of a text, and the selected alternative of a choice.
  const std::string& text() const { return std::get<std::string>(value_); }
  bool is(const std::string& alternative) const { return text() == alternative; }
  bool is_standard() const { return value_ == standard_; }

  void set(Value value) { value_ = std::move(value); }
  // What replaces the standard value in listings: a seed drawn from the clock.
  void show_as(std::string shown) { shown_ = std::move(shown); }

  void print(stan::callbacks::writer& out, int depth = 0) const;
  void print(stan::callbacks::structured_writer& out) const;
  void help(std::ostream& out, int depth, bool recurse) const;

 private:
  friend class Parser;
  enum class Kind { category, word, choice, leaf };

  bool has_value() const { return kind_ == Kind::choice || kind_ == Kind::leaf; }

  Argument(Kind kind, std::string name, std::string about);

  Argument* find(const std::string& name);
  bool accept(const std::string& word);
  void paths_to(const std::string& name, const std::string& prefix,
                std::vector<std::string>& paths) const;
  std::string type() const;
  std::string shown() const;

  Kind kind_;
  std::string name_, about_, valid_, shown_;
  Value value_, standard_;
  Check accepts_;
  std::vector<Argument> children_;
};

enum class Parsed { run, stop, wrong };

// Reads the words of a command line into a tree. Words descend greedily: a word that the current
// argument does not know is offered to the argument above it.
class Parser {
 public:
  Parser(Argument& tree, std::ostream& info, std::ostream& errors)
      : tree_(tree), info_(info), errors_(errors) {}

  // `stop` after help or info was shown; `wrong` after the mistake was told.
  Parsed parse(int count, const char* const* words);

 private:
  bool descend(Argument& category);
  bool take(Argument& argument);
  bool helped(const Argument& argument);
  void usage(const std::string& program);
  void tell_misplaced(const std::string& word);

  Argument& tree_;
  std::ostream& info_;
  std::ostream& errors_;
  std::vector<std::string> words_;
  std::size_t next_ = 0;
  bool stopped_ = false;
};

// Everything that a model's command line understands.
Argument command_line();

}  // namespace stanct

#endif
