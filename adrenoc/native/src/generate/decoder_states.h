// What the states of a decoder hold, as bytes and as copies on the device: of caches rows in use
// alone.
#pragma once

#include <dlpack/dlpack.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "opencl/device.h"

namespace adrenoc_runtime::opencl {

struct ContextFill {
  int64_t rows = 0;
  int64_t length = 0;
  std::optional<int64_t> pending;  // made, but not in the caches
  std::vector<int64_t> taken{};    // the tokens that the caches hold
};

// The memory that a decoder keeps: caches have an axis of rows, a recurrent one changes as a whole.
struct KeptState {
  const DLTensor* tensor;
  bool is_recurrent;
};

// The sentence of an error: there is no room for `count` more.
[[nodiscard]] inline std::string context_full(int64_t length, int64_t rows, int64_t count) {
  return "the context is full: it has " + std::to_string(rows) + " rows, " +
         std::to_string(length) + " of them hold tokens, and there is no room for " +
         std::to_string(count) + " more";
}

// A state as rows: `outer` times `rows` rows of `row_bytes`; `rows` is 0 where it has none.
struct StateRows {
  size_t outer = 1;
  size_t rows = 0;
  size_t row_bytes = 0;
  size_t bytes = 0;

  [[nodiscard]] size_t saved_bytes(int64_t length) const {
    return rows == 0 ? bytes : outer * static_cast<size_t>(length) * row_bytes;
  }
};

// Moves the first rows between the device and `data`, in dense pieces.
template <typename Move>
void move_rows(const DLTensor& state, const StateRows& rows, int64_t length, Move move) {
  const auto& descriptor = *static_cast<const Descriptor*>(state.data);
  if (descriptor.is_image()) TVM_FFI_THROW(ValueError) << "a state is no buffer";
  const size_t pieces = rows.rows == 0 ? 1 : rows.outer;
  const size_t piece = rows.saved_bytes(length) / pieces;
  if (piece == 0) return;
  const size_t stride = rows.bytes / pieces;
  Device& device = device_at(state.device.device_id);
  const QueueLock queue = device.lock_queue();
  for (size_t i = 0; i < pieces; ++i) {
    move(queue.get(), descriptor.mem(), state.byte_offset + i * stride, i * piece, piece);
  }
}

// Fills states with zeros.
inline void clear_states(const std::vector<const DLTensor*>& states) {
  // A piece at a time: a cache may be as large as what the host has left.
  const std::vector<char> zeros(size_t{1} << 20);
  for (const DLTensor* state : states) {
    const StateRows whole{1, 0, 0, tvm::ffi::GetDataSize(*state)};
    move_rows(*state, whole, 0,
              [&](cl_command_queue queue, cl_mem mem, size_t to, size_t, size_t bytes) {
                for (size_t done = 0; done < bytes; done += zeros.size()) {
                  ADRENOC_CL_CALL(clEnqueueWriteBuffer, queue, mem, CL_TRUE, to + done,
                                  std::min(zeros.size(), bytes - done), zeros.data(), 0, nullptr,
                                  nullptr);
                }
              });
  }
}

constexpr char kMagic[] = "adrenoc context 2\n";

struct FileHeader {
  char magic[sizeof(kMagic)];
  int64_t length;
  int64_t pending;
  uint32_t has_pending;
  uint32_t states;
};

inline StateRows rows_of(const KeptState& kept, int64_t rows) {
  const DLTensor& state = *kept.tensor;
  StateRows found;
  found.bytes = tvm::ffi::GetDataSize(state);
  if (kept.is_recurrent) return found;
  // Caches are [batch, heads, rows, numbers], some [batch, rows, heads, numbers].
  for (const int axis : {2, 1}) {
    if (state.ndim != 4 || state.shape[axis] != rows) continue;
    for (int i = 0; i < axis; ++i) found.outer *= static_cast<size_t>(state.shape[i]);
    found.rows = static_cast<size_t>(rows);
    found.row_bytes = found.bytes / found.outer / found.rows;
    break;
  }
  return found;
}

inline size_t token_bytes(int64_t length) { return static_cast<size_t>(length) * sizeof(int64_t); }

// What save_context gives.
[[nodiscard]] inline size_t saved_bytes(const std::vector<KeptState>& states,
                                        const ContextFill& fill) {
  size_t bytes = sizeof(FileHeader);
  for (const KeptState& state : states) {
    bytes += sizeof(uint64_t) + rows_of(state, fill.rows).saved_bytes(fill.length);
  }
  return bytes + token_bytes(fill.length);
}

// Of caches, with an axis of `rows`, what the first rows hold; other states whole; and the tokens
// that made them.
[[nodiscard]] inline std::string save_context(const std::vector<KeptState>& states,
                                              const ContextFill& fill) {
  FileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  header.length = fill.length;
  header.pending = fill.pending.value_or(0);
  header.has_pending = fill.pending.has_value() ? 1 : 0;
  header.states = static_cast<uint32_t>(states.size());
  std::string saved(reinterpret_cast<const char*>(&header), sizeof(header));
  saved.reserve(saved_bytes(states, fill));
  for (const KeptState& state : states) {
    const StateRows rows = rows_of(state, fill.rows);
    const uint64_t bytes = rows.saved_bytes(fill.length);
    saved.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    const size_t begin = saved.size();
    saved.resize(begin + bytes);
    move_rows(*state.tensor, rows, fill.length,
              [&](cl_command_queue queue, cl_mem mem, size_t from, size_t to, size_t piece) {
                ADRENOC_CL_CALL(clEnqueueReadBuffer, queue, mem, CL_TRUE, from, piece,
                                saved.data() + begin + to, 0, nullptr, nullptr);
              });
  }
  saved.append(reinterpret_cast<const char*>(fill.taken.data()), token_bytes(fill.length));
  return saved;
}

[[noreturn]] inline void refuse_context(const std::string& why) {
  TVM_FFI_THROW(ValueError) << "this is no context that was saved of this model: " << why;
  TVM_FFI_UNREACHABLE();
}

// Writes what save_context gave into states of the same model, whose context may be of another
// length.  Throws ValueError for anything else, before it writes.
[[nodiscard]] inline ContextFill restore_context(const std::string& saved,
                                                 const std::vector<KeptState>& states,
                                                 int64_t rows) {
  FileHeader header{};
  if (saved.size() < sizeof(header)) refuse_context("it is too short");
  std::memcpy(&header, saved.data(), sizeof(header));
  if (std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) refuse_context("it begins otherwise");
  if (header.length < 0) refuse_context("its length is negative");
  if (header.length > rows) {
    TVM_FFI_THROW(ValueError) << "the saved context holds " << header.length
                              << " tokens, this one has " << rows << " rows";
  }
  if (header.states != states.size()) refuse_context("it has other states");
  std::vector<size_t> begins;
  size_t at = sizeof(header);
  for (const KeptState& state : states) {
    uint64_t bytes = 0;
    if (saved.size() - at < sizeof(bytes)) refuse_context("it is cut off");
    std::memcpy(&bytes, saved.data() + at, sizeof(bytes));
    at += sizeof(bytes);
    if (bytes != rows_of(state, rows).saved_bytes(header.length)) {
      refuse_context("a state has another size");
    }
    if (saved.size() - at < bytes) refuse_context("it is cut off");
    begins.push_back(at);
    at += bytes;
  }
  ContextFill fill{rows, header.length, std::nullopt};
  if (saved.size() - at < token_bytes(header.length)) refuse_context("it is cut off");
  fill.taken.resize(static_cast<size_t>(header.length));
  std::memcpy(fill.taken.data(), saved.data() + at, token_bytes(header.length));
  at += token_bytes(header.length);
  if (at != saved.size()) refuse_context("it is too long");
  for (size_t i = 0; i < states.size(); ++i) {
    move_rows(*states[i].tensor, rows_of(states[i], rows), header.length,
              [&](cl_command_queue queue, cl_mem mem, size_t to, size_t from, size_t piece) {
                ADRENOC_CL_CALL(clEnqueueWriteBuffer, queue, mem, CL_TRUE, to, piece,
                                saved.data() + begins[i] + from, 0, nullptr, nullptr);
              });
  }
  if (header.has_pending != 0) fill.pending = header.pending;
  return fill;
}

// Copies a state to a buffer of its own, or back.
inline void copy_state(Device& device, const DLTensor& state, const Storage& copy, bool is_back) {
  const auto& descriptor = *static_cast<const Descriptor*>(state.data);
  if (descriptor.is_image()) TVM_FFI_THROW(ValueError) << "a state is no buffer";
  const size_t bytes = tvm::ffi::GetDataSize(state);
  const cl_mem from = is_back ? copy.mem.get() : descriptor.mem();
  const cl_mem to = is_back ? descriptor.mem() : copy.mem.get();
  const QueueLock queue = device.lock_queue();
  ADRENOC_CL_CALL(clEnqueueCopyBuffer, queue.get(), from, to, is_back ? 0 : state.byte_offset,
                  is_back ? state.byte_offset : 0, bytes, 0, nullptr, nullptr);
}

// What some states held after so many tokens, on the device, to go back to: one that every token
// changes as a whole cannot forget one, so it is put back to what it was some tokens before, and
// those are taken in again.  The last two: steps that run ahead may have made the younger one of
// tokens that are taken back.
class Checkpoints {
 public:
  explicit Checkpoints(Device& device) : device_(device) {}

  // Copies the states, of buffers, in the queue; they hold `length` tokens then.
  void take(const std::vector<const DLTensor*>& states, int64_t length) {
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
  // Puts the states back to the youngest of at most `length` tokens, or to zeros; of how many it
  // is.
  [[nodiscard]] int64_t put_back(const std::vector<const DLTensor*>& states, int64_t length) {
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
  // Forgets those of more tokens.
  void forget_beyond(int64_t length) {
    for (Checkpoint& one : kept_) {
      if (one.length > length) one.length = 0;
    }
  }
  // Gives the memory back too.
  void forget() { kept_ = {}; }

 private:
  struct Checkpoint {
    int64_t length = 0;  // 0 of none
    std::vector<std::shared_ptr<Storage>> copies;
  };

  Device& device_;
  std::array<Checkpoint, 2> kept_;
};

}  // namespace adrenoc_runtime::opencl
