// The program around every model: `path/to/model sample data file=… output file=…`.
#include "flags.hpp"
#include "session.hpp"

#include <stan/callbacks/stream_writer.hpp>
#include <stan/math/prim/core/init_threadpool_tbb.hpp>
#include <stan/math/rev/core/profiling.hpp>

#include <chrono>
#include <exception>
#include <iostream>
#include <stdexcept>

// Defined by the C++ code that stanc writes for the model.
stan::model::model_base& new_model(stan::io::var_context& data, unsigned int seed,
                                   std::ostream* messages);
stan::math::profile_map& get_stan_profile_data();

namespace stanct {

namespace {

void set_threads(const Argument& arguments) {
  const int asked = arguments["num_threads"].integer();
  const int environment = stan::math::internal::get_num_threads();
  if (environment != 1 && environment != asked)
    throw std::invalid_argument(
        "STAN_NUM_THREADS= " + std::to_string(environment) + " but argument num_threads= "
        + std::to_string(asked) + ". Please either only set one or make sure they are equal.");
  stan::math::init_threadpool_tbb(asked);
}

void select_device(const Argument& opencl) {
  const int device = opencl["device"].integer(), platform = opencl["platform"].integer();
  if ((device < 0) != (platform < 0))
    throw std::invalid_argument("Please set both device and platform OpenCL IDs.");
  if (device >= 0) select_opencl_device(platform, device);
}

void check_files(const Argument& arguments) {
  const auto& output = arguments["output"];
  const auto& chosen = arguments["method"];
  std::string input;
  if (chosen.is("generate_quantities")) input = chosen[chosen.text()]["fitted_params"].text();
  if (chosen.is("laplace")) input = chosen[chosen.text()]["mode"].text();
  if (chosen.is("log_prob")) input = chosen[chosen.text()]["constrained_params"].text();
  check_output(output["file"].text(), input);
  check_output(output["diagnostic_file"].text());
}

unsigned int choose_seed(Argument& seed) {
  unsigned int chosen = static_cast<unsigned int>(seed.whole());
  if (seed.is_standard()) {
    const auto since = std::chrono::system_clock::now().time_since_epoch();
    chosen = std::chrono::duration_cast<std::chrono::milliseconds>(since).count();
    seed.show_as(std::to_string(chosen));
  }
  return chosen;
}

void write_profile(const Argument& output) {
  const auto& profile = get_stan_profile_data();
  if (profile.empty()) return;
  const auto out = create(output["profile_file"].text(), output["sig_figs"].integer());
  *out << "name,thread_id,total_time,forward_time,reverse_time,chain_stack,no_chain_stack,"
          "autodiff_calls,no_autodiff_calls\n";
  for (const auto& [key, times] : profile)
    *out << key.first << ',' << key.second << ',' << times.get_fwd_time() + times.get_rev_time()
         << ',' << times.get_fwd_time() << ',' << times.get_rev_time() << ','
         << times.get_chain_stack_used() << ',' << times.get_nochain_stack_used() << ','
         << times.get_num_rev_passes() << ',' << times.get_num_no_AD_fwd_passes() << '\n';
}

int dispatch(const Session& session) {
  const std::string method = session.arguments["method"].text();
  if (method == "sample") return sample(session);
  if (method == "optimize") return optimize(session);
  if (method == "laplace") return laplace(session);
  if (method == "variational") return variational(session);
  if (method == "pathfinder") return pathfinder(session);
  if (method == "generate_quantities") return generate_quantities(session);
  if (method == "log_prob") return log_prob(session);
  return diagnose(session);
}

int run(Argument& arguments) {
  if (has_opencl()) select_device(arguments["opencl"]);
  set_threads(arguments);
  number_of_chains(arguments);  // refuses impossible combinations before the model is loaded
  check_files(arguments);
  const unsigned int seed = choose_seed(arguments["random"]["seed"]);
  stan::callbacks::stream_writer info(std::cout);
  for (const char* name : {"method", "id", "data", "init", "random", "output", "num_threads"})
    arguments[name].print(info);
  info();

  const auto data = read_context(arguments["data"]["file"].text());
  const std::unique_ptr<stan::model::model_base> model(&new_model(*data, seed, &std::cout));
  const int code = dispatch(Session(arguments, *model, seed));
  write_profile(arguments["output"]);
  return code;
}

}  // namespace

}  // namespace stanct

int main(int count, const char* words[]) {
  try {
    auto arguments = stanct::command_line();
    switch (stanct::Parser(arguments, std::cout, std::cerr).parse(count, words)) {
      case stanct::Parsed::stop:
        return 0;
      case stanct::Parsed::wrong:
        std::cerr << "Failed to parse command arguments, cannot run model." << std::endl;
        return 1;
      case stanct::Parsed::run:
        return stanct::run(arguments) == 0 ? 0 : 1;
    }
  } catch (const std::exception& error) {
    std::cerr << error.what() << std::endl;
  }
  return 1;
}
