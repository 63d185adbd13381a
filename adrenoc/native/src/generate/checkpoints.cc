#include "generate/checkpoints.h"

#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

#include <algorithm>

#include "generate/context_file.h"

namespace adrenoc_runtime::opencl {
namespace {

// Copies a state to a buffer of its own, or back.
void copy_state(Device& device, const DLTensor& state, const Storage& copy, bool is_back) {
  const auto& descriptor = *static_cast<const Descriptor*>(state.data);
  if (descriptor.is_image()) TVM_FFI_THROW(ValueError) << "a state is no buffer";
  const size_t bytes = tvm::ffi::GetDataSize(state);
  const cl_mem from = is_back ? copy.mem.get() : descriptor.mem();
  const cl_mem to = is_back ? descriptor.mem() : copy.mem.get();
  const QueueLock queue = device.lock_queue();
  ADRENOC_CL_CALL(clEnqueueCopyBuffer, queue.get(), from, to, is_back ? 0 : state.byte_offset,
                  is_back ? state.byte_offset : 0, bytes, 0, nullptr, nullptr);
}

}  // namespace

void Checkpoints::take(const std::vector<const DLTensor*>& states, int64_t length) {
  if (length == 0) return;  // zeros are had without a copy
  const auto is_older = [](const Checkpoint& one, const Checkpoint& other) {
    return one.length < other.length;
  };
  // In place of one of as many tokens, which says the same, or of the older one.
  auto place = std::find_if(kept_.begin(), kept_.end(),
                            [&](const Checkpoint& one) { return one.length == length; });
  if (place == kept_.end()) place = std::min_element(kept_.begin(), kept_.end(), is_older);
  place->length = 0;  // until all are there
  for (size_t i = 0; i < states.size(); ++i) {
    if (place->copies.size() == i) {
      const size_t bytes = std::max<size_t>(tvm::ffi::GetDataSize(*states[i]), 1);
      place->copies.push_back(device_.memory().allocate(StorageSpec::buffer(bytes)));
    }
    copy_state(device_, *states[i], *place->copies[i], false);
  }
  place->length = length;
}

int64_t Checkpoints::put_back(const std::vector<const DLTensor*>& states, int64_t length) {
  const Checkpoint* youngest = nullptr;
  for (const Checkpoint& one : kept_) {
    if (one.length == 0 || one.length > length) continue;
    if (youngest == nullptr || one.length > youngest->length) youngest = &one;
  }
  if (youngest == nullptr) {
    clear_states(states);
    return 0;
  }
  for (size_t i = 0; i < states.size(); ++i) {
    copy_state(device_, *states[i], *youngest->copies[i], true);
  }
  return youngest->length;
}

void Checkpoints::forget_beyond(int64_t length) {
  for (Checkpoint& one : kept_) {
    if (one.length > length) one.length = 0;
  }
}

void Checkpoints::forget() { kept_ = {}; }

}  // namespace adrenoc_runtime::opencl
