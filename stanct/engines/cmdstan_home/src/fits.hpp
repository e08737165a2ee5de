// The chains of Stan CSV files, for the programs that summarize and diagnose them.
#ifndef STANCT_FITS_HPP
#define STANCT_FITS_HPP

#include <stan/io/stan_csv_reader.hpp>
#include <stan/mcmc/chainset.hpp>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace stanct {

inline std::vector<stan::io::stan_csv> read_chains(const std::vector<std::string>& paths) {
  std::vector<stan::io::stan_csv> chains;
  for (const auto& path : paths) {
    std::ifstream in(path);
    if (!in) throw std::invalid_argument("Cannot read input csv file: " + path + ".");
    std::stringstream complaints;
    chains.push_back(stan::io::stan_csv_reader::parse(in, &complaints));
    if (!complaints.str().empty())
      throw std::invalid_argument("Cannot parse input csv file: " + path + ": "
                                  + complaints.str());
  }
  return chains;
}

// `lp__` and the sampler's own columns.
inline bool is_internal(const std::string& name) {
  return name.size() > 2 && name.compare(name.size() - 2, 2, "__") == 0;
}

}  // namespace stanct

#endif
