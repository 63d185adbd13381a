// Reads and writes TVM's binary form of values in memory.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/support/serializer.h>

#include <string>
#include <utility>

#include "support/bytes_io.h"

namespace adrenoc_runtime::opencl {

class ByteReader final : public tvm::support::BytesInStream {
 public:
  // `what` names the data in error messages; `data` must outlive the reader.
  ByteReader(const char* what, const char* data, size_t size)
      : BytesInStream(data, size), what_(what) {}

  // The next value; throws ValueError where the data ends too early.
  template <typename T>
  [[nodiscard]] T take() {
    T value;
    if (!Read(&value)) TVM_FFI_THROW(ValueError) << what_ << " ends too early: it is damaged";
    return value;
  }

 private:
  const char* what_;
};

class ByteWriter final : public tvm::support::BytesOutStream {
 public:
  ByteWriter() : BytesOutStream(&bytes_) {}

  [[nodiscard]] std::string finish() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

}  // namespace adrenoc_runtime::opencl
