
#include "c_api/serve.h"

#include <string>

#include "c_api/call.h"
#include "opencl/cl_api.h"
#include "rpc/rpc_session.h"

using namespace adrenoc_runtime;

// A session of TVM's RPC protocol over a socket that somebody has accepted.

adrenoc_status adrenoc_serve_rpc(int descriptor, const adrenoc_rpc_options& options) {
  return guarded([&] {
    if (options.refusal != nullptr) {
      refuse_rpc(descriptor, options.refusal);
      return;
    }
    require(options.folder, "folder");
    const std::string library = text_or_empty(options.opencl_library);
    if (!library.empty()) opencl::set_library(library);
    RpcSession session;
    session.folder = options.folder;
    session.store = text_or_empty(options.store);
    if (options.max_message_bytes != 0) session.max_message_bytes = options.max_message_bytes;
    serve_rpc(descriptor, session);
  });
}
