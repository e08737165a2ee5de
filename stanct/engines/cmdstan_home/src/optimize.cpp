// The mode, and draws from the Gaussian around it.
#include "session.hpp"

#include <stan/services/optimize/bfgs.hpp>
#include <stan/services/optimize/laplace_sample.hpp>
#include <stan/services/optimize/lbfgs.hpp>
#include <stan/services/optimize/newton.hpp>

#include <boost/algorithm/string/split.hpp>

#include <stdexcept>

namespace stanct {

namespace {

namespace service = stan::services::optimize;

template <bool jacobian>
int maximize(const Session& s) {
  using Model = stan::model::model_base;
  const auto& optimize = s.method();
  const auto& algorithm = optimize["algorithm"];
  const int iterations = optimize["iter"].integer();
  const bool save = optimize["save_iterations"].flag();
  auto& ignored = s.ignored_inits[0];
  if (algorithm.is("newton"))
    return service::newton<Model, jacobian>(s.model, *s.inits[0], s.seed, s.id, s.init_radius,
                                            iterations, save, s.interrupt, s.logger, ignored,
                                            s.draws[0]);
  const auto& search = algorithm[algorithm.text()];
  const auto value = [&search](const char* name) { return search[name].real(); };
  if (algorithm.is("bfgs"))
    return service::bfgs<Model, jacobian>(
        s.model, *s.inits[0], s.seed, s.id, s.init_radius, value("init_alpha"), value("tol_obj"),
        value("tol_rel_obj"), value("tol_grad"), value("tol_rel_grad"), value("tol_param"),
        iterations, save, s.refresh, s.interrupt, s.logger, ignored, s.draws[0]);
  return service::lbfgs<Model, jacobian>(
      s.model, *s.inits[0], s.seed, s.id, s.init_radius, search["history_size"].integer(),
      value("init_alpha"), value("tol_obj"), value("tol_rel_obj"), value("tol_grad"),
      value("tol_rel_grad"), value("tol_param"), iterations, save, s.refresh, s.interrupt,
      s.logger, ignored, s.draws[0]);
}

// The unconstrained mode, of constrained values as JSON or of the CSV file of an optimization.
Eigen::VectorXd mode(const std::string& path, const stan::model::model_base& model) {
  std::vector<double> values;
  if (extension(path) == ".csv") {
    const Eigen::RowVectorXd row = read_draws(path, model).bottomRows(1);
    values = unconstrain(model, std::vector<double>(row.begin(), row.end()));
  } else if (extension(path) == ".json") {
    values = unconstrain(model, path);
  } else {
    throw std::invalid_argument("Mode file must be CSV or JSON, found " + path + "\n");
  }
  return Eigen::Map<Eigen::VectorXd>(values.data(), values.size());
}

}  // namespace

int optimize(const Session& s) {
  return s.method()["jacobian"].flag() ? maximize<true>(s) : maximize<false>(s);
}

int laplace(const Session& s) {
  const auto& laplace = s.method();
  const auto path = laplace["mode"].text();
  if (path.empty())
    throw std::invalid_argument(
        "Missing mode argument, cannot get laplace sample without parameter estimates theta-hat");
  const Eigen::VectorXd center = mode(path, s.model);
  const auto run = [&](auto&& laplace_sample) {
    return laplace_sample(s.model, center, laplace["draws"].integer(),
                          laplace["calculate_lp"].flag(), s.seed, s.refresh, s.interrupt,
                          s.logger, s.draws[0], s.steps[0]);
  };
  return laplace["jacobian"].flag()
             ? run([](auto&&... all) { return stan::services::laplace_sample<true>(all...); })
             : run([](auto&&... all) { return stan::services::laplace_sample<false>(all...); });
}

}  // namespace stanct
