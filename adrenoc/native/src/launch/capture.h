// Notes what a run launches, so that it can be launched again without the virtual machine.
#pragma once

#include <array>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/kernel.h"
#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

// An argument that outlives the run: the bytes of a scalar, or memory, which is held.
struct CapturedArgument {
  size_t bytes;
  std::array<char, 8> scalar;
  std::shared_ptr<Storage> storage;

  [[nodiscard]] KernelArgument get() const {
    return {bytes, scalar.data(), storage == nullptr ? nullptr : &storage};
  }
};

struct CapturedLaunch {
  Kernel* kernel;
  WorkSize work;
  std::vector<CapturedArgument> arguments;
};

// What a run does between its launches, with all that it takes to do it again.
struct CapturedStep {
  size_t launches_before;
  std::function<void()> again;
};

// The launches of one run on one device.  What a thread launches goes to the capture that it has
// open; so do the reasons why the launches alone would not make the run again.
class Capture {
 public:
  explicit Capture(const Device& device) : device_(device) {}

  void add(const Device& device, Kernel& kernel, const WorkSize& work,
           const std::vector<KernelArgument>& arguments);

  // Does what is no launch, and can be done again on the same memory.
  void add_step(std::function<void()> step);

  // The run does what is no launch and cannot be repeated; the first reason is kept.
  void obstruct(const std::string& reason);

  // The launches hold only as long as `holds` says so.
  void require(std::function<bool()> holds) { conditions_.push_back(std::move(holds)); }

  [[nodiscard]] const std::string& obstacle() const { return obstacle_; }
  [[nodiscard]] std::vector<CapturedLaunch>& launches() { return launches_; }
  [[nodiscard]] std::vector<CapturedStep>& steps() { return steps_; }
  [[nodiscard]] std::vector<std::function<bool()>>& conditions() { return conditions_; }

 private:
  const Device& device_;
  std::vector<CapturedLaunch> launches_;
  std::vector<CapturedStep> steps_;
  std::vector<std::function<bool()>> conditions_;
  std::string obstacle_;
};
using CaptureScope = ThreadScope<Capture>;

}  // namespace adrenoc_runtime::opencl
