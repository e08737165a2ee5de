// Posterior summaries of Stan CSV files: a table on the console, and on request a CSV file.
#include "fits.hpp"

#include <algorithm>
#include <iomanip>
#include <iostream>

namespace {

struct Options {
  int sig_figs = 2;
  std::string csv;
  std::vector<std::string> percentiles{"5", "50", "95"}, only, files;
};

const char* const usage
    = "Usage: stansummary [--sig_figs=n] [--percentiles=5,50,95] [--csv_filename=file]\n"
      "                   [--include_param=name]... stan_csv_file...\n";

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::stringstream in(text);
  for (std::string part; std::getline(in, part, ',');) {
    part.erase(std::remove(part.begin(), part.end(), ' '), part.end());
    if (!part.empty()) parts.push_back(part);
  }
  return parts;
}

Options parse(const std::vector<std::string>& words) {
  static const std::vector<std::pair<std::string, std::string>> short_names{
      {"-s", "--sig_figs"}, {"-p", "--percentiles"}, {"-c", "--csv_filename"},
      {"-i", "--include_param"}};
  Options options;
  for (std::size_t i = 0; i < words.size(); ++i) {
    std::string name = words[i];
    if (name[0] != '-') {
      options.files.push_back(name);
      continue;
    }
    std::string value;
    const auto equals = name.find('=');
    if (equals != std::string::npos) {
      value = name.substr(equals + 1);
      name.resize(equals);
    } else if (i + 1 < words.size()) {
      value = words[++i];
    }
    for (const auto& [brief, whole] : short_names)
      if (name == brief) name = whole;
    if (name == "--sig_figs") {
      options.sig_figs = std::stoi(value);
    } else if (name == "--percentiles") {
      options.percentiles = split(value);
    } else if (name == "--csv_filename") {
      options.csv = value;
    } else if (name == "--include_param") {
      stan::io::prettify_stan_csv_name(value);
      options.only.push_back(value);
    } else {
      throw std::invalid_argument("Unknown option " + name + ".\n" + usage);
    }
  }
  if (options.files.empty()) throw std::invalid_argument(usage);
  if (options.sig_figs < 1 || options.sig_figs > 18)
    throw std::invalid_argument("--sig_figs must be an integer from 1 to 18.");
  return options;
}

Eigen::VectorXd probabilities(const std::vector<std::string>& percentiles) {
  Eigen::VectorXd values(percentiles.size());
  double last = 0;
  for (std::size_t i = 0; i < percentiles.size(); ++i) {
    const double percent = std::stod(percentiles[i]);
    if (percent <= last || percent >= 100)
      throw std::invalid_argument("--percentiles must increase between 0 and 100.");
    last = percent;
    values[i] = percent / 100;
  }
  return values;
}

// Statistics of one column; effective sizes per second use the time of all chains.
std::vector<double> statistics(const stan::mcmc::chainset& chains, int column,
                               const Eigen::VectorXd& probabilities, double seconds) {
  const auto [bulk, tail] = chains.split_rank_normalized_ess(column);
  const auto [rhat_bulk, rhat_tail] = chains.split_rank_normalized_rhat(column);
  std::vector<double> row{chains.mean(column), chains.mcse_mean(column), chains.sd(column),
                          chains.med_abs_deviation(column)};
  if (probabilities.size() > 0) {
    const auto quantiles = chains.quantiles(column, probabilities);
    row.insert(row.end(), quantiles.data(), quantiles.data() + quantiles.size());
  }
  row.insert(row.end(), {bulk, tail, bulk / seconds, std::max(rhat_bulk, rhat_tail)});
  return row;
}

using Table = std::vector<std::pair<std::string, std::vector<double>>>;

void print(const std::vector<std::string>& header, const Table& table, int sig_figs) {
  std::size_t longest = 0;
  for (const auto& [name, row] : table) longest = std::max(longest, name.size());
  const int width = std::max(9, sig_figs + 7);
  std::cout << std::string(longest, ' ') << std::right;
  for (const auto& name : header) std::cout << ' ' << std::setw(width) << name;
  std::cout << '\n' << std::setprecision(sig_figs);
  for (const auto& [name, row] : table) {
    std::cout << std::left << std::setw(longest) << name << std::right;
    for (const double value : row) std::cout << ' ' << std::setw(width) << value;
    std::cout << '\n';
  }
}

void save(const std::string& path, const std::vector<std::string>& header, const Table& table,
          int sig_figs) {
  std::ofstream out(path);
  if (!out) throw std::invalid_argument("Cannot save to csv_filename: " + path + ".");
  out << "name" << std::setprecision(sig_figs);
  for (const auto& name : header) out << ",\"" << name << '"';
  for (const auto& [name, row] : table) {
    out << "\n\"" << name << '"';
    for (const double value : row) out << ',' << value;
  }
  out << '\n';
}

void summarize(const Options& options) {
  const auto probabilities_of = probabilities(options.percentiles);
  const auto files = stanct::read_chains(options.files);
  const stan::mcmc::chainset chains(files);
  double warmup = 0, sampling = 0;
  for (const auto& file : files) {
    warmup += file.timing.warmup;
    sampling += file.timing.sampling;
  }
  std::vector<std::string> header{"Mean", "MCSE", "StdDev", "MAD"};
  for (const auto& percentile : options.percentiles) header.push_back(percentile + "%");
  header.insert(header.end(), {"ESS_bulk", "ESS_tail", "ESS_bulk/s", "R_hat"});

  auto missing = options.only;
  Table table;
  for (int column = 0; column < chains.num_params(); ++column) {
    const auto& name = chains.param_name(column);
    const auto wanted = std::find(missing.begin(), missing.end(), name);
    if (!options.only.empty() && !stanct::is_internal(name) && wanted == missing.end()) continue;
    if (wanted != missing.end()) missing.erase(wanted);
    table.emplace_back(name, statistics(chains, column, probabilities_of, sampling));
  }
  if (!missing.empty())
    throw std::invalid_argument("--include_param: Unrecognized parameter " + missing.front());

  const auto& metadata = files.front().metadata;
  std::cout << "Inference for Stan model: " << metadata.model << '\n'
            << chains.num_chains() << " chains: each with iter=" << metadata.num_samples
            << "; warmup=" << metadata.num_warmup << "; thin=" << metadata.thin << "; "
            << chains.num_samples() << " iterations saved.\n\n"
            << "Warmup took " << warmup << " seconds, sampling took " << sampling
            << " seconds, all chains together.\n\n";
  print(header, table, options.sig_figs);
  std::cout << "\nSamples were drawn using " << metadata.algorithm << " with " << metadata.engine
            << ".\nESS_bulk and ESS_tail are rank-normalized effective sample sizes of the whole "
               "and of\nthe tails, R_hat the rank-normalized split scale reduction; it is close "
               "to 1 when\nchains agree.\n";
  if (!options.csv.empty()) save(options.csv, header, table, std::max(6, options.sig_figs));
}

}  // namespace

int main(int count, const char* words[]) {
  try {
    summarize(parse(std::vector<std::string>(words + 1, words + count)));
    return 0;
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
    return 1;
  }
}
