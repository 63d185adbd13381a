// Prepares and runs a region on an emulated device again and again, with one call failing each
// time: under sanitizers nothing may be lost, read beyond its end, or left alive.
//
//   leaks LIBRARY GRAPH.json CONSTANTS.bin INPUT_ELEMENTS OUTPUT_ELEMENTS
//
// CONSTANTS.bin holds the floats of the graph's constants one after the other.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/ffi/function.h>
#include <tvm/runtime/tensor.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

#include "clml/backends.h"
#include "clml/emulator.h"
#include "clml/module.h"

namespace ffi = tvm::ffi;
namespace clml = adrenoc::clml;
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
  clml::ClmlModule::Names names;
  for (const size_t index : graph.constants) names.push_back(graph.nodes[index].name);
  const ffi::Module module(ffi::make_object<clml::ClmlModule>("region", text, names));
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

}  // namespace

int main(int count, char** arguments) {
  if (count != 4) return 2;
  adrenoc::opencl::set_library(arguments[1]);
  const std::string text = whole_file(arguments[2]), constants = whole_file(arguments[3]);
  const Outcome good = attempt(text, constants, "{}");
  if (!good.usable || good.failed) return 3;
  int tried = 0, refused = 0, failed = 0;
  const char* calls[] = {
      "clQueryMLInterfaceVersionsQCOM",
      "clGetMLInterfaceQCOM",
      "clCreateMLTensorQCOM",
      "clGetMLTensorMemorySizeQCOM",
      "clCreateMLOp",
      "clCreateMLTensorMemoryDescriptorSetQCOM",
      "clUpdateMLTensorMemoryDescriptorSetQCOM",
      "clEnqueueWriteMLTensorDataQCOM",
      "clCreateMLTuningCacheQCOM",
      "clNewRecordingQCOM",
      "clEndRecordingQCOM",
      "clEnqueueCopyMLTensorDataQCOM",
      "clEnqueueMLOpQCOM",
      "clEnqueueRecordingMLOpQCOM",
  };
  for (const char* call : calls) {
    for (int after = 0; after < 40; ++after) {
      const std::string settings = std::string("{\"failing_call\":\"") + call +
                                   "\",\"failing_code\":\"CL_OUT_OF_RESOURCES\",\"failing_after\":" +
                                   std::to_string(after) + "}";
      const Outcome outcome = attempt(text, constants, settings);
      ++tried;
      refused += !outcome.usable;
      failed += outcome.failed;
      if (!outcome.result.empty() && outcome.result != good.result) return 4;
      if (outcome.usable && !outcome.failed) break;  // it is not called so often
    }
  }
  clml::emulate("");
  if (clml::live_emulator_objects() != 0) return 5;
  std::printf("{\"tried\": %d, \"refused\": %d, \"failed\": %d}\n", tried, refused, failed);
  return 0;
}
