// Memory that is given back all at once, by the names that TVM's runtime sources expect.
// The TVM wheel ships sources that include this file but not the file itself.
#pragma once

#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <vector>

namespace tvm::support {

// Serves the plain values of one message; RecycleAll makes room for the next.
class Arena {
 public:
  // `count` values of T, not initialised; valid until RecycleAll.
  template <typename T>
  T* allocate_(int count = 1) {
    static_assert(std::is_trivially_destructible<T>::value, "an arena runs no destructors");
    static_assert(alignof(T) <= alignof(std::max_align_t), "the alignment is too large");
    if (count < 0) throw std::bad_alloc();
    return static_cast<T*>(take(sizeof(T) * static_cast<size_t>(count)));
  }

  // Everything that was allocated becomes invalid; one block is kept for the next message.
  void RecycleAll() {
    if (blocks_.size() > 1) blocks_.resize(1);
    used_ = 0;
  }

 private:
  static constexpr size_t kBlockBytes = 16 << 10;
  struct Block {
    std::unique_ptr<unsigned char[]> memory;
    size_t bytes;
  };

  void* take(size_t bytes) {
    constexpr size_t step = alignof(std::max_align_t);
    bytes = (bytes + step - 1) / step * step;
    if (blocks_.empty() || blocks_.back().bytes - used_ < bytes) {
      const size_t block_bytes = bytes > kBlockBytes ? bytes : kBlockBytes;
      // operator new[] for bytes aligns for every plain type.
      blocks_.push_back(
          {std::unique_ptr<unsigned char[]>(new unsigned char[block_bytes]), block_bytes});
      used_ = 0;
    }
    void* taken = blocks_.back().memory.get() + used_;
    used_ += bytes;
    return taken;
  }

  std::vector<Block> blocks_;
  size_t used_ = 0;  // of the last block
};

}  // namespace tvm::support
