// An OpenCL driver that misbehaves on order: a layer of the ICD loader (OPENCL_LAYERS), which hands
// every call on to the driver of this computer, but for what FAULTY_OPENCL asks to go wrong.
//
// FAULTY_OPENCL holds one order a line, its words apart by `|`; KERNEL is a part of a name, or what
// it begins with where `^` stands before it:
//
//   name|TEXT, driver|TEXT, version|TEXT     what the device calls itself
//   edit|KERNEL|FROM|TO      in kernels whose name has KERNEL (empty: all), FROM is compiled as TO
//   images|FROM|TO           the same in every kernel, and only where it works on half images
//   threads|N                larger work-groups are refused; large|N: they compute nothing
//   kernels_say|N            a kernel takes so many threads, by what it says and not by what it does
//   device_says|N            so does the device
//   group|X|Y|Z              such work-groups compute nothing
//   local|N                  kernels that share more bytes are refused
//   local_says|N, images_say|N   the device says that it has so many bytes of local memory, and
//                            that images may have so many texels a side
//   wide|N                   images of more texels a side are refused
//   fail|FUNCTION|N|CODE     its N-th call of a process fails with that code; 0: each call
//   once|FUNCTION|N|CODE|FILE  the same, in the first process alone: FILE tells that it happened
//   refuse|KERNEL|CODE       launches of kernels whose name has KERNEL fail
//   skip|KERNEL|N            of these each N-th launch computes nothing: 1 is all of them
//   wears|KERNEL|N           after its first N launches of a process each computes nothing
//   binary|KERNEL            so do all, where its program was made from a binary
//   stale|N                  each N-th launch that works on images computes nothing
//   slow|KERNEL|MS           each launch of these takes so much longer
//   hang|KERNEL, crash|KERNEL  a launch of these does not come back; ends the process
//   unbuilt|KERNEL           programs with such a kernel do not build
//   lists|EXTENSION          the device lists this too; what records launches is listed so alone
//   hides|EXTENSION          it does not list this one
//   forget|N                 each N-th command buffer that is given does nothing
//   lost|FUNCTION|N          each N-th of its transfers does nothing; 1 is all of them
//   clock|zero, clock|back   events tell no times; and times that go backwards
//   log|FILE                 each fault that was met is a line there
//
// Only the functions of the table that are listed in `Slot` are known; their places in it are the
// ICD's, which never change (Khronos, cl_icd.h).
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

#include "kernel_helpers.h"

namespace {

enum Slot {
  kGetDeviceInfo = 3,
  kCreateBuffer = 14,
  kCreateProgramWithSource = 26,
  kCreateProgramWithBinary = 27,
  kBuildProgram = 30,
  kCreateKernel = 34,
  kSetKernelArg = 38,
  kGetKernelWorkGroupInfo = 40,
  kGetEventProfilingInfo = 45,
  kEnqueueReadBuffer = 48,
  kEnqueueWriteBuffer = 49,
  kEnqueueReadImage = 51,
  kEnqueueWriteImage = 52,
  kEnqueueNDRangeKernel = 59,
  kCreateImage = 96,
  kEnqueueMarkerWithWaitList = 105,
  kGetExtensionFunction = 107,
};
constexpr int kBuildFailed = -11, kBadGroup = -54, kBadImageSize = -40;
constexpr uint32_t kDeviceName = 0x102B, kDriver = 0x102D, kVersion = 0x102F, kExtensions = 0x1030;
constexpr uint32_t kExtensionsWithVersion = 0x1060, kHalf = 0x10DD;
constexpr uint32_t kMaxWorkGroupSize = 0x1004, kKernelWorkGroupSize = 0x11B0;
constexpr uint32_t kLocalMemSize = 0x1023, kKernelLocalMemSize = 0x11B2;
constexpr uint32_t kImageWidth = 0x1011, kImageHeight = 0x1012, kCommandStart = 0x1282;
constexpr int kOutOfResources = -5;
constexpr uint32_t kLayerVersion = 0x4240, kLayerName = 0x4241, kLayerApi = 100;

using Words = std::vector<std::string>;
using Handle = void*;

void** next = nullptr;  // the driver's functions
std::vector<void*> table;
std::mutex mutex;

template <typename Function>
Function* driver(Slot slot) {
  return reinterpret_cast<Function*>(next[slot]);
}

std::vector<Words> read_orders() {
  const char* text = getenv("FAULTY_OPENCL");
  std::vector<Words> orders;
  std::istringstream lines(text == nullptr ? "" : text);
  for (std::string line; std::getline(lines, line);) {
    Words words;
    std::istringstream parts(line);
    for (std::string word; std::getline(parts, word, '|');) words.push_back(word);
    if (!words.empty()) {
      words.resize(6);
      orders.push_back(words);
    }
  }
  return orders;
}

const std::vector<Words>& orders() {
  static const auto* read = new std::vector<Words>(read_orders());
  return *read;
}

void tell(const std::string& what) {
  for (const Words& order : orders()) {
    if (order[0] == "log") std::ofstream(order[1], std::ios::app) << what << "\n";
  }
}

bool holds(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// Whether a kernel is meant: by a part of its name, or after `^` by what that begins with.
bool is_meant(const std::string& name, const std::string& part) {
  if (part[0] == '^') return name.rfind(part.substr(1), 0) == 0;
  return holds(name, part);
}

// Whether this call of a function is one that is to fail, and with which code; 0: it is not.
int ordered_failure(const std::string& function) {
  static std::map<std::string, long>* calls = new std::map<std::string, long>();
  std::lock_guard<std::mutex> lock(mutex);
  const long number = ++(*calls)[function];
  for (const Words& order : orders()) {
    const bool once = order[0] == "once";
    if ((order[0] != "fail" && !once) || order[1] != function) continue;
    const long which = std::stol(order[2]);
    if (which != 0 && which != number) continue;
    if (once && access(order[4].c_str(), F_OK) == 0) continue;
    if (once) std::ofstream(order[4]) << function << "\n";
    tell(order[0] + " " + function);
    return std::stoi(order[3]);
  }
  return 0;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size()) {
    text.replace(at, from.size(), to);
  }
  return text;
}

constexpr const char* kBegins = "__kernel void ";

std::string name_at(const std::string& text, size_t at) {
  at += strlen(kBegins);
  return text.substr(at, text.find('(', at) - at);
}

// A program's text with each kernel, and what stands before it, as the orders want it.
std::string edited(const std::string& text, bool of_halves) {
  std::string made;
  for (size_t at = 0; at < text.size();) {
    size_t next_at = text.find(kBegins, at + 1);
    if (next_at == std::string::npos) next_at = text.size();
    std::string part = text.substr(at, next_at - at);
    const std::string name = part.rfind(kBegins, 0) == 0 ? name_at(part, 0) : "";
    for (const Words& order : orders()) {
      const bool meant = order[0] == "edit" && !name.empty() && is_meant(name, order[1]);
      if (meant && holds(part, order[2])) {
        part = replaced(part, order[2], order[3]);
        tell("edit " + name);
      }
      if (order[0] == "images" && of_halves && !name.empty()) {
        part = replaced(part, order[1], order[2]);
      }
    }
    made += part;
    at = next_at;
  }
  return holds(made, "faulty_") ? kHelpers + made : made;
}

struct Program {
  Handle context;
  std::string text, options;
  Handle of_halves = nullptr;  // built when a kernel of it first works on half images
  bool of_binary = false;
};
struct Argument {
  size_t bytes;
  std::string value;
  bool is_set = false;
};
struct Kernel {
  Handle program;
  std::string name;
  Handle of_halves = nullptr;
  std::vector<Argument> arguments;
};
std::map<Handle, Program> programs;
std::map<Handle, Kernel> kernels;
std::map<Handle, bool> half_images;
std::map<std::string, long> launches;

bool orders_of_halves() {
  return std::any_of(orders().begin(), orders().end(),
                     [](const Words& order) { return order[0] == "images"; });
}

int give(const std::string& text, size_t room, void* out, size_t* size) {
  if (size != nullptr) *size = text.size() + 1;
  if (out == nullptr) return 0;
  if (room < text.size() + 1) return -30;
  memcpy(out, text.c_str(), text.size() + 1);
  return 0;
}

int give_number(size_t number, size_t room, void* out, size_t* size) {
  if (size != nullptr) *size = sizeof(number);
  if (out != nullptr && room < sizeof(number)) return -30;
  if (out != nullptr) memcpy(out, &number, sizeof(number));
  return 0;
}

int get_device_info(Handle device, uint32_t what, size_t room, void* out, size_t* size) {
  auto* ask = driver<int(Handle, uint32_t, size_t, void*, size_t*)>(kGetDeviceInfo);
  const std::map<uint32_t, std::string> keys = {
      {kDeviceName, "name"}, {kDriver, "driver"}, {kVersion, "version"}};
  const auto key = keys.find(what);
  for (const Words& order : orders()) {
    if (key != keys.end() && order[0] == key->second) return give(order[1], room, out, size);
    const bool of_images = what == kImageWidth || what == kImageHeight;
    if ((what == kMaxWorkGroupSize && order[0] == "device_says") ||
        (what == kLocalMemSize && order[0] == "local_says") ||
        (of_images && order[0] == "images_say")) {
      return give_number(std::stoul(order[1]), room, out, size);
    }
  }
  if (what == kExtensionsWithVersion) return -30;
  if (what != kExtensions) return ask(device, what, room, out, size);
  // Launches are to come one by one: what records them is not there.
  size_t bytes = 0;
  if (int code = ask(device, what, 0, nullptr, &bytes)) return code;
  std::string text(bytes, '\0');
  if (int code = ask(device, what, bytes, &text[0], nullptr)) return code;
  text.resize(strlen(text.c_str()));
  text = replaced(text, "cl_khr_command_buffer", "");
  for (const Words& order : orders()) {
    if (order[0] == "lists") text += " " + order[1];
    if (order[0] == "hides") text = replaced(text, order[1], "");
  }
  return give(text, room, out, size);
}

int get_work_group_info(Handle kernel, Handle device, uint32_t what, size_t room, void* out,
                        size_t* size) {
  for (const Words& order : orders()) {
    const bool tells = order[0] == "kernels_say" || order[0] == "threads";
    if (tells && what == kKernelWorkGroupSize) {
      return give_number(std::stoul(order[1]), room, out, size);
    }
  }
  return driver<int(Handle, Handle, uint32_t, size_t, void*, size_t*)>(kGetKernelWorkGroupInfo)(
      kernel, device, what, room, out, size);
}

Handle refused(int code, int* told) {
  if (told != nullptr) *told = code;
  return nullptr;
}

Handle create_buffer(Handle context, uint64_t flags, size_t bytes, void* host, int* code) {
  if (int failure = ordered_failure("clCreateBuffer")) return refused(failure, code);
  return driver<Handle(Handle, uint64_t, size_t, void*, int*)>(kCreateBuffer)(context, flags, bytes,
                                                                             host, code);
}

Handle create_image(Handle context, uint64_t flags, const uint32_t* format, const void* description,
                    void* host, int* code) {
  if (int failure = ordered_failure("clCreateImage")) return refused(failure, code);
  size_t sides[2];  // behind the type
  memcpy(sides, static_cast<const char*>(description) + sizeof(size_t), sizeof(sides));
  for (const Words& order : orders()) {
    if (order[0] != "wide" || std::max(sides[0], sides[1]) <= std::stoul(order[1])) continue;
    tell("wide");
    return refused(kBadImageSize, code);
  }
  auto* create =
      driver<Handle(Handle, uint64_t, const uint32_t*, const void*, void*, int*)>(kCreateImage);
  Handle made = create(context, flags, format, description, host, code);
  std::lock_guard<std::mutex> lock(mutex);
  half_images[made] = format[1] == kHalf;
  return made;
}

Handle create_program(Handle context, uint32_t count, const char** texts, const size_t* sizes,
                      int* code) {
  std::string text;
  for (uint32_t i = 0; i < count; ++i) {
    text += sizes != nullptr && sizes[i] != 0 ? std::string(texts[i], sizes[i]) : texts[i];
  }
  auto* create = driver<Handle(Handle, uint32_t, const char**, const size_t*, int*)>(
      kCreateProgramWithSource);
  const std::string wrong = edited(text, false);
  const char* given = wrong.c_str();
  Handle made = create(context, 1, &given, nullptr, code);
  std::lock_guard<std::mutex> lock(mutex);
  programs[made] = Program{context, text, ""};
  return made;
}

Handle create_from_binary(Handle context, uint32_t count, const Handle* devices,
                          const size_t* sizes, const unsigned char** binaries, int* states,
                          int* code) {
  auto* create = driver<Handle(Handle, uint32_t, const Handle*, const size_t*,
                               const unsigned char**, int*, int*)>(kCreateProgramWithBinary);
  Handle made = create(context, count, devices, sizes, binaries, states, code);
  std::lock_guard<std::mutex> lock(mutex);
  programs[made] = Program{context, "", ""};
  programs[made].of_binary = true;
  return made;
}

int build_program(Handle program, uint32_t count, const Handle* devices, const char* options,
                  void (*done)(Handle, void*), void* data) {
  if (int failure = ordered_failure("clBuildProgram")) return failure;
  {
    std::lock_guard<std::mutex> lock(mutex);
    Program& of = programs[program];
    of.options = options == nullptr ? "" : options;
    for (const Words& order : orders()) {
      if (order[0] != "unbuilt") continue;
      for (size_t at = 0; (at = of.text.find(kBegins, at)) != std::string::npos; ++at) {
        if (!is_meant(name_at(of.text, at), order[1])) continue;
        tell("unbuilt");
        return kBuildFailed;
      }
    }
  }
  return driver<int(Handle, uint32_t, const Handle*, const char*, void (*)(Handle, void*), void*)>(
      kBuildProgram)(program, count, devices, options, done, data);
}

Handle create_kernel(Handle program, const char* name, int* code) {
  Handle made = driver<Handle(Handle, const char*, int*)>(kCreateKernel)(program, name, code);
  std::lock_guard<std::mutex> lock(mutex);
  kernels[made] = Kernel{program, name, nullptr, {}};
  return made;
}

int set_argument(Handle kernel, uint32_t index, size_t bytes, const void* value) {
  {
    std::lock_guard<std::mutex> lock(mutex);
    std::vector<Argument>& of = kernels[kernel].arguments;
    if (of.size() <= index) of.resize(index + 1);
    const char* from = static_cast<const char*>(value);
    of[index] = Argument{bytes, from == nullptr ? "" : std::string(from, bytes), from != nullptr};
  }
  return driver<int(Handle, uint32_t, size_t, const void*)>(kSetKernelArg)(kernel, index, bytes,
                                                                         value);
}

// Whether an argument is an image, with `of_halves` one of halves.
bool works_on_images(const Kernel& kernel, bool of_halves) {
  for (const Argument& argument : kernel.arguments) {
    if (!argument.is_set || argument.bytes != sizeof(Handle)) continue;
    Handle held;
    memcpy(&held, argument.value.data(), sizeof(held));
    const auto found = half_images.find(held);
    if (found != half_images.end() && (found->second || !of_halves)) return true;
  }
  return false;
}

// The kernel that is wrong with half images, with the arguments that this one has.
Handle twin_of(Kernel* kernel) {
  Program& of = programs[kernel->program];
  if (of.of_halves == nullptr) {
    const std::string wrong = edited(of.text, true);
    const char* given = wrong.c_str();
    of.of_halves = driver<Handle(Handle, uint32_t, const char**, const size_t*, int*)>(
        kCreateProgramWithSource)(of.context, 1, &given, nullptr, nullptr);
    driver<int(Handle, uint32_t, const Handle*, const char*, void*, void*)>(kBuildProgram)(
        of.of_halves, 0, nullptr, of.options.c_str(), nullptr, nullptr);
  }
  if (kernel->of_halves == nullptr) {
    kernel->of_halves = driver<Handle(Handle, const char*, int*)>(kCreateKernel)(
        of.of_halves, kernel->name.c_str(), nullptr);
  }
  auto* set = driver<int(Handle, uint32_t, size_t, const void*)>(kSetKernelArg);
  for (uint32_t i = 0; i < kernel->arguments.size(); ++i) {
    const Argument& argument = kernel->arguments[i];
    set(kernel->of_halves, i, argument.bytes, argument.is_set ? argument.value.data() : nullptr);
  }
  tell("images " + kernel->name);
  return kernel->of_halves;
}

using EnqueueBuffer = int(uint32_t, Handle*, Handle, uint32_t, const Handle*, Handle*);
EnqueueBuffer* enqueue_of_driver = nullptr;

int enqueue_buffer(uint32_t queues, Handle* queue, Handle buffer, uint32_t count,
                   const Handle* waited, Handle* event) {
  for (const Words& order : orders()) {
    if (order[0] != "forget") continue;
    std::lock_guard<std::mutex> lock(mutex);
    if (++launches[order[0]] % std::stol(order[1]) != 0) continue;
    tell("forget");
    return driver<int(Handle, uint32_t, const Handle*, Handle*)>(kEnqueueMarkerWithWaitList)(
        *queue, count, waited, event);
  }
  return enqueue_of_driver(queues, queue, buffer, count, waited, event);
}

void* get_extension_function(Handle platform, const char* name) {
  void* found = driver<void*(Handle, const char*)>(kGetExtensionFunction)(platform, name);
  if (found == nullptr || strcmp(name, "clEnqueueCommandBufferKHR") != 0) return found;
  enqueue_of_driver = reinterpret_cast<EnqueueBuffer*>(found);
  return reinterpret_cast<void*>(enqueue_buffer);
}

enum class Deed { kLaunch, kNothing, kRefuse };

void sleep_ms(long milliseconds) {
  const timespec time = {milliseconds / 1000, milliseconds % 1000 * 1000000};
  nanosleep(&time, nullptr);
}

// Whether the kernel shares more local memory than `most` bytes.
bool shares_more(Handle kernel, size_t most) {
  uint64_t bytes = 0;
  driver<int(Handle, Handle, uint32_t, size_t, void*, size_t*)>(kGetKernelWorkGroupInfo)(
      kernel, nullptr, kKernelLocalMemSize, sizeof(bytes), &bytes, nullptr);
  return bytes > most;
}

// What becomes of a launch; `code` is of one that is refused.
Deed deed_of(Handle kernel, const Kernel& of, const size_t* local, uint32_t dimensions,
             int* code) {
  const std::string& name = of.name;
  size_t sides[3] = {1, 1, 1};
  for (uint32_t i = 0; local != nullptr && i < dimensions; ++i) sides[i] = local[i];
  const size_t threads = sides[0] * sides[1] * sides[2];
  for (const Words& order : orders()) {
    const std::string& kind = order[0];
    const bool meant = is_meant(name, order[1]);
    if ((kind == "threads" || kind == "large") && threads > std::stoul(order[1])) {
      tell(kind + " " + name);
      *code = kBadGroup;
      return kind == "threads" ? Deed::kRefuse : Deed::kNothing;
    }
    if (kind == "group" && sides[0] == std::stoul(order[1]) && sides[1] == std::stoul(order[2]) &&
        sides[2] == std::stoul(order[3])) {
      tell(kind + " " + name);
      return Deed::kNothing;
    }
    if (kind == "refuse" && meant) {
      tell(kind + " " + name);
      *code = std::stoi(order[2]);
      return Deed::kRefuse;
    }
    if (kind == "skip" && meant && ++launches[order[1]] % std::stol(order[2]) == 0) {
      tell(kind + " " + name);
      return Deed::kNothing;
    }
    if (kind == "wears" && meant && ++launches[order[1]] > std::stol(order[2])) {
      tell(kind + " " + name);
      return Deed::kNothing;
    }
    if (kind == "binary" && meant && programs[of.program].of_binary) {
      tell(kind + " " + name);
      return Deed::kNothing;
    }
    if (kind == "local" && shares_more(kernel, std::stoul(order[1]))) {
      tell(kind + " " + name);
      *code = kOutOfResources;
      return Deed::kRefuse;
    }
    if (kind == "slow" && meant) {
      tell(kind + " " + name);
      sleep_ms(std::stol(order[2]));
    }
    if (kind == "stale" && works_on_images(of, false) &&
        ++launches[kind] % std::stol(order[1]) == 0) {
      tell(kind + " " + name);
      return Deed::kNothing;
    }
    if (kind == "hang" && meant) {
      tell(kind + " " + name);
      for (;;) pause();
    }
    if (kind == "crash" && meant) {
      tell(kind + " " + name);
      abort();
    }
  }
  return Deed::kLaunch;
}

int enqueue_kernel(Handle queue, Handle kernel, uint32_t dimensions, const size_t* offset,
                   const size_t* global, const size_t* local, uint32_t count, const Handle* waited,
                   Handle* event) {
  if (int failure = ordered_failure("clEnqueueNDRangeKernel")) return failure;
  Handle launched = kernel;
  {
    std::lock_guard<std::mutex> lock(mutex);
    Kernel& of = kernels[kernel];
    int code = 0;
    const Deed deed = deed_of(kernel, of, local, dimensions, &code);
    if (deed == Deed::kRefuse) return code;
    if (deed == Deed::kNothing) {
      return driver<int(Handle, uint32_t, const Handle*, Handle*)>(kEnqueueMarkerWithWaitList)(
          queue, count, waited, event);
    }
    if (orders_of_halves() && works_on_images(of, true)) launched = twin_of(&of);
  }
  return driver<int(Handle, Handle, uint32_t, const size_t*, const size_t*, const size_t*, uint32_t,
                    const Handle*, Handle*)>(kEnqueueNDRangeKernel)(
      queue, launched, dimensions, offset, global, local, count, waited, event);
}

// Whether this call of a transfer is one that is to do nothing.
bool is_lost(const std::string& function) {
  std::lock_guard<std::mutex> lock(mutex);
  for (const Words& order : orders()) {
    if (order[0] != "lost" || order[1] != function) continue;
    if (++launches[function] % std::stol(order[2]) != 0) continue;
    tell("lost " + function);
    return true;
  }
  return false;
}

int pass_over(Handle queue, uint32_t count, const Handle* waited, Handle* event) {
  return driver<int(Handle, uint32_t, const Handle*, Handle*)>(kEnqueueMarkerWithWaitList)(
      queue, count, waited, event);
}

// Reads and writes of buffers, and of images, look alike.
template <Slot slot>
int transfer_buffer(Handle queue, Handle memory, uint32_t blocking, size_t offset, size_t bytes,
                    void* host, uint32_t count, const Handle* waited, Handle* event) {
  const char* name = slot == kEnqueueReadBuffer ? "clEnqueueReadBuffer" : "clEnqueueWriteBuffer";
  if (int failure = ordered_failure(name)) return failure;
  if (is_lost(name)) return pass_over(queue, count, waited, event);
  return driver<int(Handle, Handle, uint32_t, size_t, size_t, void*, uint32_t, const Handle*,
                    Handle*)>(slot)(queue, memory, blocking, offset, bytes, host, count, waited,
                                    event);
}

template <Slot slot>
int transfer_image(Handle queue, Handle image, uint32_t blocking, const size_t* origin,
                   const size_t* region, size_t row, size_t slice, void* host, uint32_t count,
                   const Handle* waited, Handle* event) {
  const char* name = slot == kEnqueueReadImage ? "clEnqueueReadImage" : "clEnqueueWriteImage";
  if (int failure = ordered_failure(name)) return failure;
  if (is_lost(name)) return pass_over(queue, count, waited, event);
  return driver<int(Handle, Handle, uint32_t, const size_t*, const size_t*, size_t, size_t, void*,
                    uint32_t, const Handle*, Handle*)>(slot)(
      queue, image, blocking, origin, region, row, slice, host, count, waited, event);
}

int get_profiling_info(Handle event, uint32_t what, size_t room, void* out, size_t* size) {
  const int code = driver<int(Handle, uint32_t, size_t, void*, size_t*)>(kGetEventProfilingInfo)(
      event, what, room, out, size);
  for (const Words& order : orders()) {
    if (order[0] != "clock" || code != 0 || out == nullptr) continue;
    uint64_t nanoseconds = 0;
    if (order[1] == "back") {  // a start after the end
      memcpy(&nanoseconds, out, sizeof(nanoseconds));
      nanoseconds += what == kCommandStart ? 1000000000u : 0;
    }
    memcpy(out, &nanoseconds, sizeof(nanoseconds));
  }
  return code;
}

}  // namespace

extern "C" {

int clGetLayerInfo(uint32_t what, size_t room, void* out, size_t* size) {
  if (what == kLayerName) return give("faulty", room, out, size);
  if (what != kLayerVersion) return -30;
  if (size != nullptr) *size = sizeof(kLayerApi);
  if (out != nullptr) memcpy(out, &kLayerApi, sizeof(kLayerApi));
  return 0;
}

int clInitLayer(uint32_t count, void** target, uint32_t* told, void*** made) {
  if (count <= kGetExtensionFunction) return -30;
  next = target;
  table.assign(target, target + count);
  const auto put = [](Slot slot, void* function) { table[slot] = function; };
  put(kGetDeviceInfo, reinterpret_cast<void*>(get_device_info));
  put(kCreateBuffer, reinterpret_cast<void*>(create_buffer));
  put(kCreateImage, reinterpret_cast<void*>(create_image));
  put(kCreateProgramWithSource, reinterpret_cast<void*>(create_program));
  put(kCreateProgramWithBinary, reinterpret_cast<void*>(create_from_binary));
  put(kGetEventProfilingInfo, reinterpret_cast<void*>(get_profiling_info));
  put(kEnqueueReadBuffer, reinterpret_cast<void*>(transfer_buffer<kEnqueueReadBuffer>));
  put(kEnqueueWriteBuffer, reinterpret_cast<void*>(transfer_buffer<kEnqueueWriteBuffer>));
  put(kEnqueueReadImage, reinterpret_cast<void*>(transfer_image<kEnqueueReadImage>));
  put(kEnqueueWriteImage, reinterpret_cast<void*>(transfer_image<kEnqueueWriteImage>));
  put(kBuildProgram, reinterpret_cast<void*>(build_program));
  put(kCreateKernel, reinterpret_cast<void*>(create_kernel));
  put(kSetKernelArg, reinterpret_cast<void*>(set_argument));
  put(kGetKernelWorkGroupInfo, reinterpret_cast<void*>(get_work_group_info));
  put(kEnqueueNDRangeKernel, reinterpret_cast<void*>(enqueue_kernel));
  put(kGetExtensionFunction, reinterpret_cast<void*>(get_extension_function));
  *told = static_cast<uint32_t>(table.size());
  *made = table.data();
  return 0;
}

// What newer loaders call in place of it, and at the end.
int clInitLayerWithProperties(uint32_t count, void** target, uint32_t* told, void*** made,
                              const void*) {
  return clInitLayer(count, target, told, made);
}
int clDeinitLayer(void) { return 0; }

}  // extern "C"
