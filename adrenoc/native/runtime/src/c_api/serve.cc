// A session of TVM's RPC protocol over a socket that somebody has accepted.
#include <cstddef>
#include <string>

#include "bundle/loader_name.h"
#include "c_api/call.h"
#include "opencl/cl_api.h"
#include "rpc/rpc_session.h"

using adrenoc_runtime::Failure;
using adrenoc_runtime::guarded;
using adrenoc_runtime::require;

adrenoc_status adrenoc_serve_rpc(int descriptor, const adrenoc_rpc_options* options) {
  return guarded([&] {
    require(options, "options");
    // Programs that were compiled with another version know fewer fields.
    const bool may_refuse = options->struct_bytes > offsetof(adrenoc_rpc_options, refusal);
    if (may_refuse && options->refusal != nullptr) {
      adrenoc_runtime::refuse_rpc(descriptor, options->refusal);
      return;
    }
    require(options->folder, "folder");
    try {
      adrenoc_runtime::claim_loader_name();
    } catch (const Failure& failure) {
      adrenoc_runtime::refuse_rpc(descriptor, failure.what());
      throw;
    }
    const std::string library = adrenoc_runtime::text_or_empty(options->opencl_library);
    if (!library.empty()) adrenoc_runtime::opencl::set_library(library);
    adrenoc_runtime::RpcSession session;
    session.folder = options->folder;
    session.store = adrenoc_runtime::text_or_empty(options->store);
    if (options->max_message_bytes != 0) session.max_message_bytes = options->max_message_bytes;
    adrenoc_runtime::serve_rpc(descriptor, session);
  });
}
