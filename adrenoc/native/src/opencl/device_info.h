// What one OpenCL device says of itself.
#pragma once

#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/string.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <initializer_list>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "opencl/cl_api.h"
#include "opencl/cl_types.h"

namespace adrenoc_runtime::opencl {

namespace json = tvm::ffi::json;

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

  [[nodiscard]] bool has_extension(const std::string& extension) const {
    return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
  }
  // "3.0" of "OpenCL 3.0 vendor text".
  [[nodiscard]] std::string version_number() const {
    std::istringstream words(version);
    std::string word;
    words >> word >> word;
    return word;
  }
  // Platform, name and OpenCL version: what is kept for a device is kept under these.
  [[nodiscard]] std::string key() const { return platform + "\n" + name + "\n" + version; }
  [[nodiscard]] tvm::ffi::json::Object to_json() const {
    using Numbers = std::initializer_list<std::pair<const char*, uint64_t>>;
    const auto object_of = [](Numbers numbers) {
      json::Object object;
      for (const auto& [key, value] : numbers) object.Set(key, static_cast<int64_t>(value));
      return object;
    };
    json::Object images = object_of({{"max_width", image_max_width},
                                     {"max_height", image_max_height},
                                     {"max_layers", image_max_layers},
                                     {"max_read_arguments", max_read_image_arguments},
                                     {"max_write_arguments", max_write_image_arguments},
                                     {"pitch_alignment_texels", image_pitch_alignment}});
    images.Set("supported", has_images);
    json::Object limits = object_of({{"max_work_group_size", max_work_group_size},
                                     {"compute_units", compute_units},
                                     {"clock_mhz", clock_mhz},
                                     {"max_parameter_bytes", max_parameter_bytes},
                                     {"local_memory_bytes", local_memory_bytes},
                                     {"global_memory_bytes", global_memory_bytes},
                                     {"global_cache_bytes", global_cache_bytes},
                                     {"max_allocation_bytes", max_allocation_bytes},
                                     {"max_constant_bytes", max_constant_bytes}});
    json::Array work_items;
    for (const size_t size : max_work_item_sizes) work_items.push_back(static_cast<int64_t>(size));
    limits.Set("max_work_item_sizes", work_items);
    json::Object object;
    for (const auto& [key, text] : {std::pair("name", &name),
                                    {"vendor", &vendor},
                                    {"platform", &platform},
                                    {"version", &version},
                                    {"driver", &driver},
                                    {"type", &type}}) {
      object.Set(key, tvm::ffi::String(*text));
    }
    object.Set("c_version", static_cast<int64_t>(c_version));
    object.Set("fp16", has_extension("cl_khr_fp16"));
    object.Set("images", images);
    object.Set("limits", limits);
    json::Array names;
    for (const std::string& extension : extensions) names.push_back(tvm::ffi::String(extension));
    object.Set("extensions", names);
    return object;
  }
};

// What a platform calls itself.  Throws where it does not tell.
[[nodiscard]] inline std::string query_platform_name(cl_platform_id platform) {
  return query_text("clGetPlatformInfo", [&](size_t room, char* text, size_t* size) {
    return api().clGetPlatformInfo(platform, CL_PLATFORM_NAME, room, text, size);
  });
}

template <typename T>
T query(cl_device_id device, cl_uint parameter) {
  T value{};
  ADRENOC_CL_CALL(clGetDeviceInfo, device, parameter, sizeof(T), &value, nullptr);
  return value;
}

inline std::string query_string(cl_device_id device, cl_uint parameter) {
  return query_text("clGetDeviceInfo", [&](size_t room, char* text, size_t* size) {
    return api().clGetDeviceInfo(device, parameter, room, text, size);
  });
}

inline std::string type_name(cl_bitfield type) {
  if (type & CL_DEVICE_TYPE_GPU) return "gpu";
  if (type & CL_DEVICE_TYPE_ACCELERATOR) return "accelerator";
  if (type & CL_DEVICE_TYPE_CPU) return "cpu";
  return "custom";
}

inline int query_c_version(cl_device_id device) {
  int major = 0;
  int minor = 0;
  int newest = 0;
  // "OpenCL C 2.0 vendor text".
  const std::string text = query_string(device, CL_DEVICE_OPENCL_C_VERSION);
  if (std::sscanf(text.c_str(), "OpenCL C %d.%d", &major, &minor) == 2) {
    newest = major * 100 + minor * 10;
  }
  // An OpenCL 3.0 device may answer 1.2 above and name 3.0 only in this list.
  size_t size = 0;
  if (api().clGetDeviceInfo(device, CL_DEVICE_OPENCL_C_ALL_VERSIONS, 0, nullptr, &size) !=
      CL_SUCCESS) {
    return newest;  // a device of OpenCL 2.x or older does not know the question
  }
  std::vector<cl_name_version> versions(size / sizeof(cl_name_version));
  if (versions.empty()) return newest;
  ADRENOC_CL_CALL(clGetDeviceInfo, device, CL_DEVICE_OPENCL_C_ALL_VERSIONS, size, versions.data(),
                  nullptr);
  for (const cl_name_version& entry : versions) {
    const int version_major = static_cast<int>(entry.version >> 22);
    const int version_minor = static_cast<int>((entry.version >> 12) & 0x3FF);
    newest = std::max(newest, version_major * 100 + version_minor * 10);
  }
  return newest;
}

inline void query_image_limits(cl_device_id device, DeviceInfo* info) {
  info->has_images = query<cl_uint>(device, CL_DEVICE_IMAGE_SUPPORT) != 0;
  if (!info->has_images) return;
  info->image_max_width = query<size_t>(device, CL_DEVICE_IMAGE2D_MAX_WIDTH);
  info->image_max_height = query<size_t>(device, CL_DEVICE_IMAGE2D_MAX_HEIGHT);
  info->image_max_layers = query<size_t>(device, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE);
  info->max_read_image_arguments = query<cl_uint>(device, CL_DEVICE_MAX_READ_IMAGE_ARGS);
  info->max_write_image_arguments = query<cl_uint>(device, CL_DEVICE_MAX_WRITE_IMAGE_ARGS);
  // Only known to devices that can make an image of a buffer; 0 of others.
  const auto alignment = [device](cl_uint parameter) {
    cl_uint value = 0;
    const cl_int code = api().clGetDeviceInfo(device, parameter, sizeof(value), &value, nullptr);
    return code == CL_SUCCESS ? value : 0;
  };
  info->image_pitch_alignment = alignment(CL_DEVICE_IMAGE_PITCH_ALIGNMENT);
  info->image_base_alignment = alignment(CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT);
  info->part_alignment_bytes = alignment(CL_DEVICE_MEM_BASE_ADDR_ALIGN) / 8;  // told in bits
}

inline void query_work_limits(cl_device_id device, DeviceInfo* info) {
  info->max_work_group_size = query<size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  const auto dimensions = query<cl_uint>(device, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS);
  std::vector<size_t> sizes(dimensions, 1);
  ADRENOC_CL_CALL(clGetDeviceInfo, device, CL_DEVICE_MAX_WORK_ITEM_SIZES,
                  dimensions * sizeof(size_t), sizes.data(), nullptr);
  std::copy_n(sizes.begin(), std::min<size_t>(dimensions, 3), info->max_work_item_sizes.begin());
}

[[nodiscard]] inline DeviceInfo query_device_info(cl_platform_id platform, cl_device_id device) {
  DeviceInfo info;
  info.name = query_string(device, CL_DEVICE_NAME);
  info.vendor = query_string(device, CL_DEVICE_VENDOR);
  info.platform = query_platform_name(platform);
  info.version = query_string(device, CL_DEVICE_VERSION);
  info.driver = query_string(device, CL_DRIVER_VERSION);
  info.type = type_name(query<cl_bitfield>(device, CL_DEVICE_TYPE));
  info.c_version = query_c_version(device);
  std::istringstream words(query_string(device, CL_DEVICE_EXTENSIONS));
  for (std::string word; words >> word;) info.extensions.push_back(word);

  query_image_limits(device, &info);
  query_work_limits(device, &info);
  info.compute_units = query<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS);
  info.clock_mhz = query<cl_uint>(device, CL_DEVICE_MAX_CLOCK_FREQUENCY);
  info.max_parameter_bytes = query<size_t>(device, CL_DEVICE_MAX_PARAMETER_SIZE);
  info.local_memory_bytes = query<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE);
  info.global_memory_bytes = query<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE);
  info.global_cache_bytes = query<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
  info.max_allocation_bytes = query<cl_ulong>(device, CL_DEVICE_MAX_MEM_ALLOC_SIZE);
  info.max_constant_bytes = query<cl_ulong>(device, CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE);
  return info;
}

}  // namespace adrenoc_runtime::opencl
