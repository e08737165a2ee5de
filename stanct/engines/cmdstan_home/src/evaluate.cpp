// What is computed at given parameters: generated quantities, log density, gradient tests.
#include "session.hpp"

#include <stan/model/log_prob_grad.hpp>
#include <stan/services/diagnose/diagnose.hpp>
#include <stan/services/sample/standalone_gqs.hpp>

#include <iostream>
#include <stdexcept>

namespace stanct {

namespace {

// The points of `params_r`: one vector, or an array of them. Contexts are column-major.
std::vector<std::vector<double>> unconstrained_points(const std::string& path,
                                                      const stan::model::model_base& model) {
  const auto context = read_context(path);
  const auto values = context->vals_r("params_r");
  if (values.empty())
    throw std::invalid_argument(
        "Unconstrained parameters file has no variable 'params_r' with unconstrained parameter "
        "values!");
  const auto shape = context->dims_r("params_r");
  const std::size_t rows = shape.size() == 2 ? shape[0] : 1, columns = shape.back();
  if (columns != model.num_params_r())
    throw std::invalid_argument("Incorrect number of unconstrained parameters provided! Model has "
                                + std::to_string(model.num_params_r()) + " parameters but "
                                + std::to_string(columns) + " were found.");
  std::vector<std::vector<double>> points(rows, std::vector<double>(columns));
  for (std::size_t i = 0; i < rows; ++i)
    for (std::size_t j = 0; j < columns; ++j) points[i][j] = values[i + j * rows];
  return points;
}

std::vector<std::vector<double>> constrained_points(const std::string& path,
                                                    const stan::model::model_base& model) {
  if (extension(path) != ".csv") return {unconstrain(model, path)};
  std::vector<std::vector<double>> points;
  const Eigen::MatrixXd draws = read_draws(path, model);
  for (Eigen::Index i = 0; i < draws.rows(); ++i) {
    const Eigen::RowVectorXd row = draws.row(i);
    points.push_back(unconstrain(model, std::vector<double>(row.begin(), row.end())));
  }
  return points;
}

template <bool jacobian>
void write_gradients(const Session& s, std::vector<std::vector<double>>& points) {
  std::vector<std::string> names;
  s.model.unconstrained_param_names(names, false, false);
  std::vector<std::string> header{"lp__"};
  for (const auto& name : names) header.push_back("g_" + name);
  s.draws[0](header);
  std::vector<int> integers;
  std::vector<double> gradient;
  for (auto& point : points) {
    std::vector<double> row{
        stan::model::log_prob_grad<true, jacobian>(s.model, point, integers, gradient, &std::cout)};
    row.insert(row.end(), gradient.begin(), gradient.end());
    s.draws[0](row);
  }
}

}  // namespace

int generate_quantities(const Session& s) {
  const auto path = s.method()["fitted_params"].text();
  if (path.empty())
    throw std::invalid_argument(
        "Missing fitted_params argument, cannot run generate_quantities without fitted sample.");
  if (extension(path) != ".csv")
    throw std::invalid_argument("Fitted params file must be a CSV file.");
  std::vector<Eigen::MatrixXd> fitted;
  for (const auto& name : numbered(path, "", ".csv", s.chains, s.id))
    fitted.push_back(read_draws(name, s.model));
  return stan::services::standalone_generate(s.model, s.chains, fitted, s.seed, s.interrupt,
                                             s.logger, s.draws);
}

int log_prob(const Session& s) {
  const auto& log_prob = s.method();
  const auto free = log_prob["unconstrained_params"].text();
  const auto constrained = log_prob["constrained_params"].text();
  if (free.empty() && constrained.empty())
    throw std::invalid_argument(
        "No input parameter files provided, cannot calculate log probability density.");
  if (!free.empty() && !constrained.empty())
    throw std::invalid_argument(
        "Cannot specify both input files of both constrained and unconstrained parameter values.");
  auto points = free.empty() ? constrained_points(constrained, s.model)
                             : unconstrained_points(free, s.model);
  try {
    if (log_prob["jacobian"].flag())
      write_gradients<true>(s, points);
    else
      write_gradients<false>(s, points);
  } catch (const std::exception& error) {
    s.logger.error(std::string("Error during log_prob calculation:\n") + error.what());
    return 1;
  }
  return 0;
}

int diagnose(const Session& s) {
  const auto& gradient = s.method()["test"]["gradient"];
  return stan::services::diagnose::diagnose(
      s.model, *s.inits[0], s.seed, s.id, s.init_radius, gradient["epsilon"].real(),
      gradient["error"].real(), s.interrupt, s.logger, s.ignored_inits[0], s.draws[0]);
}

}  // namespace stanct
