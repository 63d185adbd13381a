// The TVM module of kind "clml": one region of a model, run by an OpenCL ML library.
#pragma once

#include <tvm/ffi/container/array.h>
#include <tvm/ffi/extra/json.h>
#include <tvm/ffi/extra/module.h>
#include <tvm/runtime/tensor.h>

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "clml/backends.h"
#include "clml/engine.h"
#include "clml/graph.h"

namespace adrenoc_runtime::clml {

// A function that the module has beside those that TVM's own has: (device id) -> facts as JSON;
// it makes the region ready for the device, if it can.
constexpr const char* kPrepareFunction = "adrenoc.clml.prepare";

// The functions, with SYMBOL the name of the region, as TVM's JSON runtimes have them:
//   get_symbol(), get_const_vars()
//   __init_SYMBOL(constants)         host tensors, once
//   SYMBOL(inputs..., outputs...)    tensors in buffers of one OpenCL device
// and of our own:
//   SYMBOL_usable(version, tensor) -> whether CLML runs the region on the tensor's device, with
//   an interface of at least this version.  Where not, the bundle runs the same operators by its
//   own kernels.
class ClmlModule final : public tvm::ffi::ModuleObj {
 public:
  using Names = tvm::ffi::Array<tvm::ffi::String>;

  // Throws Failure for a damaged graph.
  ClmlModule(const tvm::ffi::String& symbol, const tvm::ffi::String& graph, Names constants);

  [[nodiscard]] const char* kind() const final { return "clml"; }
  [[nodiscard]] int GetPropertyMask() const final {
    return tvm::ffi::Module::kBinarySerializable | tvm::ffi::Module::kRunnable;
  }
  [[nodiscard]] tvm::ffi::Optional<tvm::ffi::Function> GetFunction(
      const tvm::ffi::String& name) final;
  [[nodiscard]] tvm::ffi::Bytes SaveToBytes() const final;
  [[nodiscard]] tvm::ffi::String InspectSource(const tvm::ffi::String&) const final {
    return graph_text_;
  }

 private:
  // What became of the region on one device.
  struct Prepared {
    std::shared_ptr<Backend> backend;
    std::unique_ptr<Engine> engine;  // null where CLML does not run the region
    std::string reason;
    int settings = 0;
  };

  void initialize(const tvm::ffi::Array<tvm::runtime::Tensor>& constants);
  [[nodiscard]] bool usable(int version, int device_id);
  void run(tvm::ffi::PackedArgs args);
  [[nodiscard]] cl_mem memory_of(const DLTensor& tensor, size_t node) const;
  [[nodiscard]] Prepared& prepared(int device_id);
  [[nodiscard]] Prepared prepare(opencl::Device& device) const;
  void give_up(Prepared* prepared, const std::string& reason) const;
  [[nodiscard]] tvm::ffi::json::Object facts(int device_id);

  const std::string symbol_;
  const std::string graph_text_;
  const Names constant_names_;
  const Graph graph_;
  std::mutex mutex_;
  std::vector<tvm::runtime::Tensor> constants_;
  bool initialized_ = false;
  int wanted_version_ = 0;  // the last that the bundle asked for
  std::map<int, Prepared> prepared_;
};

// Makes every region of a loaded module ready, and tells what became of each as JSON.  Their
// constants must be there, which they are once a virtual machine has been made of the module.
[[nodiscard]] tvm::ffi::String prepare_regions(const tvm::ffi::Module& module, int device_id);

}  // namespace adrenoc_runtime::clml
