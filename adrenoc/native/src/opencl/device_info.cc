#include "opencl/device_info.h"

#include <tvm/ffi/string.h>

#include <algorithm>
#include <cstdio>
#include <sstream>

#include "opencl/cl_api.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace json = tvm::ffi::json;

template <typename T>
T query(cl_device_id device, cl_uint parameter) {
  T value{};
  ADRENOC_CL_CALL(clGetDeviceInfo, device, parameter, sizeof(T), &value, nullptr);
  return value;
}

std::string trimmed(std::string text) {
  // OpenCL counts the final NUL, and some drivers pad with blanks.
  while (!text.empty() && (text.back() == '\0' || text.back() == ' ')) text.pop_back();
  return text;
}

std::string query_string(cl_device_id device, cl_uint parameter) {
  size_t size = 0;
  ADRENOC_CL_CALL(clGetDeviceInfo, device, parameter, 0, nullptr, &size);
  std::string text(size, '\0');
  ADRENOC_CL_CALL(clGetDeviceInfo, device, parameter, size, text.data(), nullptr);
  return trimmed(std::move(text));
}

std::string type_name(cl_bitfield type) {
  if (type & CL_DEVICE_TYPE_GPU) return "gpu";
  if (type & CL_DEVICE_TYPE_ACCELERATOR) return "accelerator";
  if (type & CL_DEVICE_TYPE_CPU) return "cpu";
  return "custom";
}

int query_c_version(cl_device_id device) {
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

void query_image_limits(cl_device_id device, DeviceInfo* info) {
  info->has_images = query<cl_uint>(device, CL_DEVICE_IMAGE_SUPPORT) != 0;
  if (!info->has_images) return;
  info->image_max_width = query<size_t>(device, CL_DEVICE_IMAGE2D_MAX_WIDTH);
  info->image_max_height = query<size_t>(device, CL_DEVICE_IMAGE2D_MAX_HEIGHT);
  info->image_max_layers = query<size_t>(device, CL_DEVICE_IMAGE_MAX_ARRAY_SIZE);
  info->max_read_image_arguments = query<cl_uint>(device, CL_DEVICE_MAX_READ_IMAGE_ARGS);
  info->max_write_image_arguments = query<cl_uint>(device, CL_DEVICE_MAX_WRITE_IMAGE_ARGS);
  // Only known to devices that can make an image of a buffer.
  cl_uint alignment = 0;
  if (api().clGetDeviceInfo(device, CL_DEVICE_IMAGE_PITCH_ALIGNMENT, sizeof(alignment), &alignment,
                            nullptr) == CL_SUCCESS) {
    info->image_pitch_alignment = alignment;
  }
  if (api().clGetDeviceInfo(device, CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT, sizeof(alignment),
                            &alignment, nullptr) == CL_SUCCESS) {
    info->image_base_alignment = alignment;
  }
  if (api().clGetDeviceInfo(device, CL_DEVICE_MEM_BASE_ADDR_ALIGN, sizeof(alignment), &alignment,
                            nullptr) == CL_SUCCESS) {
    info->part_alignment_bytes = alignment / 8;  // told in bits
  }
}

void query_work_limits(cl_device_id device, DeviceInfo* info) {
  info->max_work_group_size = query<size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  const auto dimensions = query<cl_uint>(device, CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS);
  std::vector<size_t> sizes(dimensions, 1);
  ADRENOC_CL_CALL(clGetDeviceInfo, device, CL_DEVICE_MAX_WORK_ITEM_SIZES,
                  dimensions * sizeof(size_t), sizes.data(), nullptr);
  std::copy_n(sizes.begin(), std::min<size_t>(dimensions, 3), info->max_work_item_sizes.begin());
}

json::Array string_array(const std::vector<std::string>& texts) {
  json::Array array;
  for (const std::string& text : texts) array.push_back(tvm::ffi::String(text));
  return array;
}

}  // namespace

std::string query_platform_name(cl_platform_id platform) {
  size_t size = 0;
  ADRENOC_CL_CALL(clGetPlatformInfo, platform, CL_PLATFORM_NAME, 0, nullptr, &size);
  std::string text(size, '\0');
  ADRENOC_CL_CALL(clGetPlatformInfo, platform, CL_PLATFORM_NAME, size, text.data(), nullptr);
  return trimmed(std::move(text));
}

bool DeviceInfo::has_extension(const std::string& extension) const {
  return std::find(extensions.begin(), extensions.end(), extension) != extensions.end();
}

std::string DeviceInfo::version_number() const {
  std::istringstream words(version);
  std::string word;
  words >> word >> word;
  return word;
}

json::Object DeviceInfo::to_json() const {
  const auto integer = [](auto value) { return static_cast<int64_t>(value); };
  json::Object images;
  images.Set("supported", has_images);
  images.Set("max_width", integer(image_max_width));
  images.Set("max_height", integer(image_max_height));
  images.Set("max_layers", integer(image_max_layers));
  images.Set("max_read_arguments", integer(max_read_image_arguments));
  images.Set("max_write_arguments", integer(max_write_image_arguments));
  images.Set("pitch_alignment_texels", integer(image_pitch_alignment));

  json::Array work_items;
  for (const size_t size : max_work_item_sizes) work_items.push_back(integer(size));
  json::Object limits;
  limits.Set("max_work_group_size", integer(max_work_group_size));
  limits.Set("max_work_item_sizes", work_items);
  limits.Set("compute_units", integer(compute_units));
  limits.Set("clock_mhz", integer(clock_mhz));
  limits.Set("max_parameter_bytes", integer(max_parameter_bytes));
  limits.Set("local_memory_bytes", integer(local_memory_bytes));
  limits.Set("global_memory_bytes", integer(global_memory_bytes));
  limits.Set("global_cache_bytes", integer(global_cache_bytes));
  limits.Set("max_allocation_bytes", integer(max_allocation_bytes));
  limits.Set("max_constant_bytes", integer(max_constant_bytes));

  json::Object object;
  object.Set("name", tvm::ffi::String(name));
  object.Set("vendor", tvm::ffi::String(vendor));
  object.Set("platform", tvm::ffi::String(platform));
  object.Set("version", tvm::ffi::String(version));
  object.Set("c_version", integer(c_version));
  object.Set("driver", tvm::ffi::String(driver));
  object.Set("type", tvm::ffi::String(type));
  object.Set("fp16", has_extension("cl_khr_fp16"));
  object.Set("images", images);
  object.Set("limits", limits);
  object.Set("extensions", string_array(extensions));
  return object;
}

DeviceInfo query_device_info(cl_platform_id platform, cl_device_id device) {
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
