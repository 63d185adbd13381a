// Byte streams over memory, by the names that TVM's runtime sources expect.
// The TVM wheel ships sources that include this file but not the file itself.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/ffi/string.h>
#include <tvm/support/io.h>

#include <algorithm>
#include <cstring>
#include <string>

namespace tvm::support {

// Reads bytes that someone else keeps alive.
class BytesInStream : public Stream {
 public:
  using Stream::Read;
  using Stream::Write;

  BytesInStream(const void* bytes, size_t count)
      : next_(static_cast<const char*>(bytes)), left_(count) {}
  explicit BytesInStream(const ffi::Bytes& bytes) : BytesInStream(bytes.data(), bytes.size()) {}
  explicit BytesInStream(const std::string& bytes) : BytesInStream(bytes.data(), bytes.size()) {}

  size_t Read(void* target, size_t wanted) final {
    const size_t taken = std::min(wanted, left_);
    if (taken == 0) return 0;
    std::memcpy(target, next_, taken);
    next_ += taken;
    left_ -= taken;
    return taken;
  }
  size_t Write(const void*, size_t) final {
    TVM_FFI_THROW(RuntimeError) << "A stream to read from was written to";
    TVM_FFI_UNREACHABLE();
  }

 private:
  const char* next_;
  size_t left_;
};

// Appends to a string that someone else keeps alive.
class BytesOutStream : public Stream {
 public:
  using Stream::Read;
  using Stream::Write;

  explicit BytesOutStream(std::string* target) : target_(*target) {}

  size_t Read(void*, size_t) final {
    TVM_FFI_THROW(RuntimeError) << "A stream to write to was read from";
    TVM_FFI_UNREACHABLE();
  }
  size_t Write(const void* source, size_t count) final {
    if (count != 0) target_.append(static_cast<const char*>(source), count);
    return count;
  }

 private:
  std::string& target_;
};

}  // namespace tvm::support
