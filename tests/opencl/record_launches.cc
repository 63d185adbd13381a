// A layer of the ICD loader (OPENCL_LAYERS) that writes each launch of a kernel down, so that it can
// be launched again by another implementation: the program's text, the sizes, the arguments, and
// what the memory among them held before and after.  A launch is a folder of $ADRENOC_LAUNCHES; one
// like another, by text, sizes and memory, is written once.
//
// The places of functions in the loader's table never change (Khronos, cl_icd.h).
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "opencl/cl_types.h"

using namespace adrenoc_runtime::opencl;

namespace {

enum Place : size_t {
  kCreateBuffer = 14,
  kGetMemObjectInfo = 20,
  kGetImageInfo = 21,
  kCreateProgramWithSource = 26,
  kCreateProgramWithBinary = 27,
  kBuildProgram = 30,
  kCreateKernel = 34,
  kSetKernelArg = 38,
  kFinish = 47,
  kEnqueueReadBuffer = 48,
  kEnqueueReadImage = 51,
  kEnqueueNDRangeKernel = 59,
  kCreateSubBuffer = 82,
  kCreateImage = 96,
  kMostFunctions = 256,
};
constexpr cl_uint kImageFormat = 0x1110;
constexpr cl_uint kImageElementSize = 0x1111;
constexpr cl_uint kImageWidth = 0x1114;
constexpr cl_uint kImageHeight = 0x1115;
constexpr cl_uint kImageArraySize = 0x1117;
constexpr cl_int kBadValue = -30;
constexpr cl_int kBadBinary = -42;

struct Argument {
  size_t bytes = 0;
  bool is_local = false;
  std::string value;
};

struct Kernel {
  std::string name, text;
  std::map<cl_uint, Argument> arguments;
};

struct Memory {
  cl_mem handle = nullptr;
  cl_uint type = 0;
  size_t bytes = 0, pixel_bytes = 0, width = 0, height = 0, layers = 0;
  cl_image_format format{};
};

void* own_table[kMostFunctions];
void* next_table[kMostFunctions];
std::mutex held_by_one;
std::map<cl_program, std::string> texts;
std::map<cl_kernel, Kernel> kernels;
std::set<cl_mem> memories;
std::set<std::string> written;

template <typename Function>
Function* next(Place place) {
  return reinterpret_cast<Function*>(next_table[place]);
}

using Info = cl_int(cl_mem, cl_uint, size_t, void*, size_t*);
using Finish = cl_int(cl_command_queue);
using ReadBuffer = cl_int(cl_command_queue, cl_mem, cl_uint, size_t, size_t, void*, cl_uint,
                          const cl_event*, cl_event*);
using ReadImage = cl_int(cl_command_queue, cl_mem, cl_uint, const size_t*, const size_t*, size_t,
                         size_t, void*, cl_uint, const cl_event*, cl_event*);

cl_mem note(cl_mem memory) {
  const std::lock_guard<std::mutex> lock(held_by_one);
  memories.insert(memory);
  return memory;
}

cl_mem create_buffer(cl_context context, cl_bitfield flags, size_t bytes, void* host,
                     cl_int* code) {
  using Function = cl_mem(cl_context, cl_bitfield, size_t, void*, cl_int*);
  return note(next<Function>(kCreateBuffer)(context, flags, bytes, host, code));
}

cl_mem create_sub_buffer(cl_mem buffer, cl_bitfield flags, cl_uint type, const void* region,
                         cl_int* code) {
  using Function = cl_mem(cl_mem, cl_bitfield, cl_uint, const void*, cl_int*);
  return note(next<Function>(kCreateSubBuffer)(buffer, flags, type, region, code));
}

cl_mem create_image(cl_context context, cl_bitfield flags, const cl_image_format* format,
                    const cl_image_desc* description, void* host, cl_int* code) {
  using Function = cl_mem(cl_context, cl_bitfield, const cl_image_format*, const cl_image_desc*,
                          void*, cl_int*);
  return note(next<Function>(kCreateImage)(context, flags, format, description, host, code));
}

cl_program create_program(cl_context context, cl_uint count, const char** parts,
                          const size_t* lengths, cl_int* code) {
  using Function = cl_program(cl_context, cl_uint, const char**, const size_t*, cl_int*);
  const cl_program program =
      next<Function>(kCreateProgramWithSource)(context, count, parts, lengths, code);
  std::string text;
  for (cl_uint i = 0; i < count; ++i) {
    const bool is_counted = lengths != nullptr && lengths[i] > 0;
    text.append(parts[i], is_counted ? lengths[i] : std::strlen(parts[i]));
  }
  const std::lock_guard<std::mutex> lock(held_by_one);
  texts[program] = text;
  return program;
}

// To optimise a kernel takes longer than to run it once, and some drivers do it wrongly.
cl_int build_program(cl_program program, cl_uint count, const cl_device_id* devices,
                     const char* options, void* notify, void* user) {
  using Function = cl_int(cl_program, cl_uint, const cl_device_id*, const char*, void*, void*);
  const std::string all = std::string(options == nullptr ? "" : options) + " -cl-opt-disable";
  return next<Function>(kBuildProgram)(program, count, devices, all.c_str(), notify, user);
}

// A program of a cache has no text: as if another driver had made it, so that it is built anew.
cl_program refuse_binary(cl_context, cl_uint, const cl_device_id*, const size_t*,
                         const unsigned char**, cl_int*, cl_int* code) {
  if (code != nullptr) *code = kBadBinary;
  return nullptr;
}

cl_kernel create_kernel(cl_program program, const char* name, cl_int* code) {
  using Function = cl_kernel(cl_program, const char*, cl_int*);
  const cl_kernel kernel = next<Function>(kCreateKernel)(program, name, code);
  const std::lock_guard<std::mutex> lock(held_by_one);
  kernels[kernel] = Kernel{name, texts[program], {}};
  return kernel;
}

cl_int set_argument(cl_kernel kernel, cl_uint index, size_t bytes, const void* value) {
  using Function = cl_int(cl_kernel, cl_uint, size_t, const void*);
  const std::lock_guard<std::mutex> lock(held_by_one);
  Argument& argument = kernels[kernel].arguments[index];
  argument.bytes = bytes;
  argument.is_local = value == nullptr;
  argument.value.assign(static_cast<const char*>(value), argument.is_local ? 0 : bytes);
  return next<Function>(kSetKernelArg)(kernel, index, bytes, value);
}

template <typename Value>
void ask(Place place, cl_mem memory, cl_uint what, Value* value) {
  next<Info>(place)(memory, what, sizeof(*value), value, nullptr);
}

Memory describe(cl_mem handle) {
  Memory memory;
  memory.handle = handle;
  ask(kGetMemObjectInfo, handle, CL_MEM_TYPE, &memory.type);
  ask(kGetMemObjectInfo, handle, CL_MEM_SIZE, &memory.bytes);
  if (memory.type == CL_MEM_OBJECT_BUFFER) return memory;
  ask(kGetImageInfo, handle, kImageFormat, &memory.format);
  ask(kGetImageInfo, handle, kImageElementSize, &memory.pixel_bytes);
  ask(kGetImageInfo, handle, kImageWidth, &memory.width);
  ask(kGetImageInfo, handle, kImageHeight, &memory.height);
  ask(kGetImageInfo, handle, kImageArraySize, &memory.layers);
  return memory;
}

void write_content(cl_command_queue queue, const Memory& memory, const std::string& path) {
  std::vector<char> data;
  cl_int code = CL_SUCCESS;
  if (memory.type == CL_MEM_OBJECT_BUFFER) {
    data.resize(memory.bytes);
    code = next<ReadBuffer>(kEnqueueReadBuffer)(queue, memory.handle, CL_TRUE, 0, memory.bytes,
                                                data.data(), 0, nullptr, nullptr);
  } else {
    const size_t origin[3] = {0, 0, 0};
    const size_t region[3] = {memory.width, memory.height > 0 ? memory.height : 1,
                              memory.layers > 0 ? memory.layers : 1};
    data.resize(region[0] * region[1] * region[2] * memory.pixel_bytes);
    code = next<ReadImage>(kEnqueueReadImage)(queue, memory.handle, CL_TRUE, origin, region, 0, 0,
                                              data.data(), 0, nullptr, nullptr);
  }
  if (code != CL_SUCCESS) {
    std::fprintf(stderr, "record_launches: %s cannot be read: %d\n", path.c_str(), code);
    return;
  }
  std::ofstream(path, std::ios::binary).write(data.data(), static_cast<long>(data.size()));
}

std::string list_sizes(const size_t* sizes, cl_uint count) {
  std::ostringstream list;
  for (cl_uint i = 0; sizes != nullptr && i < count; ++i) list << (i > 0 ? ", " : "") << sizes[i];
  return "[" + list.str() + "]";
}

std::string write_hexadecimal(const std::string& value) {
  std::string digits;
  for (const unsigned char byte : value) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", byte);
    digits += two;
  }
  return digits;
}

// The arguments as a list of JSON; memory that stands twice among them is named by its first place.
std::string list_arguments(const Kernel& kernel, const std::map<cl_uint, Memory>& among) {
  std::ostringstream list;
  for (const auto& [index, argument] : kernel.arguments) {
    list << (list.tellp() > 0 ? ", " : "") << "{\"bytes\": " << argument.bytes;
    const auto found = among.find(index);
    if (found == among.end()) {
      list << (argument.is_local ? ", \"local\": true}" : ", \"value\": \"");
      if (!argument.is_local) list << write_hexadecimal(argument.value) << "\"}";
      continue;
    }
    const Memory& memory = found->second;
    cl_uint first = index;
    for (const auto& [other, held] : among) {
      if (held.handle == memory.handle && other < first) first = other;
    }
    list << ", \"memory\": {\"type\": " << memory.type << ", \"bytes\": " << memory.bytes
         << ", \"order\": " << memory.format.image_channel_order
         << ", \"channel\": " << memory.format.image_channel_data_type
         << ", \"width\": " << memory.width << ", \"height\": " << memory.height
         << ", \"layers\": " << memory.layers << ", \"first\": " << first << "}}";
  }
  return "[" + list.str() + "]";
}

cl_int launch(cl_command_queue queue, cl_kernel handle, cl_uint dimensions, const size_t* offset,
              const size_t* global, const size_t* local, cl_uint waits, const cl_event* awaited,
              cl_event* event) {
  using Function = cl_int(cl_command_queue, cl_kernel, cl_uint, const size_t*, const size_t*,
                          const size_t*, cl_uint, const cl_event*, cl_event*);
  Function* go = next<Function>(kEnqueueNDRangeKernel);
  const std::lock_guard<std::mutex> lock(held_by_one);
  const Kernel& kernel = kernels[handle];
  std::map<cl_uint, Memory> among;
  for (const auto& [index, argument] : kernel.arguments) {
    cl_mem memory = nullptr;
    if (argument.value.size() != sizeof(memory)) continue;
    std::memcpy(&memory, argument.value.data(), sizeof(memory));
    if (memories.count(memory) > 0) among[index] = describe(memory);
  }
  const std::string sizes = "\"global\": " + list_sizes(global, dimensions) +
                            ", \"local\": " + list_sizes(local, dimensions);
  const std::string arguments = list_arguments(kernel, among);
  const char* root = std::getenv("ADRENOC_LAUNCHES");
  if (root == nullptr || !written.insert(kernel.text + kernel.name + sizes + arguments).second) {
    return go(queue, handle, dimensions, offset, global, local, waits, awaited, event);
  }
  char number[32];
  std::snprintf(number, sizeof(number), "/%d-%05zu", static_cast<int>(getpid()), written.size());
  const std::string folder = root + std::string(number);
  mkdir(folder.c_str(), 0777);
  next<Finish>(kFinish)(queue);
  for (const auto& [index, memory] : among) {
    write_content(queue, memory, folder + "/" + std::to_string(index) + ".before");
  }
  const cl_int code = go(queue, handle, dimensions, offset, global, local, waits, awaited, event);
  next<Finish>(kFinish)(queue);
  for (const auto& [index, memory] : among) {
    write_content(queue, memory, folder + "/" + std::to_string(index) + ".after");
  }
  std::ofstream(folder + "/kernel.cl") << kernel.text;
  // Last: what has no such file was not written whole.
  std::ofstream(folder + "/launch.json") << "{\"kernel\": \"" << kernel.name << "\", " << sizes
                                         << ", \"arguments\": " << arguments << "}\n";
  return code;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) cl_int clGetLayerInfo(cl_uint what, size_t room, void* out, size_t* size) {
  constexpr cl_uint kLayerVersion = 0x4240;
  constexpr cl_uint kLayerName = 0x4241;
  static const cl_uint kVersion = 100;
  static const char kName[] = "recorded launches";
  if (what != kLayerVersion && what != kLayerName) return kBadValue;
  const void* told = what == kLayerVersion ? static_cast<const void*>(&kVersion) : kName;
  const size_t length = what == kLayerVersion ? sizeof(kVersion) : sizeof(kName);
  if (out != nullptr && room < length) return kBadValue;
  if (out != nullptr) std::memcpy(out, told, length);
  if (size != nullptr) *size = length;
  return CL_SUCCESS;
}

extern "C" __attribute__((visibility("default"))) cl_int clInitLayer(cl_uint count, void** target, cl_uint* told, void*** made) {
  if (count <= kCreateImage || count > kMostFunctions) return kBadValue;
  std::memcpy(next_table, target, count * sizeof(*target));
  std::memcpy(own_table, target, count * sizeof(*target));
  own_table[kCreateBuffer] = reinterpret_cast<void*>(create_buffer);
  own_table[kCreateSubBuffer] = reinterpret_cast<void*>(create_sub_buffer);
  own_table[kCreateImage] = reinterpret_cast<void*>(create_image);
  own_table[kCreateProgramWithSource] = reinterpret_cast<void*>(create_program);
  own_table[kCreateProgramWithBinary] = reinterpret_cast<void*>(refuse_binary);
  own_table[kBuildProgram] = reinterpret_cast<void*>(build_program);
  own_table[kCreateKernel] = reinterpret_cast<void*>(create_kernel);
  own_table[kSetKernelArg] = reinterpret_cast<void*>(set_argument);
  own_table[kEnqueueNDRangeKernel] = reinterpret_cast<void*>(launch);
  *told = count;
  *made = own_table;
  return CL_SUCCESS;
}

// What newer loaders call in place of it, and at the end.
extern "C" __attribute__((visibility("default"))) cl_int clInitLayerWithProperties(cl_uint count, void** target, cl_uint* told,
                                            void*** made, const void* /*properties*/) {
  return clInitLayer(count, target, told, made);
}

extern "C" __attribute__((visibility("default"))) cl_int clDeinitLayer() { return CL_SUCCESS; }
