#include "session.hpp"
#include "flags.hpp"

#include <stan/version.hpp>

#include <ctime>
#include <iostream>
#include <stdexcept>

namespace stanct {

namespace {

std::string now() {
  const std::time_t seconds = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S UTC", std::gmtime(&seconds));
  return text;
}

}  // namespace

unsigned int number_of_chains(const Argument& arguments) {
  const auto& method = arguments["method"];
  if (method.is("pathfinder")) return method["pathfinder"]["num_paths"].integer();
  if (method.is("generate_quantities"))
    return method["generate_quantities"]["num_chains"].integer();
  if (!method.is("sample")) return 1;
  const auto& sample = method["sample"];
  const auto& algorithm = sample["algorithm"];
  const unsigned int chains = sample["num_chains"].integer();
  if (chains > 1 && algorithm.is("hmc") && algorithm["hmc"]["engine"].is("static"))
    throw std::invalid_argument(
        "Argument 'num_chains' is unavailable for the 'static' HMC engine.");
  return chains;
}

Session::Session(const Argument& arguments, stan::model::model_base& model, unsigned int seed)
    : arguments(arguments),
      model(model),
      seed(seed),
      id(arguments["id"].integer()),
      chains(number_of_chains(arguments)),
      sig_figs(arguments["output"]["sig_figs"].integer()),
      refresh(arguments["output"]["refresh"].integer()),
      output(arguments["output"]["file"].text()),
      logger(std::cout, std::cout, std::cout, std::cerr, std::cerr),
      ignored_inits(chains) {
  std::string init = arguments["init"].text();
  try {
    init_radius = std::stod(init);
    init.clear();
  } catch (const std::logic_error&) {  // then it names a file
  }
  inits = read_contexts(init, chains, id);
  open_files();
  if (arguments["output"]["save_cmdstan_config"].flag()) write_configuration();
}

const Argument& Session::method() const {
  const auto& chosen = arguments["method"];
  return chosen[chosen.text()];
}

CsvWriter Session::csv(const std::string& path) const {
  if (path.empty()) return CsvWriter(nullptr);
  CsvWriter writer(create(path, sig_figs), "# ");
  write_header(writer, true);
  return writer;
}

JsonWriter Session::json(const std::string& path) const {
  return path.empty() ? JsonWriter(nullptr) : JsonWriter(create(path, sig_figs));
}

void Session::open_files() {
  const auto& chosen = arguments["method"];
  const bool paths = chosen.is("pathfinder");
  std::string diagnostic = arguments["output"]["diagnostic_file"].text();
  bool save_paths = true;
  if (paths) {
    save_paths = method()["save_single_paths"].flag() || !diagnostic.empty();
    if (save_paths && diagnostic.empty()) diagnostic = output;
  }
  // The draws of several paths are merged into the output file; each path has a file of its own.
  const std::string tag = paths && chains > 1 ? "_path" : "";
  const bool structured = paths || chosen.is("laplace");
  const auto names = [this, &tag](const std::string& path, const char* type, bool wanted) {
    return wanted && !path.empty() ? numbered(path, tag, type, chains, id)
                                   : std::vector<std::string>(chains);
  };
  for (const auto& name : names(output, ".csv", save_paths || chains == 1))
    draws.push_back(csv(name));
  for (const auto& name : names(diagnostic, ".csv", !structured)) {
    dynamics.emplace_back(name.empty() ? nullptr : create(name, sig_figs), "# ");
    write_header(dynamics.back(), false);
  }
  for (const auto& name : names(diagnostic, ".json", structured)) steps.push_back(json(name));
  const bool save_metric = chosen.is("sample") && method()["adapt"]["save_metric"].flag();
  if (save_metric && !method()["adapt"]["engaged"].flag())
    throw std::invalid_argument(
        "Saving the adapted metric (save_metric=1) can only be enabled when adaptation is "
        "engaged (adapt engaged=1)");
  for (const auto& name : save_metric ? numbered(output, "_metric", ".json", chains, id)
                                      : std::vector<std::string>(chains))
    metrics.push_back(json(name));
}

void Session::write_header(stan::callbacks::writer& out, bool whole) const {
  out("stan_version_major = " + stan::MAJOR_VERSION);
  out("stan_version_minor = " + stan::MINOR_VERSION);
  out("stan_version_patch = " + stan::PATCH_VERSION);
  out("model = " + model.model_name());
  if (whole) out("start_datetime = " + now());
  for (const char* name : {"method", "id", "data", "init", "random", "output", "num_threads"})
    arguments[name].print(out);
  if (!whole) return;
  if (has_opencl()) arguments["opencl"].print(out);
  for (const auto& [name, value] : opencl_device()) out(name + " = " + value);
  for (const auto& line : model.model_compile_info()) out(line);
}

void Session::write_configuration() const {
  const auto path = output.substr(0, output.size() - extension(output).size()) + "_config.json";
  auto out = json(path);
  out.begin_record();
  out.write("stan_major_version", stan::MAJOR_VERSION);
  out.write("stan_minor_version", stan::MINOR_VERSION);
  out.write("stan_patch_version", stan::PATCH_VERSION);
  out.write("model_name", model.model_name());
  out.write("start_datetime", now());
  for (const char* name : {"method", "id", "data", "init", "random", "output", "num_threads"})
    arguments[name].print(out);
  if (has_opencl()) arguments["opencl"].print(out);
  out.write("mpi_enabled", false);
  for (const auto& [name, value] : opencl_device()) out.write(name, value);
  for (const auto& line : model.model_compile_info()) {
    const auto equals = line.find(" = ");
    if (equals != std::string::npos) out.write(line.substr(0, equals), line.substr(equals + 3));
  }
  out.end_record();
}

}  // namespace stanct
