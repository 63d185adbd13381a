// What adrenoc_rpc does for each peer, and no library of an app.
#pragma once

#include "adrenoc.h"

struct adrenoc_rpc_options {
  // Takes what the peer uploads.  Its file "doing" names what the session did last.
  const char* folder = nullptr;
  // Keeps what peers sent and built kernels for later sessions; null for neither.
  const char* store = nullptr;
  // As in adrenoc_options.
  const char* opencl_library = nullptr;
  // A longer message ends the session; 0 for 1 GiB.
  uint64_t max_message_bytes = 0;
  // Not null: nothing is served, and the peer is told that, for this reason.
  const char* refusal = nullptr;
};

// Serves TVM's RPC protocol on a connected socket until the peer leaves; the handshake is done.
// Once in a process.
adrenoc_status adrenoc_serve_rpc(int descriptor, const adrenoc_rpc_options& options);
