// Base64 by the names that TVM's runtime sources expect: tensors in graphs of objects that are
// written as JSON, which compilers do and nothing here.  So whatever is read or written is refused.
// The TVM wheel ships sources that include this file but not the file itself.
#pragma once

#include <tvm/ffi/error.h>
#include <tvm/support/io.h>

#include <cstddef>

namespace tvm::support {

class Base64Stream : public Stream {
 public:
  using Stream::Read;
  using Stream::Write;

  explicit Base64Stream(Stream*) {}
  void InitPosition() {}
  void Finish() {}
  size_t Read(void*, size_t) final { refuse(); }
  size_t Write(const void*, size_t) final { refuse(); }

 private:
  [[noreturn]] static void refuse() {
    TVM_FFI_THROW(RuntimeError) << "This runtime writes no tensors as JSON";
    TVM_FFI_UNREACHABLE();
  }
};
using Base64InStream = Base64Stream;
using Base64OutStream = Base64Stream;

}  // namespace tvm::support
