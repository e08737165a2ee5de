// What the flags of a build change in the command line. Only this is compiled again for each of
// them; STAN_THREADS alone, which changes how objects look in memory, asks for all parts.
#ifndef STANCT_FLAGS_HPP
#define STANCT_FLAGS_HPP

#include <ostream>
#include <string>
#include <utility>
#include <vector>

namespace stanct {

bool has_opencl();

// Does nothing in a build without OpenCL.
void select_opencl_device(int platform, int device);

// Names and values for the headers of output files; none without OpenCL or without a device.
std::vector<std::pair<std::string, std::string>> opencl_device();

// `./model info`: the version of Stan and the flags of this build.
void print_info(std::ostream& out);

}  // namespace stanct

#endif
