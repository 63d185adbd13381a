// Reads and writes TVM's binary form of values in memory.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/support/io.h>
#include <tvm/support/serializer.h>

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>

namespace adrenoc_runtime::opencl {

class ByteReader final : public tvm::support::Stream {
 public:
  using Stream::Read;
  using Stream::Write;

  // `what` names the data in error messages; `data` must outlive the reader.
  ByteReader(const char* what, const char* data, size_t size)
      : what_(what), data_(data), left_(size) {}

  size_t Read(void* target, size_t size) final {
    const size_t taken = std::min(size, left_);
    if (taken != 0) std::memcpy(target, data_, taken);
    data_ += taken;
    left_ -= taken;
    return taken;
  }
  size_t Write(const void*, size_t) final {
    TVM_FFI_THROW(RuntimeError) << "A reader cannot write";
    TVM_FFI_UNREACHABLE();
  }

  // The next value; throws ValueError where the data ends too early.
  template <typename T>
  [[nodiscard]] T take() {
    T value;
    if (!Read(&value)) TVM_FFI_THROW(ValueError) << what_ << " ends too early: it is damaged";
    return value;
  }

 private:
  const char* what_;
  const char* data_;
  size_t left_;
};

class ByteWriter final : public tvm::support::Stream {
 public:
  using Stream::Read;
  using Stream::Write;

  size_t Read(void*, size_t) final {
    TVM_FFI_THROW(RuntimeError) << "A writer cannot read";
    TVM_FFI_UNREACHABLE();
  }
  size_t Write(const void* source, size_t size) final {
    bytes_.append(static_cast<const char*>(source), size);
    return size;
  }
  [[nodiscard]] std::string finish() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace adrenoc_runtime::opencl
