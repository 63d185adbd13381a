// The part of the OpenCL C API that the runtime uses, declared here so that no OpenCL header is
// needed to build it.  Source: OpenCL 3.0 API specification; names and values are the standard's.
// Those of extensions go without the vendor's suffix.
#pragma once

#include <cstddef>
#include <cstdint>

namespace adrenoc_runtime::opencl {

using cl_int = int32_t;
using cl_uint = uint32_t;
using cl_ulong = uint64_t;
using cl_bitfield = uint64_t;

using cl_platform_id = struct cl_platform_object*;
using cl_device_id = struct cl_device_object*;
using cl_context = struct cl_context_object*;
using cl_command_queue = struct cl_queue_object*;
using cl_mem = struct cl_mem_object*;
using cl_program = struct cl_program_object*;
using cl_kernel = struct cl_kernel_object*;
using cl_event = struct cl_event_object*;
using cl_command_buffer = struct cl_command_buffer_object*;  // cl_khr_command_buffer
using cl_recording = struct cl_recording_object*;            // cl_qcom_recordable_queues

struct cl_image_format {
  cl_uint image_channel_order;
  cl_uint image_channel_data_type;
};

struct cl_image_desc {
  cl_uint image_type;
  size_t image_width;
  size_t image_height;
  size_t image_depth;
  size_t image_array_size;
  size_t image_row_pitch;
  size_t image_slice_pitch;
  cl_uint num_mip_levels;
  cl_uint num_samples;
  cl_mem mem_object;
};

struct cl_name_version {
  cl_uint version;  // major << 22 | minor << 12 | patch
  char name[64];
};

#define ADRENOC_CL_ERROR(name, code) constexpr cl_int name = code;
#include "opencl/cl_errors.def"
#undef ADRENOC_CL_ERROR

constexpr cl_uint CL_TRUE = 1;
constexpr cl_uint CL_FALSE = 0;

constexpr cl_uint CL_PLATFORM_NAME = 0x0902;

constexpr cl_bitfield CL_DEVICE_TYPE_CPU = 1 << 1;
constexpr cl_bitfield CL_DEVICE_TYPE_GPU = 1 << 2;
constexpr cl_bitfield CL_DEVICE_TYPE_ACCELERATOR = 1 << 3;
constexpr cl_bitfield CL_DEVICE_TYPE_ALL = 0xFFFFFFFF;

constexpr cl_uint CL_DEVICE_TYPE = 0x1000;
constexpr cl_uint CL_DEVICE_MAX_COMPUTE_UNITS = 0x1002;
constexpr cl_uint CL_DEVICE_MAX_WORK_ITEM_DIMENSIONS = 0x1003;
constexpr cl_uint CL_DEVICE_MAX_WORK_GROUP_SIZE = 0x1004;
constexpr cl_uint CL_DEVICE_MAX_WORK_ITEM_SIZES = 0x1005;
constexpr cl_uint CL_DEVICE_MAX_CLOCK_FREQUENCY = 0x100C;
constexpr cl_uint CL_DEVICE_MAX_READ_IMAGE_ARGS = 0x100E;
constexpr cl_uint CL_DEVICE_MAX_WRITE_IMAGE_ARGS = 0x100F;
constexpr cl_uint CL_DEVICE_MAX_MEM_ALLOC_SIZE = 0x1010;
constexpr cl_uint CL_DEVICE_MEM_BASE_ADDR_ALIGN = 0x1019;
constexpr cl_uint CL_DEVICE_IMAGE2D_MAX_WIDTH = 0x1011;
constexpr cl_uint CL_DEVICE_IMAGE2D_MAX_HEIGHT = 0x1012;
constexpr cl_uint CL_DEVICE_IMAGE_SUPPORT = 0x1016;
constexpr cl_uint CL_DEVICE_MAX_PARAMETER_SIZE = 0x1017;
constexpr cl_uint CL_DEVICE_GLOBAL_MEM_CACHE_SIZE = 0x101E;
constexpr cl_uint CL_DEVICE_GLOBAL_MEM_SIZE = 0x101F;
constexpr cl_uint CL_DEVICE_MAX_CONSTANT_BUFFER_SIZE = 0x1020;
constexpr cl_uint CL_DEVICE_LOCAL_MEM_SIZE = 0x1023;
constexpr cl_uint CL_DEVICE_NAME = 0x102B;
constexpr cl_uint CL_DEVICE_VENDOR = 0x102C;
constexpr cl_uint CL_DRIVER_VERSION = 0x102D;
constexpr cl_uint CL_DEVICE_VERSION = 0x102F;
constexpr cl_uint CL_DEVICE_EXTENSIONS = 0x1030;
constexpr cl_uint CL_DEVICE_OPENCL_C_VERSION = 0x103D;
constexpr cl_uint CL_DEVICE_IMAGE_MAX_ARRAY_SIZE = 0x1041;
constexpr cl_uint CL_DEVICE_IMAGE_PITCH_ALIGNMENT = 0x104A;
constexpr cl_uint CL_DEVICE_IMAGE_BASE_ADDRESS_ALIGNMENT = 0x104B;
constexpr cl_uint CL_DEVICE_OPENCL_C_ALL_VERSIONS = 0x1066;

constexpr cl_bitfield CL_QUEUE_PROFILING_ENABLE = 1 << 1;

// cl_qcom_perf_hint and cl_qcom_priority_hint, as the open sources of TFLite and MNN use them:
// high, normal and low follow each other.
constexpr cl_uint CL_CONTEXT_PERF_HINT_QCOM = 0x40C2;
constexpr cl_uint CL_PERF_HINT_HIGH_QCOM = 0x40C3;
constexpr cl_uint CL_CONTEXT_PRIORITY_HINT_QCOM = 0x40C9;
constexpr cl_uint CL_PRIORITY_HINT_HIGH_QCOM = 0x40CA;
// cl_khr_priority_hints: high, then medium and low in the next bits.
constexpr cl_ulong CL_QUEUE_PROPERTIES = 0x1093;
constexpr cl_ulong CL_QUEUE_PRIORITY = 0x1096;
constexpr cl_ulong CL_QUEUE_PRIORITY_HIGH = 1 << 0;

// cl_khr_command_buffer.
constexpr cl_uint CL_DEVICE_COMMAND_BUFFER_CAPABILITIES = 0x12A9;
constexpr cl_uint CL_DEVICE_COMMAND_BUFFER_REQUIRED_QUEUE_PROPERTIES = 0x12AA;
constexpr cl_bitfield CL_COMMAND_BUFFER_CAPABILITY_SIMULTANEOUS_USE = 1 << 2;
constexpr cl_ulong CL_COMMAND_BUFFER_FLAGS = 0x1293;
constexpr cl_ulong CL_COMMAND_BUFFER_SIMULTANEOUS_USE = 1 << 0;

// cl_qcom_recordable_queues, as the open sources of MNN and TVM use it.  A recordable queue takes
// no other property.
constexpr cl_uint CL_DEVICE_RECORDABLE_QUEUE_MAX_SIZE = 0x41DE;
constexpr cl_bitfield CL_QUEUE_RECORDABLE = 1 << 30;

constexpr cl_bitfield CL_MEM_READ_WRITE = 1 << 0;
constexpr cl_bitfield CL_MEM_USE_HOST_PTR = 1 << 3;
struct cl_buffer_region {
  size_t origin;
  size_t size;
};
constexpr cl_uint CL_BUFFER_CREATE_TYPE_REGION = 0x1220;
constexpr cl_uint CL_MEM_OBJECT_BUFFER = 0x10F0;
constexpr cl_uint CL_MEM_OBJECT_IMAGE2D = 0x10F1;
constexpr cl_uint CL_MEM_OBJECT_IMAGE2D_ARRAY = 0x10F3;
constexpr cl_uint CL_RGBA = 0x10B5;
constexpr cl_uint CL_HALF_FLOAT = 0x10DD;
constexpr cl_uint CL_FLOAT = 0x10DE;

constexpr cl_uint CL_MEM_TYPE = 0x1100;
constexpr cl_uint CL_MEM_SIZE = 0x1102;
constexpr cl_uint CL_MEM_CONTEXT = 0x1106;

// cl_qcom_ext_host_ptr and cl_qcom_android_ahardwarebuffer_host_ptr, from Qualcomm's extension
// texts and its OpenCL samples.
constexpr cl_bitfield CL_MEM_EXT_HOST_PTR_QCOM = 1 << 29;
constexpr cl_uint CL_MEM_ANDROID_AHARDWAREBUFFER_HOST_PTR_QCOM = 0x4119;
constexpr cl_uint CL_MEM_HOST_WRITEBACK_QCOM = 0x40A5;
struct cl_mem_android_ahardwarebuffer_host_ptr_qcom {
  cl_uint allocation_type;
  cl_uint host_cache_policy;
  void* ahb_ptr;
};

// cl_khr_external_memory_android_hardware_buffer 0.9.2 and OpenCL's registry of numbers.
constexpr cl_ulong CL_EXTERNAL_MEMORY_HANDLE_ANDROID_HARDWARE_BUFFER = 0x2070;

constexpr cl_uint CL_PROGRAM_BINARY_SIZES = 0x1165;
constexpr cl_uint CL_PROGRAM_BINARIES = 0x1166;
constexpr cl_uint CL_PROGRAM_BUILD_LOG = 0x1183;

constexpr cl_uint CL_KERNEL_WORK_GROUP_SIZE = 0x11B0;
constexpr cl_uint CL_KERNEL_LOCAL_MEM_SIZE = 0x11B2;

constexpr cl_uint CL_PROFILING_COMMAND_START = 0x1282;
constexpr cl_uint CL_PROFILING_COMMAND_END = 0x1283;

}  // namespace adrenoc_runtime::opencl
