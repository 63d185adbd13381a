// Makes this library answer to the name that bundles ask the dynamic loader for.
#ifndef ADRENOC_RUNTIME_BUNDLE_LOADER_NAME_H_
#define ADRENOC_RUNTIME_BUNDLE_LOADER_NAME_H_

namespace adrenoc_runtime {

// A bundle's model.so needs "libtvm_ffi.so".  Loads the empty library of that name beside this one,
// whose functions are then found through it; any number of times.  Throws Failure when it is not
// there, or when another TVM in this process has the name already.
void claim_loader_name();

}  // namespace adrenoc_runtime

#endif  // ADRENOC_RUNTIME_BUNDLE_LOADER_NAME_H_
