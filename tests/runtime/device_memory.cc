// Binds memory of the device: buffers that this program makes in the runtime's context, and an
// AHardwareBuffer; the tests compile this file.
//
//   device_memory BUNDLE OPENCL CACHE INPUT... ; outputs go to stdout as raw bytes.
//
// With ADRENOC_TEST_HARDWARE_BUFFER (qcom or khr) the OpenCL library is one that takes
// AHardwareBuffers (hardware_buffer_opencl.c), and this program plays the part of Android.
#include <dlfcn.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

#include "adrenoc.hpp"

// What AHardwareBuffer_describe tells, as android/hardware_buffer.h has it.
struct Facts {
  uint32_t width, height, layers, format;
  uint64_t usage;
  uint32_t stride, reserved0;
  uint64_t reserved1;
};

struct AHardwareBuffer {
  Facts facts;
  void* memory;
};

extern "C" __attribute__((visibility("default"))) void AHardwareBuffer_describe(
    const AHardwareBuffer* buffer, Facts* facts) {
  *facts = buffer->facts;
}
extern "C" __attribute__((visibility("default"))) void* test_memory_of(AHardwareBuffer* buffer) {
  return buffer->memory;
}
extern "C" __attribute__((visibility("default"))) size_t test_bytes_of(AHardwareBuffer* buffer) {
  return buffer->facts.width;
}

namespace {

using Bytes = std::vector<char>;

void expect(bool holds, const char* claim) {
  if (holds) return;
  std::fprintf(stderr, "not so: %s (last error: %s)\n", claim, adrenoc_last_error());
  std::exit(1);
}
#define EXPECT(claim) expect(claim, #claim)

template <typename Function>
Function opencl(const char* name) {
  static void* library = nullptr;
  if (library == nullptr) library = dlopen(std::getenv("OPENCL"), RTLD_NOW);
  auto found = reinterpret_cast<Function>(dlsym(library, name));
  EXPECT(found != nullptr);
  return found;
}

void* create_buffer(void* context, size_t bytes, const void* content) {
  using Create = void* (*)(void*, uint64_t, size_t, const void*, int32_t*);
  int32_t code = 0;
  const uint64_t flags = content == nullptr ? 1 : 1 | 1 << 5;  // read and write, copy from the host
  void* buffer = opencl<Create>("clCreateBuffer")(context, flags, bytes, content, &code);
  EXPECT(code == 0);
  return buffer;
}

void release(void* buffer) { EXPECT(opencl<int32_t (*)(void*)>("clReleaseMemObject")(buffer) == 0); }

Bytes read_buffer(void* context, void* device, void* buffer, size_t bytes) {
  using CreateQueue = void* (*)(void*, void*, uint64_t, int32_t*);
  using Read = int32_t (*)(void*, void*, uint32_t, size_t, size_t, void*, uint32_t, void*, void*);
  int32_t code = 0;
  void* queue = opencl<CreateQueue>("clCreateCommandQueue")(context, device, 0, &code);
  EXPECT(code == 0);
  Bytes content(bytes);
  EXPECT(opencl<Read>("clEnqueueReadBuffer")(queue, buffer, 1, 0, bytes, content.data(), 0, nullptr,
                                             nullptr) == 0);
  opencl<int32_t (*)(void*)>("clReleaseCommandQueue")(queue);
  return content;
}

Bytes read_file(const char* path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

AHardwareBuffer blob(Bytes* memory) {
  return {{static_cast<uint32_t>(memory->size()), 1, 1, 0x21, 0, 0, 0, 0}, memory->data()};
}

void with_buffers(adrenoc::Model* model, const std::vector<Bytes>& inputs) {
  void* context = model->opencl_context();
  void* device = model->opencl_device();
  std::vector<void*> given;
  for (size_t i = 0; i < inputs.size(); ++i) {
    given.push_back(create_buffer(context, inputs[i].size(), inputs[i].data()));
    model->bind_input_opencl(i, given.back());
    release(given.back());  // the runtime holds it
  }
  std::vector<void*> taken;
  const std::vector<adrenoc::Tensor> outputs = model->outputs();
  for (size_t i = 0; i < outputs.size(); ++i) {
    taken.push_back(create_buffer(context, outputs[i].bytes + 64, nullptr));  // may be larger
    model->bind_output_opencl(i, taken.back());
  }
  model->run();
  model->run();
  for (size_t i = 0; i < outputs.size(); ++i) {
    const Bytes content = read_buffer(context, device, taken[i], outputs[i].bytes);
    std::fwrite(content.data(), 1, content.size(), stdout);
  }
  // Host memory takes the place of a buffer, and another buffer that of host memory.
  Bytes host(outputs[0].bytes);
  model->bind_output(0, host);
  model->bind_input(0, inputs[0]);
  model->run();
  EXPECT(host == read_buffer(context, device, taken[0], host.size()));
  for (void* buffer : taken) release(buffer);
}

void with_hardware_buffers(adrenoc::Model* model, std::vector<Bytes> inputs) {
  std::vector<AHardwareBuffer> buffers;
  for (Bytes& input : inputs) buffers.push_back(blob(&input));
  for (size_t i = 0; i < buffers.size(); ++i) model->bind_input(i, &buffers[i]);
  std::vector<Bytes> results;
  for (const adrenoc::Tensor& tensor : model->outputs()) results.emplace_back(tensor.bytes);
  std::vector<AHardwareBuffer> taken;
  for (Bytes& result : results) taken.push_back(blob(&result));
  for (size_t i = 0; i < taken.size(); ++i) model->bind_output(i, &taken[i]);
  model->run();
  model->run();
  (void)model->profile();
  // After a run they are the app's again, whatever became of it.
  const auto acquired = opencl<int (*)()>("test_acquired");
  EXPECT(acquired() == 0);
  for (const Bytes& result : results) std::fwrite(result.data(), 1, result.size(), stdout);

  AHardwareBuffer image = buffers[0];
  image.facts.format = 1;  // RGBA of 8 bits
  adrenoc_model* none = nullptr;
  EXPECT(adrenoc_bind_input_hardware_buffer(none, 0, &image) == ADRENOC_BAD_ARGUMENT);
  try {
    model->bind_input(0, &image);
    EXPECT(false);
  } catch (const adrenoc::Error& error) {
    EXPECT(error.status() == ADRENOC_BAD_ARGUMENT);
    EXPECT(std::strstr(error.what(), "expected AHARDWAREBUFFER_FORMAT_BLOB") != nullptr);
  }
  image = buffers[0];
  image.facts.width -= 1;
  try {
    model->bind_input(0, &image);
    EXPECT(false);
  } catch (const adrenoc::Error& error) {
    EXPECT(error.status() == ADRENOC_BAD_ARGUMENT);
  }
}

// What the software device cannot do, or nobody can.
void wrong_calls(adrenoc::Model* model, std::vector<Bytes> inputs) {
  AHardwareBuffer buffer = blob(&inputs[0]);
  try {
    model->bind_input(0, &buffer);
    EXPECT(false);
  } catch (const adrenoc::Error& error) {
    EXPECT(error.status() == ADRENOC_UNSUPPORTED);
    EXPECT(std::strstr(error.what(), "cl_qcom_android_ahardwarebuffer_host_ptr") != nullptr);
  }
  void* small = create_buffer(model->opencl_context(), inputs[0].size() - 1, nullptr);
  try {
    model->bind_input_opencl(0, small);
    EXPECT(false);
  } catch (const adrenoc::Error& error) {
    EXPECT(error.status() == ADRENOC_BAD_ARGUMENT);
    EXPECT(std::strstr(error.what(), "the cl_mem has ") != nullptr);
  }
  release(small);
  using CreateContext = void* (*)(void*, uint32_t, void**, void*, void*, int32_t*);
  int32_t code = 0;
  void* device = model->opencl_device();
  void* context = opencl<CreateContext>("clCreateContext")(nullptr, 1, &device, nullptr, nullptr,
                                                           &code);
  EXPECT(code == 0);
  void* foreign = create_buffer(context, inputs[0].size(), nullptr);
  try {
    model->bind_input_opencl(0, foreign);
    EXPECT(false);
  } catch (const adrenoc::Error& error) {
    EXPECT(error.status() == ADRENOC_BAD_ARGUMENT);
    EXPECT(std::strstr(error.what(), "of another context") != nullptr);
  }
  release(foreign);
  opencl<int32_t (*)(void*)>("clReleaseContext")(context);
}

}  // namespace

int main(int count, char** values) {
  setenv("OPENCL", values[2], 1);
  adrenoc::Options options;
  options.opencl_library = values[2];
  options.cache_folder = values[3];
  adrenoc::Model model(values[1], options);
  std::vector<Bytes> inputs;
  for (int i = 4; i < count; ++i) inputs.push_back(read_file(values[i]));
  if (std::getenv("ADRENOC_TEST_HARDWARE_BUFFER") != nullptr) {
    with_hardware_buffers(&model, inputs);
    return 0;
  }
  with_buffers(&model, inputs);
  wrong_calls(&model, inputs);
  return 0;
}
