// Names of output files, and what is read from input files.
#ifndef STANCT_FILES_HPP
#define STANCT_FILES_HPP

#include <stan/io/var_context.hpp>
#include <stan/math/prim/fun/Eigen.hpp>
#include <stan/model/model_base.hpp>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace stanct {

using Context = std::shared_ptr<stan::io::var_context>;

// The extension with its dot, or nothing.
std::string extension(const std::string& path);

// `out.csv` → `out_tag_1.csv`, `out_tag_2.csv`, …; with one file the number is left out. Only CSV
// files keep an extension of the user's own.
std::vector<std::string> numbered(const std::string& path, const std::string& tag,
                                  const std::string& type, std::size_t count, unsigned int first);

// Throws std::invalid_argument where the file cannot be written.
std::unique_ptr<std::ofstream> create(const std::string& path, int sig_figs);

// Values of a JSON or R dump file; an empty path has none.
Context read_context(const std::string& path);

// One context a chain: from `file_1.json`, … where the first of them exists, else all from `file.json`.
std::vector<Context> read_contexts(const std::string& path, std::size_t chains,
                                   unsigned int first);

// The columns of a Stan CSV file that hold the model's parameters: (draws, parameters).
Eigen::MatrixXd read_draws(const std::string& path, const stan::model::model_base& model);

// Unconstrained parameters: of values in a JSON or R dump file, of rows of constrained values.
std::vector<double> unconstrain(const stan::model::model_base& model, const std::string& path);
std::vector<double> unconstrain(const stan::model::model_base& model,
                                const std::vector<double>& constrained);

// Throws std::invalid_argument where `output` names a folder or the file `input`.
void check_output(const std::string& output, const std::string& input = "");

}  // namespace stanct

#endif
