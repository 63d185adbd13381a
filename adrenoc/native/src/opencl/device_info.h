// What one OpenCL device says of itself.
#pragma once

#include <tvm/ffi/extra/json.h>

#include <array>
#include <string>
#include <vector>

#include "opencl/cl_types.h"

namespace adrenoc_runtime::opencl {

// Sizes are in bytes, extents in texels, work sizes in work-items.
struct DeviceInfo {
  std::string name;
  std::string vendor;
  std::string platform;
  std::string version;  // "OpenCL 3.0 ..."
  std::string driver;
  std::string type;  // "gpu", "accelerator", "cpu" or "custom"
  // The newest OpenCL C that programs can be built as: major * 100 + minor * 10.
  int c_version = 0;
  std::vector<std::string> extensions;

  bool has_images = false;
  size_t image_max_width = 0;
  size_t image_max_height = 0;
  size_t image_max_layers = 0;
  cl_uint image_pitch_alignment = 0;  // in texels; 0 where the device does not say
  cl_uint image_base_alignment = 0;   // the same, of where an image of a buffer may begin
  size_t part_alignment_bytes = 0;    // of where a part of a buffer may begin; 0: it does not say
  cl_uint max_read_image_arguments = 0;
  cl_uint max_write_image_arguments = 0;

  size_t max_work_group_size = 0;
  std::array<size_t, 3> max_work_item_sizes = {1, 1, 1};
  cl_uint compute_units = 0;
  cl_uint clock_mhz = 0;
  size_t max_parameter_bytes = 0;
  cl_ulong local_memory_bytes = 0;
  cl_ulong global_memory_bytes = 0;
  cl_ulong global_cache_bytes = 0;
  cl_ulong max_allocation_bytes = 0;
  cl_ulong max_constant_bytes = 0;

  [[nodiscard]] bool has_extension(const std::string& extension) const;
  // "3.0" of "OpenCL 3.0 vendor text".
  [[nodiscard]] std::string version_number() const;
  // Platform, name and OpenCL version: what is kept for a device is kept under these.
  [[nodiscard]] std::string key() const { return platform + "\n" + name + "\n" + version; }
  [[nodiscard]] tvm::ffi::json::Object to_json() const;
};

[[nodiscard]] DeviceInfo query_device_info(cl_platform_id platform, cl_device_id device);

// What a platform calls itself.  Throws where it does not tell.
[[nodiscard]] std::string query_platform_name(cl_platform_id platform);

}  // namespace adrenoc_runtime::opencl
