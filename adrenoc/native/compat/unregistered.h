// Included before sources of TVM whose registrations no app asks for: leaves those blocks uncalled,
// so that a compiler drops them with all that they instantiate.
#include <tvm/ffi/base_details.h>

#undef TVM_FFI_STATIC_INIT_BLOCK_DEF_
#define TVM_FFI_STATIC_INIT_BLOCK_DEF_(name) [[maybe_unused]] static void name()
