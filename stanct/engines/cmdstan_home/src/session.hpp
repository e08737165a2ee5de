// One run of a model: its arguments, its model, and where its output goes.
#ifndef STANCT_SESSION_HPP
#define STANCT_SESSION_HPP

#include "arguments.hpp"
#include "files.hpp"

#include <stan/callbacks/interrupt.hpp>
#include <stan/callbacks/json_writer.hpp>
#include <stan/callbacks/stream_logger.hpp>
#include <stan/callbacks/unique_stream_writer.hpp>
#include <stan/callbacks/writer.hpp>
#include <stan/model/model_base.hpp>

#include <fstream>
#include <memory>
#include <string>
#include <vector>

namespace stanct {

using CsvWriter = stan::callbacks::unique_stream_writer<std::ofstream>;
using JsonWriter = stan::callbacks::json_writer<std::ofstream>;

// Chains of `sample` and `generate_quantities`, paths of `pathfinder`, 1 of all others.
unsigned int number_of_chains(const Argument& arguments);

class Session {
 public:
  // Opens the files of all chains and writes their headers.
  Session(const Argument& arguments, stan::model::model_base& model, unsigned int seed);

  // The arguments of the chosen method.
  const Argument& method() const;

  // A CSV file that begins with the header of this run; a null writer for an empty path.
  CsvWriter csv(const std::string& path) const;
  JsonWriter json(const std::string& path) const;

  const Argument& arguments;
  stan::model::model_base& model;
  const unsigned int seed, id, chains;
  const int sig_figs, refresh;
  const std::string output;
  double init_radius = 2;
  std::vector<Context> inits;

  // Mutable because Stan's services take every callback by reference.
  mutable stan::callbacks::interrupt interrupt;
  mutable stan::callbacks::stream_logger logger;
  mutable std::vector<stan::callbacks::writer> ignored_inits;
  mutable std::vector<CsvWriter> draws;
  mutable std::vector<CsvWriter> dynamics;
  mutable std::vector<JsonWriter> steps;
  mutable std::vector<JsonWriter> metrics;

 private:
  void open_files();
  void write_header(stan::callbacks::writer& out, bool whole) const;
  void write_configuration() const;
};

// The methods. Each returns the error code of Stan's service, 0 for success.
int sample(const Session& session);
int optimize(const Session& session);
int laplace(const Session& session);
int variational(const Session& session);
int pathfinder(const Session& session);
int generate_quantities(const Session& session);
int log_prob(const Session& session);
int diagnose(const Session& session);

}  // namespace stanct

#endif
