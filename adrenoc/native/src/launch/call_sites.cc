#include "launch/call_sites.h"

#include <tvm/ffi/error.h>

#include <utility>

namespace adrenoc_runtime::opencl {
namespace {

thread_local CallSites* thread_sites = nullptr;

}  // namespace

CallSites* CallSites::current() { return thread_sites; }

KernelInstance* CallSites::next(const Kernel& kernel) {
  if (is_exhausted_) return nullptr;
  if (next_ == sites_.size()) sites_.push_back({nullptr, {}});
  Site& site = sites_[next_++];
  if (site.kernel != &kernel) {  // the first run, or one that takes another way
    try {
      site = {&kernel, {kernel.new_handle(), {}}};
    } catch (const tvm::ffi::Error&) {
      is_exhausted_ = true;
      return nullptr;
    }
  }
  return &site.instance;
}

CallSitesScope::CallSitesScope(CallSites& sites) : before_(std::exchange(thread_sites, &sites)) {
  sites.next_ = 0;
}

CallSitesScope::~CallSitesScope() { thread_sites = before_; }

}  // namespace adrenoc_runtime::opencl
