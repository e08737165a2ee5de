#include "files.hpp"

#include <stan/io/dump.hpp>
#include <stan/io/empty_var_context.hpp>
#include <stan/io/json/json_data.hpp>
#include <stan/io/stan_csv_reader.hpp>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <sstream>
#include <stdexcept>

namespace stanct {

namespace {

std::ifstream open(const std::string& path) {
  std::ifstream stream(path);
  if (!stream || std::filesystem::is_directory(path))
    throw std::invalid_argument("Can't open specified file, \"" + path + "\"\n");
  return stream;
}

// The parameters of a CSV file come first, after the columns of the algorithm (`lp__`, …).
Eigen::Index first_parameter(const std::string& path, const std::vector<std::string>& header,
                             const std::vector<std::string>& names) {
  const auto first = std::find_if(header.begin(), header.end(), [](const std::string& name) {
    return name.size() < 2 || name.compare(name.size() - 2, 2, "__") != 0;
  });
  const auto left = static_cast<std::size_t>(header.end() - first);
  if (left < names.size() || !std::equal(names.begin(), names.end(), first))
    throw std::invalid_argument("Mismatch between model and fitted_parameters csv file \"" + path
                                + "\"\n");
  return first - header.begin();
}

template <typename Transform>
std::vector<double> transformed(const stan::model::model_base& model, Transform&& transform) {
  std::vector<double> unconstrained(model.num_params_r());
  std::stringstream messages;
  try {
    transform(unconstrained, messages);
  } catch (const std::exception& error) {
    std::string told = std::string(error.what())
                       + "\nBad or missing parameter values, cannot unconstrain.";
    if (!messages.str().empty()) told += "\n\t" + messages.str();
    throw std::invalid_argument(told + "\n");
  }
  return unconstrained;
}

}  // namespace

std::string extension(const std::string& path) {
  return std::filesystem::path(path).extension().string();
}

std::vector<std::string> numbered(const std::string& path, const std::string& tag,
                                  const std::string& type, std::size_t count,
                                  unsigned int first) {
  const std::string own = extension(path);
  const std::string stem = path.substr(0, path.size() - own.size()) + tag;
  const std::string end = type == ".csv" && !own.empty() ? own : type;
  if (count == 1) return {stem + end};
  std::vector<std::string> names;
  for (std::size_t i = 0; i < count; ++i)
    names.push_back(stem + "_" + std::to_string(first + i) + end);
  return names;
}

std::unique_ptr<std::ofstream> create(const std::string& path, int sig_figs) {
  auto stream = std::make_unique<std::ofstream>(path);
  if (!*stream) throw std::invalid_argument("Cannot write the file \"" + path + "\".");
  stream->exceptions(std::ofstream::badbit);
  if (sig_figs >= 0) stream->precision(sig_figs);
  return stream;
}

Context read_context(const std::string& path) {
  if (path.empty()) return std::make_shared<stan::io::empty_var_context>();
  auto stream = open(path);
  if (extension(path) == ".json") return std::make_shared<stan::json::json_data>(stream);
  std::cerr << "Warning: file '" << path << "' is being read as an 'RDump' file.\n"
            << "\tThis format is deprecated; save the data as JSON instead.\n";
  return std::make_shared<stan::io::dump>(stream);
}

std::vector<Context> read_contexts(const std::string& path, std::size_t chains,
                                   unsigned int first) {
  if (chains == 1 || path.empty()) return std::vector<Context>(chains, read_context(path));
  const std::string type = extension(path);
  if (type != ".json" && type != ".R")
    throw std::invalid_argument("Found: \"" + path
                                + "\" but user specified files must end in .json or .R");
  const auto names = numbered(path, "", type, chains, first);
  if (!std::filesystem::exists(names.front())) {
    if (!std::filesystem::exists(path))
      throw std::invalid_argument("Can't open either of specified files, \"" + names.front()
                                  + "\" and base file \"" + path + "\"");
    return std::vector<Context>(chains, read_context(path));
  }
  std::vector<Context> contexts;
  for (const auto& name : names) contexts.push_back(read_context(name));
  return contexts;
}

Eigen::MatrixXd read_draws(const std::string& path, const stan::model::model_base& model) {
  std::vector<std::string> names;
  model.constrained_param_names(names, false, false);
  if (names.empty())
    throw std::invalid_argument("Model " + model.model_name()
                                + " has no parameters, nothing to estimate.\n");
  using Reader = stan::io::stan_csv_reader;
  stan::io::stan_csv file;
  auto stream = open(path);
  Reader::read_metadata(stream, file.metadata);
  if (!Reader::read_header(stream, file.header, false))
    throw std::invalid_argument("Error reading fitted param names from sample csv file \"" + path
                                + "\"\n");
  Reader::read_adaptation(stream, file.adaptation);
  Reader::read_samples(stream, file.samples, file.timing);
  return file.samples.middleCols(first_parameter(path, file.header, names), names.size());
}

std::vector<double> unconstrain(const stan::model::model_base& model, const std::string& path) {
  const auto context = read_context(path);
  return transformed(model, [&](std::vector<double>& unconstrained, std::ostream& messages) {
    std::vector<int> integers;
    model.transform_inits(*context, integers, unconstrained, &messages);
  });
}

std::vector<double> unconstrain(const stan::model::model_base& model,
                                const std::vector<double>& constrained) {
  return transformed(model, [&](std::vector<double>& unconstrained, std::ostream& messages) {
    model.unconstrain_array(constrained, unconstrained, &messages);
  });
}

void check_output(const std::string& output, const std::string& input) {
  namespace fs = std::filesystem;
  const auto name = fs::path(output).filename();
  if (!output.empty() && (name.empty() || name == "." || name == ".."))
    throw std::invalid_argument("Ill-formed output filename " + output + "\n");
  const auto whole = [](const std::string& path) { return fs::absolute(path).lexically_normal(); };
  if (!input.empty() && !output.empty() && whole(input) == whole(output))
    throw std::invalid_argument("Filename conflict, input file " + input
                                + " and output file names are identical, must be different.\n");
}

}  // namespace stanct
