// BridgeStan's C interface to one compiled Stan program (bridgestan.h of BridgeStan 2.9).
//
// It is compiled in one piece with the C++ that stanc writes, and with STAN_THREADS: every thread
// then has an autodiff tape of its own, and all functions may be called from any thread.
#include <stan/io/empty_var_context.hpp>
#include <stan/io/json/json_data.hpp>
#include <stan/services/util/create_rng.hpp>

#include <cmath>
#include <cstring>
#include <iostream>
#include <memory>
#include <random>
#include <sstream>
#include <string>
#include <vector>

namespace {

using Vector = Eigen::VectorXd;
using Input = Eigen::Map<const Vector>;
using Output = Eigen::Map<Vector>;
using Callback = void (*)(const char*, std::size_t);

Callback print_callback = nullptr;

struct Model {
  std::unique_ptr<stan::model::model_base> program;
  std::string name, info, unconstrained;
  std::string names[2][2];

  auto size() const { return static_cast<Eigen::Index>(program->num_params_r()); }
};

// What a program prints during one call.
struct Printed : std::stringstream {
  ~Printed() override {
    const auto text = str();
    if (text.empty()) return;
    if (print_callback)
      print_callback(text.data(), text.size());
    else
      std::cout << text << std::flush;
  }
};

std::string joined(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : ",") + word;
  return text;
}

// Calls `work` with the tape of this thread; an exception becomes a message and the status −1.
template <typename Work>
int guarded(char** message, Work&& work) {
  thread_local stan::math::ChainableStack tape;
  try {
    work();
    return 0;
  } catch (const std::exception& failure) {
    if (message) *message = strdup(failure.what());
  } catch (...) {
    if (message) *message = strdup("unknown exception");
  }
  return -1;
}

template <typename Point>
auto log_density(const Model& model, bool propto, bool jacobian, Point& at) {
  Printed printed;
  const auto& program = *model.program;
  if (propto)
    return jacobian ? program.log_prob_propto_jacobian(at, &printed)
                    : program.log_prob_propto(at, &printed);
  return jacobian ? program.log_prob_jacobian(at, &printed) : program.log_prob(at, &printed);
}

double gradient(const Model& model, bool propto, bool jacobian, const Vector& point,
                Vector& slope) {
  stan::math::nested_rev_autodiff nested;
  Eigen::Matrix<stan::math::var, Eigen::Dynamic, 1> at(point);
  stan::math::var value = log_density(model, propto, jacobian, at);
  value.grad();
  slope = at.adj();
  return value.val();
}

// The derivative of the gradient along a direction, by central differences.
Vector curvature(const Model& model, bool propto, bool jacobian, const Vector& point,
                 const Vector& direction) {
  const double step = 1e-5 / std::max(1.0, direction.norm());
  Vector above, below;
  gradient(model, propto, jacobian, point + step * direction, above);
  gradient(model, propto, jacobian, point - step * direction, below);
  return (above - below) / (2 * step);
}

void unconstrain(const Model& model, const char* json, Vector& point) {
  std::istringstream stream{std::string(json)};
  stan::json::json_data values(stream);
  Printed printed;
  model.program->transform_inits(values, point, &printed);
}

}  // namespace

extern "C" {

extern const int bs_major_version, bs_minor_version, bs_patch_version;
const int bs_major_version = BS_MAJOR, bs_minor_version = BS_MINOR, bs_patch_version = BS_PATCH;

void bs_set_print_callback(Callback callback, char**) { print_callback = callback; }

void bs_free_error_msg(char* message) { std::free(message); }

Model* bs_model_construct(const char* data, unsigned int seed, char** message) {
  auto model = std::make_unique<Model>();
  const int status = guarded(message, [&] {
    std::unique_ptr<stan::io::var_context> context
        = std::make_unique<stan::io::empty_var_context>();
    if (data && *data) {
      std::istringstream stream{std::string(data)};
      context = std::make_unique<stan::json::json_data>(stream);
    }
    Printed printed;
    model->program.reset(&new_model(*context, seed, &printed));
    model->name = model->program->model_name();
    for (const auto& line : model->program->model_compile_info()) model->info += line + "\n";
    std::vector<std::string> names;
    model->program->unconstrained_param_names(names, false, false);
    model->unconstrained = joined(names);
    for (int transformed : {0, 1})
      for (int generated : {0, 1}) {
        names.clear();
        model->program->constrained_param_names(names, transformed, generated);
        model->names[transformed][generated] = joined(names);
      }
  });
  return status == 0 ? model.release() : nullptr;
}

void bs_model_destruct(Model* model) { delete model; }

const char* bs_name(const Model* model) { return model->name.c_str(); }

const char* bs_model_info(const Model* model) { return model->info.c_str(); }

const char* bs_param_names(const Model* model, bool transformed, bool generated) {
  return model->names[transformed][generated].c_str();
}

const char* bs_param_unc_names(const Model* model) { return model->unconstrained.c_str(); }

int bs_param_num(const Model* model, bool transformed, bool generated) {
  const auto& names = model->names[transformed][generated];
  return names.empty() ? 0 : 1 + static_cast<int>(std::count(names.begin(), names.end(), ','));
}

int bs_param_unc_num(const Model* model) { return static_cast<int>(model->size()); }

int bs_log_density(const Model* model, bool propto, bool jacobian, const double* point,
                   double* value, char** message) {
  return guarded(message, [&] {
    Vector slope;
    // With propto, constants are known only where parameters are variables of the tape.
    if (propto) {
      *value = gradient(*model, propto, jacobian, Input(point, model->size()), slope);
    } else {
      Vector at = Input(point, model->size());
      *value = log_density(*model, propto, jacobian, at);
    }
  });
}

int bs_log_density_gradient(const Model* model, bool propto, bool jacobian, const double* point,
                            double* value, double* slopes, char** message) {
  return guarded(message, [&] {
    Vector slope;
    *value = gradient(*model, propto, jacobian, Input(point, model->size()), slope);
    Output(slopes, model->size()) = slope;
  });
}

int bs_log_density_hessian_vector_product(const Model* model, bool propto, bool jacobian,
                                          const double* point, const double* direction,
                                          double* value, double* product, char** message) {
  return guarded(message, [&] {
    const Vector at = Input(point, model->size());
    Vector slope;
    *value = gradient(*model, propto, jacobian, at, slope);
    Output(product, model->size())
        = curvature(*model, propto, jacobian, at, Input(direction, model->size()));
  });
}

int bs_log_density_hessian(const Model* model, bool propto, bool jacobian, const double* point,
                           double* value, double* slopes, double* curvatures, char** message) {
  return guarded(message, [&] {
    const auto size = model->size();
    const Vector at = Input(point, size);
    Vector slope;
    *value = gradient(*model, propto, jacobian, at, slope);
    Output(slopes, size) = slope;
    Eigen::MatrixXd second(size, size);
    for (Eigen::Index k = 0; k < size; ++k)
      second.col(k) = curvature(*model, propto, jacobian, at, Vector::Unit(size, k));
    Eigen::Map<Eigen::MatrixXd>(curvatures, size, size) = (second + second.transpose()) / 2;
  });
}

stan::rng_t* bs_rng_construct(unsigned int seed, char** message) {
  stan::rng_t* made = nullptr;
  guarded(message, [&] { made = new stan::rng_t(stan::services::util::create_rng(seed, 0)); });
  return made;
}

void bs_rng_destruct(stan::rng_t* rng) { delete rng; }

int bs_param_constrain(const Model* model, bool transformed, bool generated, const double* point,
                       double* values, stan::rng_t* rng, char** message) {
  return guarded(message, [&] {
    if (generated && !rng) throw std::invalid_argument("Generated quantities need an rng.");
    auto unused = stan::services::util::create_rng(0, 0);
    Vector at = Input(point, model->size()), found;
    Printed printed;
    model->program->write_array(rng ? *rng : unused, at, found, transformed, generated, &printed);
    Output(values, found.size()) = found;
  });
}

int bs_param_unconstrain(const Model* model, const double* values, double* point,
                         char** message) {
  return guarded(message, [&] {
    Vector found(model->size());
    Printed printed;
    model->program->unconstrain_array(Input(values, bs_param_num(model, false, false)), found,
                                      &printed);
    Output(point, model->size()) = found;
  });
}

int bs_param_unconstrain_json(const Model* model, const char* json, double* point,
                              char** message) {
  return guarded(message, [&] {
    Vector found(model->size());
    unconstrain(*model, json, found);
    Output(point, model->size()) = found;
  });
}

int bs_param_initialize(const Model* model, const char* json, stan::rng_t* rng, double radius,
                        int tries, bool jacobian, double* point, char** message) {
  return guarded(message, [&] {
    Vector at(model->size()), slope;
    const bool given = json && *json;
    if (given) unconstrain(*model, json, at);
    std::uniform_real_distribution<double> uniform(-radius, radius);
    for (int attempt = 0; attempt < (given ? 1 : tries); ++attempt) {
      if (!given)
        for (auto& value : at) value = uniform(*rng);
      try {
        const double value = gradient(*model, true, jacobian, at, slope);
        if (std::isfinite(value) && slope.allFinite()) {
          Output(point, model->size()) = at;
          return;
        }
      } catch (const std::domain_error&) {
      }
    }
    throw std::domain_error("No point with a finite log density was found.");
  });
}
}
