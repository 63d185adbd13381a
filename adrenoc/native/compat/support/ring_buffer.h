// A queue of bytes, by the names that TVM's runtime sources expect.
// The TVM wheel ships sources that include this file but not the file itself.
#pragma once

#include <tvm/ffi/error.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <vector>

namespace tvm::support {

class RingBuffer {
 public:
  size_t bytes_available() const { return end_ - first_; }

  // Makes sure that `bytes` fit in all; what is held stays.
  void Reserve(size_t bytes) {
    if (first_ == end_) {
      first_ = end_ = 0;
      // One large tensor shall not hold its size in memory for the rest of a session.
      if (memory_.size() > kKeptBytes && bytes <= kKeptBytes) {
        memory_.resize(kKeptBytes);
        memory_.shrink_to_fit();
      }
    }
    if (first_ + bytes <= memory_.size()) return;
    std::copy(memory_.begin() + first_, memory_.begin() + end_, memory_.begin());
    end_ -= first_;
    first_ = 0;
    if (bytes > memory_.size()) memory_.resize(std::max(bytes, memory_.size() * 2));
  }

  // Takes exactly `bytes`, which must be there.
  void Read(void* target, size_t bytes) {
    if (bytes > bytes_available()) {
      TVM_FFI_THROW(RuntimeError) << "A buffer holds " << bytes_available() << " bytes, asked for "
                                  << bytes;
    }
    if (bytes != 0) std::memcpy(target, memory_.data() + first_, bytes);
    first_ += bytes;
  }

  void Write(const void* source, size_t bytes) {
    Reserve(bytes_available() + bytes);
    if (bytes != 0) std::memcpy(memory_.data() + end_, source, bytes);
    end_ += bytes;
  }

  // `send(data, bytes)` says how many bytes it took; returns that.
  template <typename Send>
  size_t ReadWithCallback(Send send, size_t limit) {
    const size_t piece = std::min(limit, bytes_available());
    if (piece == 0) return 0;
    const size_t sent = std::min<size_t>(send(memory_.data() + first_, piece), piece);
    first_ += sent;
    return sent;
  }

  // `receive(target, bytes)` says how many bytes it put there; returns that.
  template <typename Receive>
  size_t WriteWithCallback(Receive receive, size_t limit) {
    Reserve(bytes_available() + limit);
    if (limit == 0) return 0;
    const size_t received = std::min<size_t>(receive(memory_.data() + end_, limit), limit);
    end_ += received;
    return received;
  }

 private:
  static constexpr size_t kKeptBytes = 1 << 20;

  std::vector<char> memory_ = std::vector<char>(4 << 10);
  size_t first_ = 0;  // of what is held
  size_t end_ = 0;
};

}  // namespace tvm::support
