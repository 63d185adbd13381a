#include "choose_device.h"

#include <tvm/ffi/error.h>

#include <cctype>

#include "cl_api.h"
#include "device.h"
#include "failure.h"

namespace adrenoc_runtime {
namespace {

constexpr size_t kMaxNumberDigits = 4;

std::string lower(std::string text) {
  for (char& letter : text) {
    letter = static_cast<char>(std::tolower(static_cast<unsigned char>(letter)));
  }
  return text;
}

bool is_number(const std::string& text) {
  return !text.empty() && text.size() <= kMaxNumberDigits &&
         text.find_first_not_of("0123456789") == text.npos;
}

bool fits(const std::string& wanted, int number, const opencl::DeviceInfo& info) {
  if (wanted.empty()) return info.has_images;
  if (is_number(wanted)) return std::stoi(wanted) == number;
  return lower(info.name + " (" + info.platform + ")").find(lower(wanted)) != std::string::npos;
}

ChosenDevice choose_opencl(const std::string& wanted) {
  std::string listed;
  int number = 0;
  for (const auto& device : opencl::all_devices()) {
    const opencl::DeviceInfo& info = device->info();
    if (fits(wanted, number, info)) {
      return {DLDevice{kDLOpenCL, number}, info.name};
    }
    listed += (listed.empty() ? "" : "; ") + std::to_string(number) + " = " + info.name;
    ++number;
  }
  const std::string missing =
      wanted.empty() ? "no OpenCL device with images" : "no OpenCL device \"" + wanted + "\"";
  throw Failure(ADRENOC_NO_DEVICE, missing + (listed.empty() ? "" : "; there is " + listed));
}

}  // namespace

ChosenDevice choose_device(const std::string& wanted, const std::string& library) {
  if (wanted == "cpu") return {DLDevice{kDLCPU, 0}, "cpu"};
  try {
    if (!library.empty()) opencl::set_library(library);
    return choose_opencl(wanted);
  } catch (const tvm::ffi::Error& error) {
    throw Failure(ADRENOC_NO_DEVICE, error.message());
  }
}

}  // namespace adrenoc_runtime
