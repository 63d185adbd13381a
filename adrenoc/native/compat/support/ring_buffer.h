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
  size_t bytes_available() const { return held_; }

  // Makes sure that `bytes` fit in all; what is held stays.
  void Reserve(size_t bytes) {
    if (bytes <= memory_.size()) {
      shrink_if_empty(bytes);
      return;
    }
    std::vector<char> larger(std::max(bytes, memory_.size() * 2));
    const size_t held = held_;
    Read(larger.data(), held);
    memory_.swap(larger);
    first_ = 0;
    held_ = held;
  }

  // Takes exactly `bytes`, which must be there.
  void Read(void* target, size_t bytes) {
    if (bytes > held_) {
      TVM_FFI_THROW(RuntimeError) << "A buffer holds " << held_ << " bytes, asked for " << bytes;
    }
    auto* out = static_cast<char*>(target);
    while (bytes != 0) {
      const size_t piece = std::min(bytes, memory_.size() - first_);
      std::memcpy(out, memory_.data() + first_, piece);
      out += piece;
      bytes -= piece;
      drop(piece);
    }
  }

  void Write(const void* source, size_t bytes) {
    Reserve(held_ + bytes);
    const auto* in = static_cast<const char*>(source);
    while (bytes != 0) {
      const size_t end = end_of_held();
      const size_t piece = std::min(bytes, contiguous_free(end));
      std::memcpy(memory_.data() + end, in, piece);
      in += piece;
      bytes -= piece;
      held_ += piece;
    }
  }

  // `send(data, bytes)` says how many bytes it took; returns that.
  template <typename Send>
  size_t ReadWithCallback(Send send, size_t limit) {
    const size_t piece = std::min({limit, held_, memory_.size() - first_});
    if (piece == 0) return 0;
    const size_t sent = std::min<size_t>(send(memory_.data() + first_, piece), piece);
    drop(sent);
    return sent;
  }

  // `receive(target, bytes)` says how many bytes it put there; returns that.
  template <typename Receive>
  size_t WriteWithCallback(Receive receive, size_t limit) {
    Reserve(held_ + limit);
    const size_t end = end_of_held();
    const size_t piece = std::min(limit, contiguous_free(end));
    if (piece == 0) return 0;
    const size_t received = std::min<size_t>(receive(memory_.data() + end, piece), piece);
    held_ += received;
    return received;
  }

 private:
  static constexpr size_t kUsualBytes = 4 << 10;
  // One large tensor shall not hold its size in memory for the rest of a session.
  static constexpr size_t kKeptBytes = 1 << 20;

  void shrink_if_empty(size_t wanted) {
    if (held_ != 0 || memory_.size() <= kKeptBytes || wanted > kKeptBytes) return;
    memory_.resize(kKeptBytes);
    memory_.shrink_to_fit();
    first_ = 0;
  }
  size_t end_of_held() const { return (first_ + held_) % memory_.size(); }
  size_t contiguous_free(size_t end) const {
    return std::min(memory_.size() - held_, memory_.size() - end);
  }
  void drop(size_t bytes) {
    held_ -= bytes;
    first_ = held_ == 0 ? 0 : (first_ + bytes) % memory_.size();
  }

  std::vector<char> memory_ = std::vector<char>(kUsualBytes);
  size_t first_ = 0;
  size_t held_ = 0;
};

}  // namespace tvm::support
