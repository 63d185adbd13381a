#include "launch/capture.h"

#include <cstring>
#include <utility>

namespace adrenoc_runtime::opencl {
namespace {

thread_local Capture* thread_capture = nullptr;

}  // namespace

Capture* Capture::current() { return thread_capture; }

void Capture::add(const Device& device, Kernel& kernel, const WorkSize& work,
                  const std::vector<KernelArgument>& arguments) {
  if (&device != &device_) obstruct("it launches kernels on another device too");
  if (!obstacle_.empty()) return;
  CapturedLaunch launch{&kernel, work, {}};
  for (const KernelArgument& argument : arguments) {
    CapturedArgument kept{argument.bytes, {}, nullptr};
    if (argument.storage != nullptr) {
      kept.storage = *argument.storage;
    } else {
      std::memcpy(kept.scalar.data(), argument.value, argument.bytes);
    }
    launch.arguments.push_back(std::move(kept));
  }
  launches_.push_back(std::move(launch));
}

void Capture::add_step(std::function<void()> step) {
  {
    const CaptureScope closed(nullptr);
    step();
  }
  if (obstacle_.empty()) steps_.push_back({launches_.size(), std::move(step)});
}

void Capture::obstruct(const std::string& reason) {
  if (obstacle_.empty()) obstacle_ = reason;
  launches_.clear();
  steps_.clear();
}

CaptureScope::CaptureScope(Capture* capture)
    : before_(std::exchange(thread_capture, capture)) {}

CaptureScope::~CaptureScope() { thread_capture = before_; }

}  // namespace adrenoc_runtime::opencl
