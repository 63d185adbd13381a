// Kernel objects for the launches of a run that goes through the virtual machine.
#pragma once

#include <vector>

#include "launch/kernel.h"

namespace adrenoc_runtime::opencl {

// Several launches of a run can share a kernel, each with arguments of its own.  With an object a
// launch these stay as they were set in the run before, as far as they are the same.
class CallSites {
 public:
  // What this thread has open, or null.
  [[nodiscard]] static CallSites* current();

  // The object for the next launch of the run, which is one of `kernel`; null, now and later, once
  // the driver has made none.
  [[nodiscard]] KernelInstance* next(const Kernel& kernel);

 private:
  friend class CallSitesScope;

  struct Site {
    const Kernel* kernel;
    KernelInstance instance;
  };
  std::vector<Site> sites_;
  size_t next_ = 0;
  bool is_exhausted_ = false;
};

// Opens call sites for one run of this thread.
class CallSitesScope {
 public:
  explicit CallSitesScope(CallSites& sites);
  CallSitesScope(const CallSitesScope&) = delete;
  CallSitesScope& operator=(const CallSitesScope&) = delete;
  ~CallSitesScope();

 private:
  CallSites* const before_;
};

}  // namespace adrenoc_runtime::opencl
