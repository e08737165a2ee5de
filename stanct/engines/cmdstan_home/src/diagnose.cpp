// Checks of the chains in Stan CSV files: tree depth, divergences, E-BFMI, effective sizes, R-hat.
#include "fits.hpp"

#include <algorithm>
#include <iomanip>
#include <iostream>

namespace {

constexpr double max_rhat = 1.01;
constexpr double min_ess_per_draw = 0.001;
constexpr double min_ebfmi = 0.3;

class Report {
 public:
  void check(const std::string& title, bool good, const std::string& satisfied,
             const std::string& problem) {
    std::cout << title << '\n' << (good ? satisfied : problem) << "\n\n";
    clean_ &= good;
  }
  void check_names(const std::vector<std::string>& bad, const std::string& satisfied,
                   const std::string& problem) {
    std::cout << (bad.empty() ? satisfied : problem) << '\n';
    for (const auto& name : bad) std::cout << (&name == &bad.front() ? "  " : ", ") << name;
    std::cout << (bad.empty() ? "\n" : "\n\n");
    clean_ &= bad.empty();
  }
  void end() const {
    std::cout << (clean_ ? "Processing complete, no problems detected." : "Processing complete.")
              << std::endl;
  }

 private:
  bool clean_ = true;
};

std::string share(int count, int total) {
  std::stringstream text;
  text << std::fixed << std::setprecision(2) << count << " of " << total << " ("
       << 100.0 * count / total << "%)";
  return text.str();
}

// Betancourt's energy fraction of one chain (column of energies).
double ebfmi(const Eigen::VectorXd& energy) {
  const Eigen::Index n = energy.size();
  const double steps = (energy.tail(n - 1) - energy.head(n - 1)).squaredNorm();
  return steps / (energy.array() - energy.mean()).square().sum();
}

void diagnose(const std::vector<std::string>& paths) {
  const auto files = stanct::read_chains(paths);
  const stan::mcmc::chainset chains(files);
  const int draws = chains.num_samples() * chains.num_chains();
  const int limit = files.front().metadata.max_depth;
  Report report;
  std::vector<std::string> low_ess, high_rhat;
  for (int column = 0; column < chains.num_params(); ++column) {
    const auto& name = chains.param_name(column);
    const Eigen::MatrixXd values = chains.samples(column);
    if (name == "treedepth__") {
      const int deep = (values.array() >= limit).count();
      report.check("Checking sampler transitions treedepth.", deep == 0,
                   "Treedepth satisfactory for all transitions.",
                   share(deep, draws) + " transitions hit the maximum treedepth limit of "
                       + std::to_string(limit) + ", or 2^" + std::to_string(limit)
                       + " leapfrog steps.\nTrajectories that are prematurely terminated due to "
                         "this limit will result in slow exploration.\n"
                         "For optimal performance, increase this limit.");
    } else if (name == "divergent__") {
      const int divergent = values.sum();
      report.check("Checking sampler transitions for divergences.", divergent == 0,
                   "No divergent transitions found.",
                   share(divergent, draws)
                       + " transitions ended with a divergence.\nHMC does not fully explore the "
                         "posterior. Try adapt delta closer to 1; if divergences\nremain, "
                         "reparameterize the model.");
    } else if (name == "energy__") {
      double least = std::numeric_limits<double>::infinity();
      for (Eigen::Index chain = 0; chain < values.cols(); ++chain)
        least = std::min(least, ebfmi(values.col(chain)));
      report.check("Checking E-BFMI - sampler transitions HMC potential energy.",
                   least >= min_ebfmi, "E-BFMI satisfactory.",
                   "The E-BFMI, " + std::to_string(least)
                       + ", is below the nominal threshold of 0.30: HMC may have trouble "
                         "exploring\nthe target distribution. Reparameterize the model.");
    } else if (!stanct::is_internal(name)) {
      const auto [bulk, tail] = chains.split_rank_normalized_ess(column);
      if (std::min(bulk, tail) / draws < min_ess_per_draw) low_ess.push_back(name);
      const auto [rhat_bulk, rhat_tail] = chains.split_rank_normalized_rhat(column);
      if (std::max(rhat_bulk, rhat_tail) > max_rhat) high_rhat.push_back(name);
    }
  }
  report.check_names(
      low_ess, "Rank-normalized split effective sample size satisfactory for all parameters.",
      "The following parameters had fewer than 0.001 effective draws per transition:");
  report.check_names(high_rhat,
                     "Rank-normalized split R-hat values satisfactory for all parameters.",
                     "The following parameters had rank-normalized split R-hat greater than 1.01:");
  report.end();
}

}  // namespace

int main(int count, const char* words[]) {
  if (count == 1) {
    std::cout << "USAGE:  diagnose <filename 1> [<filename 2> ... <filename N>]" << std::endl;
    return 0;
  }
  try {
    diagnose(std::vector<std::string>(words + 1, words + count));
    return 0;
  } catch (const std::exception& error) {
    std::cout << error.what() << std::endl;
    return 1;
  }
}
