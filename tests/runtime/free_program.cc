// Loads, runs and frees models on the counting OpenCL library, with each of its calls failing at each
// place: whatever happens, the device has all back once a model is freed.
//
//   free_program BUNDLE STUB DEVICE ; prints {"kept": objects of the context, "cycles", "failed",
//   "trimmed": objects that a trim gave back}
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "adrenoc.hpp"

namespace {

long (*live)();
void (*fail_after)(const char*, int, long);

// What fails while a model is loaded or run.
constexpr const char* kCalls[] = {
    "clCreateBuffer", "clCreateImage", "clEnqueueWriteBuffer", "clEnqueueWriteImage",
    "clEnqueueReadBuffer", "clEnqueueReadImage", "clCreateProgramWithSource", "clBuildProgram",
    "clCreateKernel", "clSetKernelArg", "clGetKernelWorkGroupInfo", "clEnqueueNDRangeKernel",
    "clFinish", "clFlush", "clCreateCommandBufferKHR", "clCommandNDRangeKernelKHR",
    "clFinalizeCommandBufferKHR", "clEnqueueCommandBufferKHR", "clNewRecordingQCOM",
    "clEndRecordingQCOM", "clEnqueueRecordingQCOM"};
constexpr int kOutOfResources = -5;
constexpr int kRuns = 9;  // ways to launch are tried in the first

struct Loaded {
  adrenoc::Model model;
  std::vector<std::vector<char>> inputs{};
  std::vector<std::vector<char>> outputs{};

  void run() {
    if (inputs.empty()) {
      for (const adrenoc::Tensor& tensor : model.inputs()) inputs.emplace_back(tensor.bytes);
      for (const adrenoc::Tensor& tensor : model.outputs()) outputs.emplace_back(tensor.bytes);
    }
    for (size_t i = 0; i < inputs.size(); ++i) model.bind_input(i, inputs[i]);
    for (size_t i = 0; i < outputs.size(); ++i) model.bind_output(i, outputs[i]);
    for (int i = 0; i < kRuns; ++i) model.run();
  }
};

void expect_live(long wanted, const std::string& after) {
  if (live() == wanted) return;
  std::fprintf(stderr, "%ld objects are left after %s, expected %ld\n", live(), after.c_str(),
               wanted);
  std::exit(1);
}

}  // namespace

int main(int count, char** values) {
  if (count != 4) return 2;
  void* stub = dlopen(values[2], RTLD_NOW);
  live = reinterpret_cast<long (*)()>(dlsym(stub, "stub_live"));
  fail_after = reinterpret_cast<void (*)(const char*, int, long)>(dlsym(stub, "stub_fail_after"));
  adrenoc::Options options;
  options.opencl_library = values[2];
  options.device = values[3];
  const auto load = [&] { return Loaded{adrenoc::Model(values[1], options)}; };

  load().run();
  const long kept = live();  // the context and its queue
  int cycles = 0;
  for (; cycles < 14; ++cycles) {
    load().run();
    expect_live(kept, "a cycle");
  }

  // Another model keeps what it has, and goes on.
  Loaded other = load();
  other.run();
  adrenoc::trim();  // what its first run alone needed
  const long of_other = live();
  load().run();
  other.run();
  expect_live(of_other, "another model's end");
  other.model.trim();
  const long trimmed = of_other - live();
  other.run();
  adrenoc::trim();
  expect_live(of_other, "a trim and a run");
  other = Loaded{adrenoc::Model(values[1], options)};
  other.run();
  adrenoc::trim();
  expect_live(of_other, "an exchange of models");

  int failed = 0;
  for (const char* call : kCalls) {
    for (const long calls : {0, 1, 2, 3, 5, 8, 20}) {
      fail_after(call, kOutOfResources, calls);
      try {
        load().run();
      } catch (const adrenoc::Error&) {
        ++failed;
      }
      fail_after(call, 0, 0);
      expect_live(of_other, std::string(call) + " that failed after " + std::to_string(calls));
    }
  }
  other.run();
  std::printf("{\"kept\": %ld, \"cycles\": %d, \"failed\": %d, \"trimmed\": %ld}\n", kept, cycles,
              failed, trimmed);
  return 0;
}
