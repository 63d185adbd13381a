// A tensor that somebody gave, by reference or as a struct that ends with the call.
#pragma once

#include <tvm/ffi/any.h>
#include <tvm/runtime/tensor.h>

#include <memory>
#include <vector>

namespace adrenoc_runtime::opencl {

// Of one that is given by DLTensor*, as over RPC, whoever made the memory has to keep it.
class HeldTensor {
 public:
  explicit HeldTensor(const tvm::ffi::AnyView& given) {
    if (given.type_index() == tvm::ffi::TypeIndex::kTVMFFIDLTensorPtr) {
      const auto* tensor = given.cast<DLTensor*>();
      shape_ = std::make_unique<std::vector<int64_t>>(tensor->shape, tensor->shape + tensor->ndim);
      own_ = std::make_unique<DLTensor>(*tensor);
      own_->shape = shape_->data();
      own_->strides = nullptr;
    } else {
      held_ = given.cast<tvm::runtime::Tensor>();
    }
  }

  [[nodiscard]] const DLTensor& get() const {
    return own_ != nullptr ? *own_ : *held_.as<tvm::runtime::Tensor>()->operator->();
  }
  // Good as long as this.
  [[nodiscard]] tvm::ffi::AnyView view() const {
    return own_ != nullptr ? tvm::ffi::AnyView(own_.get()) : tvm::ffi::AnyView(held_);
  }

 private:
  tvm::ffi::Any held_;
  std::unique_ptr<std::vector<int64_t>> shape_;
  std::unique_ptr<DLTensor> own_;
};

}  // namespace adrenoc_runtime::opencl
