#include "flags.hpp"

#include <stan/version.hpp>
#ifdef STAN_OPENCL
#include <stan/math/opencl/opencl_context.hpp>
#endif

namespace stanct {

bool has_opencl() {
#ifdef STAN_OPENCL
  return true;
#else
  return false;
#endif
}

#ifdef STAN_OPENCL
void select_opencl_device(int platform, int device) {
  stan::math::opencl_context.select_device(platform, device);
}
#else
void select_opencl_device(int, int) {}
#endif

std::vector<std::pair<std::string, std::string>> opencl_device() {
#ifdef STAN_OPENCL
  using stan::math::opencl_context;
  if (!opencl_context.platform().empty() && !opencl_context.device().empty())
    return {{"opencl_platform_name", opencl_context.platform()[0].getInfo<CL_PLATFORM_NAME>()},
            {"opencl_device_name", opencl_context.device()[0].getInfo<CL_DEVICE_NAME>()}};
#endif
  return {};
}

void print_info(std::ostream& out) {
  const auto yes = [&out](const char* name, bool value) {
    out << name << '=' << (value ? "true" : "false") << '\n';
  };
  out << "stan_version_major = " << stan::MAJOR_VERSION
      << "\nstan_version_minor = " << stan::MINOR_VERSION
      << "\nstan_version_patch = " << stan::PATCH_VERSION << '\n';
#ifdef STAN_THREADS
  yes("STAN_THREADS", true);
#else
  yes("STAN_THREADS", false);
#endif
  yes("STAN_MPI", false);
#ifdef STAN_OPENCL
  yes("STAN_OPENCL", true);
#else
  yes("STAN_OPENCL", false);
#endif
#ifdef STAN_NO_RANGE_CHECKS
  yes("STAN_NO_RANGE_CHECKS", true);
#else
  yes("STAN_NO_RANGE_CHECKS", false);
#endif
#ifdef STAN_CPP_OPTIMS
  yes("STAN_CPP_OPTIMS", true);
#else
  yes("STAN_CPP_OPTIMS", false);
#endif
}

}  // namespace stanct
