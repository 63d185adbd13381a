#include "opencl/diagnosis.h"

namespace adrenoc_runtime::opencl {
namespace {

namespace ffi = tvm::ffi;

constexpr const char* kAmbiguous = "CL_OUT_OF_RESOURCES";

std::string mebibytes(uint64_t bytes) { return std::to_string(bytes >> 20) + " MiB"; }

// What a device answers to a small write that is waited for; "" where all went well.
std::string small_command(Device& device) {
  constexpr size_t bytes = 64;
  const char zeros[bytes] = {};
  cl_int code = CL_SUCCESS;
  const MemHandle memory(
      api().clCreateBuffer(device.context(), CL_MEM_READ_WRITE, bytes, nullptr, &code));
  if (code != CL_SUCCESS) return "clCreateBuffer failed with " + error_name(code);
  const QueueLock queue = device.lock_queue();
  code = api().clEnqueueWriteBuffer(queue.get(), memory.get(), CL_TRUE, 0, bytes, zeros, 0, nullptr,
                                    nullptr);
  if (code != CL_SUCCESS) return "clEnqueueWriteBuffer failed with " + error_name(code);
  code = api().clFinish(queue.get());
  return code == CL_SUCCESS ? "" : "clFinish failed with " + error_name(code);
}

}  // namespace

std::string Diagnosis::text() const {
  const std::string used = mebibytes(used_bytes) + " of the device's " + mebibytes(device_bytes) +
                           " are in use by this process";
  if (!refusal.empty()) {
    return "the device takes no command any more (" + refusal + "), while " + used +
           ": it was lost, as after a kernel that faulted or ran for too long";
  }
  if (is_memory_short()) {
    return "the device takes commands again, and " + used +
           ": memory ran out, or else a kernel faulted or ran for too long";
  }
  return "the device takes commands again, and " + used +
         ": a kernel faulted, ran for too long, or asked for more registers or local memory than "
         "there are, rather than that memory ran out";
}

ffi::json::Object Diagnosis::to_json() const {
  ffi::json::Object json;
  json.Set("used_bytes", static_cast<int64_t>(used_bytes));
  json.Set("device_bytes", static_cast<int64_t>(device_bytes));
  json.Set("refusal", ffi::String(refusal));
  json.Set("memory_short", is_memory_short());
  json.Set("text", ffi::String(text()));
  return json;
}

Diagnosis diagnose(Device& device) {
  Diagnosis found;
  found.used_bytes = device.memory().allocated_bytes();
  found.device_bytes = device.info().global_memory_bytes;
  device.memory().release_pool();
  found.refusal = small_command(device);
  return found;
}

std::string explained(const std::string& message, Device& device) {
  if (message.find(kAmbiguous) == message.npos) return message;
  return message + "; " + diagnose(device).text();
}

}  // namespace adrenoc_runtime::opencl
