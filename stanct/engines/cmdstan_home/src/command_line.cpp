// The documented command line, as data: every argument with its default and its range.
#include "arguments.hpp"
#include "flags.hpp"

#include <stan/math/prim/core/init_threadpool_tbb.hpp>

#include <cmath>
#include <limits>

namespace stanct {

namespace {

Argument positive(const char* name, const char* about, long long standard) {
  return Argument::leaf(name, about, standard, std::string("0 < ") + name, [](const Value& value) {
    const auto whole = std::get<long long>(value);
    return 0 < whole && whole <= std::numeric_limits<int>::max();
  });
}

Argument natural(const char* name, const char* about, long long standard) {
  return Argument::leaf(name, about, standard, std::string("0 <= ") + name,
                        [](const Value& value) {
                          const auto whole = std::get<long long>(value);
                          return 0 <= whole && whole <= std::numeric_limits<int>::max();
                        });
}

Argument from_minus_one(const char* name, const char* about, long long greatest,
                        const char* valid, long long standard = -1) {
  return Argument::leaf(name, about, standard, valid, [greatest](const Value& value) {
    const auto whole = std::get<long long>(value);
    return -1 <= whole && whole <= greatest;
  });
}

Argument positive_real(const char* name, const char* about, double standard) {
  return Argument::leaf(name, about, standard, std::string("0 < ") + name,
                        [](const Value& value) { return std::get<double>(value) > 0; });
}

Argument between(const char* name, const char* about, double standard, double low, double high,
                 const char* valid) {
  return Argument::leaf(name, about, standard, valid, [low, high](const Value& value) {
    const auto real = std::get<double>(value);
    return low <= real && real <= high;
  });
}

Argument flag(const char* name, const char* about, bool standard) {
  return Argument::leaf(name, about, standard, "[0, 1, false, true]");
}

Argument file(const char* name, const char* about, const char* standard = "") {
  return Argument::leaf(name, about, std::string(standard), "Path to a file");
}

Argument empty(const char* name, const char* about) {
  return Argument::category(name, about, {});
}

Argument adaptation() {
  return Argument::category(
      "adapt", "Adaptation during warmup",
      {flag("engaged", "Adapt step size and metric?", true),
       positive_real("gamma", "Regularization scale of the step size adaptation", 0.05),
       between("delta", "Target acceptance statistic", 0.8, 0.1, std::nextafter(1.0, 0.0),
               "0.1 <= delta < 1"),
       positive_real("kappa", "Relaxation exponent", 0.75),
       positive_real("t0", "Iteration offset", 10),
       natural("init_buffer", "Iterations of the first interval, which adapts the step size", 75),
       natural("term_buffer", "Iterations of the last interval, which adapts the step size", 50),
       natural("window", "Iterations of the first interval that adapts the metric", 25),
       flag("save_metric", "Save step size and metric as JSON?", false)});
}

Argument hmc() {
  return Argument::category(
      "hmc", "Hamiltonian Monte Carlo",
      {Argument::choice(
           "engine", "How long trajectories are", "nuts",
           {Argument::category("static", "A fixed integration time",
                               {positive_real("int_time", "Integration time, default 2 pi",
                                              6.28318530717959)}),
            Argument::category("nuts", "The No-U-Turn sampler",
                               {positive("max_depth", "Maximum tree depth", 10)})}),
       Argument::choice("metric", "Geometry of the base manifold", "diag_e",
                        {Argument::word("unit_e", "Euclidean manifold with unit metric"),
                         Argument::word("diag_e", "Euclidean manifold with diagonal metric"),
                         Argument::word("dense_e", "Euclidean manifold with dense metric")}),
       file("metric_file", "Precomputed inverse metric, as JSON or R dump"),
       positive_real("stepsize", "Step size of the integrator", 1),
       between("stepsize_jitter", "Relative uniform jitter of the step size", 0, 0, 1,
               "0 <= stepsize_jitter <= 1")});
}

Argument sample() {
  return Argument::category(
      "sample", "Bayesian inference with Markov chain Monte Carlo",
      {natural("num_samples", "Number of sampling iterations", 1000),
       natural("num_warmup", "Number of warmup iterations", 1000),
       flag("save_warmup", "Write warmup draws too?", false),
       positive("thin", "Period between saved draws", 1), adaptation(),
       Argument::choice("algorithm", "Sampling algorithm", "hmc",
                        {hmc(), Argument::word("fixed_param", "Parameters stay where they are")}),
       positive("num_chains", "Number of chains", 1)});
}

std::vector<Argument> line_search() {
  return {positive_real("init_alpha", "Step of the first line search", 0.001),
          positive_real("tol_obj", "Tolerance on the change of the objective", 1e-12),
          positive_real("tol_rel_obj", "Tolerance on its relative change", 1e4),
          positive_real("tol_grad", "Tolerance on the norm of the gradient", 1e-8),
          positive_real("tol_rel_grad", "Tolerance on its relative norm", 1e7),
          positive_real("tol_param", "Tolerance on the change of the parameters", 1e-8)};
}

std::vector<Argument> limited_memory() {
  auto arguments = line_search();
  arguments.push_back(positive("history_size", "Pairs that L-BFGS keeps", 5));
  return arguments;
}

Argument optimize() {
  return Argument::category(
      "optimize", "Point estimation",
      {Argument::choice(
           "algorithm", "Optimization algorithm", "lbfgs",
           {Argument::category("bfgs", "BFGS with line search", line_search()),
            Argument::category("lbfgs", "L-BFGS with line search", limited_memory()),
            empty("newton", "Newton's method")}),
       flag("jacobian", "Include the Jacobian of the parameter transforms?", false),
       positive("iter", "Maximum number of iterations", 2000),
       flag("save_iterations", "Write every iteration?", false)});
}

Argument variational() {
  return Argument::category(
      "variational", "Variational inference (ADVI)",
      {Argument::choice("algorithm", "Family of the approximation", "meanfield",
                        {empty("meanfield", "Independent Gaussians"),
                         empty("fullrank", "One Gaussian with full covariance")}),
       positive("iter", "Maximum number of iterations", 10000),
       positive("grad_samples", "Draws for each gradient", 1),
       positive("elbo_samples", "Draws for each estimate of the ELBO", 100),
       positive_real("eta", "Step size scale", 1),
       Argument::category("adapt", "Adaptation of eta",
                          {flag("engaged", "Adapt eta?", true),
                           positive("iter", "Iterations of the adaptation", 50)}),
       positive_real("tol_rel_obj", "Relative tolerance on the ELBO", 0.01),
       positive("eval_elbo", "Iterations between estimates of the ELBO", 100),
       positive("output_samples", "Draws from the approximation to write", 1000)});
}

Argument pathfinder() {
  auto arguments = limited_memory();
  for (auto& argument :
       {positive("num_psis_draws", "Draws that importance resampling returns", 1000),
        positive("num_paths", "Number of single pathfinders", 4),
        flag("save_single_paths", "Write the draws of every path?", false),
        flag("psis_resample", "Resample the draws of all paths by Pareto-smoothed importance?",
             true),
        flag("calculate_lp", "Evaluate the log density of every draw?", true),
        positive("max_lbfgs_iters", "Maximum number of L-BFGS iterations", 1000),
        positive("num_draws", "Draws of each path", 1000),
        positive("num_elbo_draws", "Draws for each estimate of the ELBO", 25)})
    arguments.push_back(argument);
  return Argument::category("pathfinder", "Pathfinder variational inference",
                            std::move(arguments));
}

Argument laplace() {
  return Argument::category(
      "laplace", "Draws from the Laplace approximation",
      {file("mode", "The mode on the constrained scale, JSON or the CSV of an optimization"),
       flag("jacobian", "Include the Jacobian of the parameter transforms?", true),
       natural("draws", "Number of draws", 1000),
       flag("calculate_lp", "Evaluate the log density of every draw?", true)});
}

Argument log_prob() {
  return Argument::category(
      "log_prob", "Log density and gradient at given parameters",
      {file("unconstrained_params", "JSON or R dump with `params_r`, one point or several"),
       file("constrained_params", "JSON, R dump or Stan CSV on the constrained scale"),
       flag("jacobian", "Include the Jacobian of the parameter transforms?", true)});
}

Argument generate_quantities() {
  return Argument::category("generate_quantities", "Generated quantities of a fitted sample",
                            {file("fitted_params", "Stan CSV file of the fitted sample"),
                             positive("num_chains", "Number of chains", 1)});
}

Argument diagnose() {
  return Argument::category(
      "diagnose", "Model diagnostics",
      {Argument::choice("test", "Diagnostic test", "gradient",
                        {Argument::category(
                            "gradient", "Gradient against finite differences",
                            {positive_real("epsilon", "Step of the finite differences", 1e-6),
                             positive_real("error", "Error threshold", 1e-6)})})});
}

Argument threads() {
#ifdef STAN_THREADS
  const char* about = "Number of threads that the program may use";
  const char* valid = "num_threads > 0 or num_threads == -1";
  const auto accepts = [](long long count) { return count > 0 || count == -1; };
#else
  const char* about = "Number of threads; more than one needs a build with STAN_THREADS=true";
  const char* valid = "num_threads == 1";
  const auto accepts = [](long long count) { return count == 1; };
#endif
  return Argument::leaf(
      "num_threads", about, static_cast<long long>(stan::math::internal::get_num_threads()),
      valid, [accepts](const Value& value) { return accepts(std::get<long long>(value)); });
}

Argument output() {
  return Argument::category(
      "output", "Output files and messages",
      {file("file", "Output file", "output.csv"),
       file("diagnostic_file", "File of latent dynamics or of an algorithm's steps"),
       natural("refresh", "Iterations between progress messages", 100),
       from_minus_one("sig_figs", "Significant figures of the CSV files", 18,
                      "0 <= sig_figs <= 18 or -1 for the platform's own, often 6", 8),
       file("profile_file", "File of profiling times", "profile.csv"),
       flag("save_cmdstan_config", "Save all arguments and defaults as JSON?", false)});
}

}  // namespace

Argument command_line() {
  std::vector<Argument> parts{
      Argument::choice("method", "What to do (\"method=\" may be left out)", "sample",
                       {sample(), optimize(), variational(), diagnose(), generate_quantities(),
                        pathfinder(), log_prob(), laplace()}),
      natural("id", "Identifier of this process, and of its first chain", 1),
      Argument::category("data", "Input data", {file("file", "Input data file")}),
      Argument::leaf("init",
                     "x draws unconstrained initial values between -x and x, 0 sets them to 0, "
                     "anything else is a file of values",
                     std::string("2")),
      Argument::category(
          "random", "Random numbers",
          {from_minus_one("seed", "Seed of the random numbers",
                          std::numeric_limits<unsigned int>::max(),
                          "0 <= seed < 4294967296 or -1 for one from the clock")}),
      output(),
      threads()};
  if (has_opencl()) {
    const auto greatest = std::numeric_limits<int>::max();
    parts.push_back(Argument::category(
        "opencl", "OpenCL options",
        {from_minus_one("device", "Device, or -1 for that of the build", greatest, "-1 <= device"),
         from_minus_one("platform", "Platform, or -1 for that of the build", greatest,
                        "-1 <= platform")}));
  }
  return Argument::category("command", "The whole command", std::move(parts));
}

}  // namespace stanct
