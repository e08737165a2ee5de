// Markov chain Monte Carlo: NUTS, static HMC, and parameters that stay where they are.
#include "session.hpp"

#include <stan/services/sample/fixed_param.hpp>
#include <stan/services/sample/hmc_nuts_dense_e.hpp>
#include <stan/services/sample/hmc_nuts_dense_e_adapt.hpp>
#include <stan/services/sample/hmc_nuts_diag_e.hpp>
#include <stan/services/sample/hmc_nuts_diag_e_adapt.hpp>
#include <stan/services/sample/hmc_nuts_unit_e.hpp>
#include <stan/services/sample/hmc_nuts_unit_e_adapt.hpp>
#include <stan/services/sample/hmc_static_dense_e.hpp>
#include <stan/services/sample/hmc_static_dense_e_adapt.hpp>
#include <stan/services/sample/hmc_static_diag_e.hpp>
#include <stan/services/sample/hmc_static_diag_e_adapt.hpp>
#include <stan/services/sample/hmc_static_unit_e.hpp>
#include <stan/services/sample/hmc_static_unit_e_adapt.hpp>
#include <stan/services/util/create_unit_e_dense_inv_metric.hpp>
#include <stan/services/util/create_unit_e_diag_inv_metric.hpp>

#include <stdexcept>

namespace stanct {

namespace {

namespace service = stan::services::sample;

struct Iterations {
  explicit Iterations(const Argument& sample)
      : warmup(sample["num_warmup"].integer()),
        samples(sample["num_samples"].integer()),
        thin(sample["thin"].integer()),
        save_warmup(sample["save_warmup"].flag()) {}
  int warmup, samples, thin;
  bool save_warmup;
};

struct Adaptation {
  explicit Adaptation(const Argument& adapt)
      : engaged(adapt["engaged"].flag()),
        delta(adapt["delta"].real()),
        gamma(adapt["gamma"].real()),
        kappa(adapt["kappa"].real()),
        t0(adapt["t0"].real()),
        init_buffer(adapt["init_buffer"].integer()),
        term_buffer(adapt["term_buffer"].integer()),
        window(adapt["window"].integer()) {}
  bool engaged;
  double delta, gamma, kappa, t0;
  unsigned int init_buffer, term_buffer, window;
};

// One inverse metric a chain: the user's, or the identity.
std::vector<Context> inverse_metrics(const Session& s, const Argument& hmc) {
  const std::string path = hmc["metric_file"].text();
  if (!path.empty()) return read_contexts(path, s.chains, s.id);
  namespace util = stan::services::util;
  const std::size_t size = s.model.num_params_r();
  Context identity;
  if (hmc["metric"].is("dense_e"))
    identity = std::make_shared<stan::io::array_var_context>(
        util::create_unit_e_dense_inv_metric(size));
  else
    identity = std::make_shared<stan::io::array_var_context>(
        util::create_unit_e_diag_inv_metric(size));
  return std::vector<Context>(s.chains, identity);
}

int nuts(const Session& s, const Iterations& n, const Adaptation& a, const Argument& hmc) {
  const double step = hmc["stepsize"].real(), jitter = hmc["stepsize_jitter"].real();
  const int depth = hmc["engine"]["nuts"]["max_depth"].integer();
  if (hmc["metric"].is("unit_e"))
    return a.engaged
               ? service::hmc_nuts_unit_e_adapt(
                   s.model, s.chains, s.inits, s.seed, s.id, s.init_radius, n.warmup, n.samples,
                   n.thin, n.save_warmup, s.refresh, step, jitter, depth, a.delta, a.gamma,
                   a.kappa, a.t0, s.interrupt, s.logger, s.ignored_inits, s.draws, s.dynamics,
                   s.metrics)
               : service::hmc_nuts_unit_e(s.model, s.chains, s.inits, s.seed, s.id,
                                          s.init_radius, n.warmup, n.samples, n.thin,
                                          n.save_warmup, s.refresh, step, jitter, depth,
                                          s.interrupt, s.logger, s.ignored_inits, s.draws,
                                          s.dynamics);
  const auto metrics = inverse_metrics(s, hmc);
  const auto adapted = [&](auto&& run) {
    return run(s.model, s.chains, s.inits, metrics, s.seed, s.id, s.init_radius, n.warmup,
               n.samples, n.thin, n.save_warmup, s.refresh, step, jitter, depth, a.delta, a.gamma,
               a.kappa, a.t0, a.init_buffer, a.term_buffer, a.window, s.interrupt, s.logger,
               s.ignored_inits, s.draws, s.dynamics, s.metrics);
  };
  const auto fixed = [&](auto&& run) {
    return run(s.model, s.chains, s.inits, metrics, s.seed, s.id, s.init_radius, n.warmup,
               n.samples, n.thin, n.save_warmup, s.refresh, step, jitter, depth, s.interrupt,
               s.logger, s.ignored_inits, s.draws, s.dynamics);
  };
  if (hmc["metric"].is("dense_e")) {
    if (a.engaged)
      return adapted([](auto&&... all) { return service::hmc_nuts_dense_e_adapt(all...); });
    return fixed([](auto&&... all) { return service::hmc_nuts_dense_e(all...); });
  }
  if (a.engaged)
    return adapted([](auto&&... all) { return service::hmc_nuts_diag_e_adapt(all...); });
  return fixed([](auto&&... all) { return service::hmc_nuts_diag_e(all...); });
}

int static_hmc(const Session& s, const Iterations& n, const Adaptation& a, const Argument& hmc) {
  const double step = hmc["stepsize"].real(), jitter = hmc["stepsize_jitter"].real();
  const double time = hmc["engine"]["static"]["int_time"].real();
  auto& ignored = s.ignored_inits[0];
  if (hmc["metric"].is("unit_e"))
    return a.engaged
               ? service::hmc_static_unit_e_adapt(
                   s.model, *s.inits[0], s.seed, s.id, s.init_radius, n.warmup, n.samples, n.thin,
                   n.save_warmup, s.refresh, step, jitter, time, a.delta, a.gamma, a.kappa, a.t0,
                   s.interrupt, s.logger, ignored, s.draws[0], s.dynamics[0])
               : service::hmc_static_unit_e(s.model, *s.inits[0], s.seed, s.id, s.init_radius,
                                            n.warmup, n.samples, n.thin, n.save_warmup,
                                            s.refresh, step, jitter, time, s.interrupt, s.logger,
                                            ignored, s.draws[0], s.dynamics[0]);
  const auto metrics = inverse_metrics(s, hmc);
  const auto adapted = [&](auto&& run) {
    return run(s.model, *s.inits[0], *metrics[0], s.seed, s.id, s.init_radius, n.warmup,
               n.samples, n.thin, n.save_warmup, s.refresh, step, jitter, time, a.delta, a.gamma,
               a.kappa, a.t0, a.init_buffer, a.term_buffer, a.window, s.interrupt, s.logger,
               ignored, s.draws[0], s.dynamics[0]);
  };
  const auto fixed = [&](auto&& run) {
    return run(s.model, *s.inits[0], *metrics[0], s.seed, s.id, s.init_radius, n.warmup,
               n.samples, n.thin, n.save_warmup, s.refresh, step, jitter, time, s.interrupt,
               s.logger, ignored, s.draws[0], s.dynamics[0]);
  };
  if (hmc["metric"].is("dense_e")) {
    if (a.engaged)
      return adapted([](auto&&... all) { return service::hmc_static_dense_e_adapt(all...); });
    return fixed([](auto&&... all) { return service::hmc_static_dense_e(all...); });
  }
  if (a.engaged)
    return adapted([](auto&&... all) { return service::hmc_static_diag_e_adapt(all...); });
  return fixed([](auto&&... all) { return service::hmc_static_diag_e(all...); });
}

}  // namespace

int sample(const Session& s) {
  const auto& sample = s.method();
  const auto& algorithm = sample["algorithm"];
  const Iterations n(sample);
  if (algorithm.is("fixed_param"))
    return service::fixed_param(s.model, s.chains, s.inits, s.seed, s.id, s.init_radius,
                                n.samples, n.thin, s.refresh, s.interrupt, s.logger,
                                s.ignored_inits, s.draws, s.dynamics);
  const Adaptation a(sample["adapt"]);
  if (a.engaged && n.warmup == 0)
    throw std::invalid_argument(
        "The number of warmup samples (num_warmup) must be greater than zero if adaptation is "
        "enabled.");
  const auto& hmc = algorithm["hmc"];
  return hmc["engine"].is("nuts") ? nuts(s, n, a, hmc) : static_hmc(s, n, a, hmc);
}

}  // namespace stanct
