// One session of a server for TVM's RPC protocol.
#pragma once

#include <cstdint>
#include <string>

namespace adrenoc_runtime {

struct RpcSession {
  // Takes what the peer uploads; its file "doing" tells what the session did last (trace.h).
  std::string folder;
  // Keeps what peers sent, and built kernels, for later sessions; empty for neither.
  std::string store;
  // The OpenCL library to open; empty for the system's.
  std::string opencl_library{};
  // A longer message ends the session: its length comes from the network.
  uint64_t max_message_bytes = uint64_t{1} << 30;
};

// The file in a session's folder.
constexpr const char* kTraceFile = "doing";

// Answers the first request of a peer by the reason why it is not served, in TVM's protocol, so
// that it sees more than a connection that ends.  Returns once the peer has left, or did not for
// long.
void refuse_rpc(int descriptor, const std::string& reason) noexcept;

// Serves on a connected socket until the peer leaves; the handshake is done.  At most once in a
// process.  Throws tvm::ffi::Error when the peer vanishes in the middle of a message.
void serve_rpc(int descriptor, const RpcSession& session);

// The same, for a program without TVM's headers: what went wrong, or nothing.
[[nodiscard]] std::string why_not_served(int descriptor, const RpcSession& session) noexcept;

}  // namespace adrenoc_runtime
