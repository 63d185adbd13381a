// Prepares and runs a region on an emulated device again and again: with each call failing at each
// place and with each error, plain, in a tuning run and with what was tuned; on devices of each
// version and without any; and with OpenCL failing beneath.  Under sanitizers nothing may be lost,
// read beyond its end, or left alive, and no number may be another.
//
//   leaks LIBRARY GRAPH.json CONSTANTS.bin TUNING.bin
//   leaks LIBRARY GRAPH.json CONSTANTS.bin --real      the same of the file for the real library
//
// CONSTANTS.bin holds the floats of the graph's constants one after the other; TUNING.bin is
// written.  Prints {"tried", "refused", "failed", "calls"} of all attempts.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/tensor.h>

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "clml/backend.h"
#include "clml/emulator.h"
#include "clml/graph.h"
#include "clml/module.h"

namespace ffi = tvm::ffi;
namespace clml = adrenoc_runtime::clml;
using tvm::runtime::Tensor;

namespace {

constexpr DLDataType kFloat = {kDLFloat, 32, 1};
constexpr DLDevice kDevice = {kDLOpenCL, 0};

std::string whole_file(const char* path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream content;
  content << file.rdbuf();
  return content.str();
}

ffi::Array<Tensor> constants_of(const clml::Graph& graph, const std::string& bytes) {
  ffi::Array<Tensor> tensors;
  const char* at = bytes.data();
  for (const size_t index : graph.constants) {
    const clml::GraphNode& node = graph.nodes[index];
    Tensor tensor = Tensor::Empty(ffi::Shape(node.shape), kFloat, {kDLCPU, 0});
    tensor.CopyFromBytes(at, node.elements() * sizeof(float));
    at += node.elements() * sizeof(float);
    tensors.push_back(tensor);
  }
  return tensors;
}

// Whether CLML ran the region, and what came out.
struct Outcome {
  bool usable = false;
  bool failed = false;
  std::vector<float> result;
};

Outcome attempt(const std::string& text, const std::string& constants, const std::string& settings) {
  clml::emulate(settings);
  const clml::Graph graph = clml::read_graph(text);
  ffi::Array<ffi::String> names;
  for (const size_t index : graph.constants) names.push_back(graph.nodes[index].name);
  const ffi::Module module = clml::make_clml_module("region", text, names);
  (void)module->GetFunction("__init_region").value()(constants_of(graph, constants));
  const auto tensor_of = [&](size_t index) {
    return Tensor::Empty(ffi::Shape(graph.nodes[index].shape), kFloat, kDevice);
  };
  Tensor input = tensor_of(graph.inputs[0]), output = tensor_of(graph.outputs[0]);
  std::vector<float> data(graph.nodes[graph.inputs[0]].elements());
  for (size_t i = 0; i < data.size(); ++i) data[i] = static_cast<float>(i % 17) / 8 - 1;
  input.CopyFromBytes(data.data(), data.size() * sizeof(float));
  Outcome outcome;
  outcome.usable = module->GetFunction("region_usable").value()(1, input).cast<bool>();
  try {
    if (outcome.usable) (void)module->GetFunction("region").value()(input, output);
  } catch (const ffi::Error&) {
    outcome.failed = true;
  }
  if (outcome.usable && !outcome.failed) {
    outcome.result.resize(graph.nodes[graph.outputs[0]].elements());
    output.CopyToBytes(outcome.result.data(), outcome.result.size() * sizeof(float));
  }
  return outcome;
}

struct Counts {
  int tried = 0, refused = 0, failed = 0;
};

struct Trials {
  const std::string text, constants;
  std::vector<float> good;
  Counts counts;

  // Whether CLML ran all of it; no wrong number is borne.
  bool attempt_once(const std::string& settings) {
    const Outcome outcome = attempt(text, constants, settings);
    ++counts.tried;
    counts.refused += !outcome.usable;
    counts.failed += outcome.failed;
    if (!outcome.result.empty() && outcome.result != good) std::exit(4);
    return outcome.usable && !outcome.failed;
  }
};

std::string failing(const std::string& call, const std::string& code, int after, bool recording) {
  return "{\"failing_call\":\"" + call + "\",\"failing_code\":\"" + code +
         "\",\"failing_after\":" + std::to_string(after) +
         ",\"recording\":" + (recording ? "true" : "false") + "}";
}

// Each call at each of its places, then with each other error at the first; returns how many calls
// the region makes at all.
int fail_each_call(Trials* trials, bool recording) {
  int called = 0;
  for (const auto& [call, codes] : clml::emulated_calls()) {
    const Counts before = trials->counts;
    for (int after = 0; after < 60; ++after) {
      if (trials->attempt_once(failing(call, codes[0], after, recording))) break;
    }
    if (trials->counts.tried == before.tried + 1) continue;  // it is not called
    ++called;
    for (const std::string& code : codes) {
      (void)trials->attempt_once(failing(call, code, 0, recording));
    }
  }
  return called;
}

void fail_opencl(Trials* trials, const char* library) {
  void* handle = dlopen(library, RTLD_NOW);
  auto* fail = reinterpret_cast<void (*)(const char*, int)>(dlsym(handle, "fail_opencl"));
  if (fail == nullptr) std::exit(6);
  for (const char* call : {"clCreateBuffer", "clEnqueueReadBuffer", "clEnqueueWriteBuffer"}) {
    for (int after = 0; after < 60; ++after) {
      fail(call, after);
      bool whole = false;
      try {
        whole = trials->attempt_once("{}");
      } catch (const ffi::Error&) {  // the tensors of the caller had no memory
        ++trials->counts.failed;
      }
      fail("", 0);
      if (whole) break;
    }
  }
  dlclose(handle);
}

// The file for the real library, on one that makes and counts objects and computes nothing: each
// of its calls fails at each of its places.
int run_real_backend(const std::string& text, const std::string& constants, const char* library) {
  void* handle = dlopen(library, RTLD_NOW);
  auto* fail = reinterpret_cast<void (*)(const char*, int)>(dlsym(handle, "fail_clml"));
  auto* live = reinterpret_cast<int (*)()>(dlsym(handle, "live_clml_objects"));
  auto* called = reinterpret_cast<const char* (*)()>(dlsym(handle, "called_clml"));
  if (fail == nullptr || live == nullptr || called == nullptr) return 6;
  Counts counts;
  const auto runs = [&](const char* call, int after) {
    fail(call, after);
    const Outcome outcome = attempt(text, constants, "");
    clml::emulate("");  // the library is let go
    if (live() != 0) std::exit(5);
    ++counts.tried;
    counts.refused += !outcome.usable;
    counts.failed += outcome.failed;
    return outcome.usable && !outcome.failed;
  };
  if (!runs("", 0)) return 3;
  std::istringstream names(called());
  for (std::string call; names >> call;) {
    if (call.rfind("clRelease", 0) == 0) continue;
    for (int after = 0; after < 80; ++after) {
      if (runs(call.c_str(), after)) break;
    }
  }
  std::printf("{\"tried\": %d, \"refused\": %d, \"failed\": %d, \"called\": \"%s\"}\n", counts.tried,
              counts.refused, counts.failed, called());
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 5) return 2;
  adrenoc_runtime::opencl::set_library(arguments[1]);
  if (std::string(arguments[4]) == "--real") {
    return run_real_backend(whole_file(arguments[2]), whole_file(arguments[3]), arguments[1]);
  }
  Trials trials{whole_file(arguments[2]), whole_file(arguments[3]), {}, {}};
  const Outcome good = attempt(trials.text, trials.constants, "{}");
  if (!good.usable || good.failed) return 3;
  trials.good = good.result;
  int calls = 0;
  for (const bool recording : {true, false}) calls += fail_each_call(&trials, recording);
  setenv("CLML_TUNING_CACHE", arguments[4], 1);
  setenv("CLML_IS_TUNING_RUN", "1", 1);
  if (!trials.attempt_once("{}")) return 3;
  calls += fail_each_call(&trials, true);
  if (!trials.attempt_once("{}")) return 3;
  setenv("CLML_IS_TUNING_RUN", "0", 1);
  calls += fail_each_call(&trials, true);
  unsetenv("CLML_TUNING_CACHE");
  for (const char* versions : {"[]", "[1]", "[1,2]", "[1,2,3]", "[1,2,3,4]", "[1,2,3,4,5]", "[5]"}) {
    (void)trials.attempt_once(std::string("{\"versions\":") + versions + "}");
  }
  (void)trials.attempt_once("{\"extension\":false}");
  fail_opencl(&trials, arguments[1]);
  clml::emulate("");
  if (clml::live_emulator_objects() != 0) return 5;
  std::printf("{\"tried\": %d, \"refused\": %d, \"failed\": %d, \"calls\": %d}\n",
              trials.counts.tried, trials.counts.refused, trials.counts.failed, calls);
  return 0;
}
