// Variational inference: ADVI and Pathfinder.
#include "session.hpp"

#include <stan/services/experimental/advi/fullrank.hpp>
#include <stan/services/experimental/advi/meanfield.hpp>
#include <stan/services/pathfinder/multi.hpp>
#include <stan/services/pathfinder/single.hpp>

#include <stdexcept>

namespace stanct {

int variational(const Session& s) {
  const auto& variational = s.method();
  const auto run = [&](auto&& advi) {
    return advi(s.model, *s.inits[0], s.seed, s.id, s.init_radius,
                variational["grad_samples"].integer(), variational["elbo_samples"].integer(),
                variational["iter"].integer(), variational["tol_rel_obj"].real(),
                variational["eta"].real(), variational["adapt"]["engaged"].flag(),
                variational["adapt"]["iter"].integer(), variational["eval_elbo"].integer(),
                variational["output_samples"].integer(), s.interrupt, s.logger,
                s.ignored_inits[0], s.draws[0], s.dynamics[0]);
  };
  namespace service = stan::services::experimental::advi;
  return variational["algorithm"].is("fullrank")
             ? run([](auto&&... all) { return service::fullrank(all...); })
             : run([](auto&&... all) { return service::meanfield(all...); });
}

int pathfinder(const Session& s) {
  namespace service = stan::services::pathfinder;
  const auto& pathfinder = s.method();
  const auto real = [&pathfinder](const char* name) { return pathfinder[name].real(); };
  const auto whole = [&pathfinder](const char* name) { return pathfinder[name].integer(); };
  if (s.model.num_params_r() == 0)
    throw std::invalid_argument("Model has 0 parameters, cannot run Pathfinder.");
  const int draws = whole("num_draws"), resampled = whole("num_psis_draws");
  if (resampled > static_cast<long long>(draws) * s.chains)
    s.logger.warn(
        "Warning: Number of PSIS draws is larger than the total number of draws returned by the "
        "single Pathfinders. This is likely unintentional and leads to re-sampling from the same "
        "draws.");
  const bool save_steps = pathfinder["save_single_paths"].flag();
  const bool log_density = pathfinder["calculate_lp"].flag();
  if (s.chains == 1) {
    const bool wanted = save_steps || !s.arguments["output"]["diagnostic_file"].text().empty();
    return service::pathfinder_lbfgs_single<false, false, stan::model::model_base>(
        s.model, *s.inits[0], s.seed, s.id, s.init_radius, whole("history_size"),
        real("init_alpha"), real("tol_obj"), real("tol_rel_obj"), real("tol_grad"),
        real("tol_rel_grad"), real("tol_param"), whole("max_lbfgs_iters"),
        whole("num_elbo_draws"), draws, wanted, s.refresh, s.interrupt, s.logger,
        s.ignored_inits[0], s.draws[0], s.steps[0], log_density);
  }
  auto merged = s.csv(numbered(s.output, "", ".csv", 1, s.id).front());
  JsonWriter no_steps;
  return service::pathfinder_lbfgs_multi<stan::model::model_base>(
      s.model, s.inits, s.seed, s.id, s.init_radius, whole("history_size"), real("init_alpha"),
      real("tol_obj"), real("tol_rel_obj"), real("tol_grad"), real("tol_rel_grad"),
      real("tol_param"), whole("max_lbfgs_iters"), whole("num_elbo_draws"), draws, resampled,
      s.chains, save_steps, s.refresh, s.interrupt, s.logger, s.ignored_inits, s.draws, s.steps,
      merged, no_steps, log_density, pathfinder["psis_resample"].flag());
}

}  // namespace stanct
