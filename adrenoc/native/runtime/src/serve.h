// Serves TVM's RPC protocol on a connected socket.
#ifndef ADRENOC_RUNTIME_SERVE_H_
#define ADRENOC_RUNTIME_SERVE_H_

#include <string>

namespace adrenoc {

// Returns when the peer has left; see adrenoc_serve_rpc.  Throws tvm::ffi::Error.
void serve_rpc(int descriptor, const std::string& folder, const std::string& opencl_library);

}  // namespace adrenoc

#endif  // ADRENOC_RUNTIME_SERVE_H_
