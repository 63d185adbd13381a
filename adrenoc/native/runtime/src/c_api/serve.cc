#include "c_api/serve.h"

// A session of TVM's RPC protocol over a socket that somebody has accepted.
#include <string>

#include "c_api/call.h"
#include "opencl/cl_api.h"
#include "rpc/rpc_session.h"

using adrenoc_runtime::guarded;
using adrenoc_runtime::require;

adrenoc_status adrenoc_serve_rpc(int descriptor, const adrenoc_rpc_options& options) {
  return guarded([&] {
    if (options.refusal != nullptr) {
      adrenoc_runtime::refuse_rpc(descriptor, options.refusal);
      return;
    }
    require(options.folder, "folder");
    const std::string library = adrenoc_runtime::text_or_empty(options.opencl_library);
    if (!library.empty()) adrenoc_runtime::opencl::set_library(library);
    adrenoc_runtime::RpcSession session;
    session.folder = options.folder;
    session.store = adrenoc_runtime::text_or_empty(options.store);
    if (options.max_message_bytes != 0) session.max_message_bytes = options.max_message_bytes;
    adrenoc_runtime::serve_rpc(descriptor, session);
  });
}
