// TCP sockets of POSIX systems, by the names that TVM's RPC sources expect.
// The TVM wheel ships sources that include this file but not the file itself.
#pragma once

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <tvm/ffi/error.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <string>

namespace tvm::support {

// Where a socket connects to.
struct SockAddr {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  SockAddr(const char* host, int port) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    name_ = std::string(host) + ":" + std::to_string(port);
    const int code = getaddrinfo(host, std::to_string(port).c_str(), &wanted, &found);
    if (code != 0) {
      TVM_FFI_THROW(RuntimeError) << "No address for " << name_ << ": " << gai_strerror(code);
    }
    bytes = found->ai_addrlen;
    std::memcpy(&storage, found->ai_addr, bytes);
    freeaddrinfo(found);
  }
  int ss_family() const { return storage.ss_family; }
  std::string AsString() const { return name_; }

 private:
  std::string name_;
};

class Socket {
 public:
  using SockType = int;

  // Throws with what the system says of the last failure.
  [[noreturn]] static void Error(const char* deed) {
    const int code = errno;
    TVM_FFI_THROW(RuntimeError) << deed << " failed: " << std::strerror(code);
    TVM_FFI_UNREACHABLE();
  }
};

// A handle that copies like a number: whoever is last must call Close.
class TCPSocket : public Socket {
 public:
  TCPSocket() = default;
  explicit TCPSocket(SockType descriptor) : descriptor_(descriptor) {}

  void Create(int family) {
    descriptor_ = socket(family, SOCK_STREAM, 0);
    if (descriptor_ == -1) Error("Making a socket");
    // Messages are small and each is waited for.
    const int on = 1;
    setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  }
  bool Connect(const SockAddr& address) {
    const auto* generic = reinterpret_cast<const sockaddr*>(&address.storage);
    return retried([&] { return connect(descriptor_, generic, address.bytes); }) == 0;
  }
  // A failed descriptor or one with an error pending.
  bool BadSocket() const {
    if (descriptor_ == -1) return true;
    int pending = 0;
    socklen_t size = sizeof(pending);
    return getsockopt(descriptor_, SOL_SOCKET, SO_ERROR, &pending, &size) != 0 || pending != 0;
  }
  void Close() {
    if (descriptor_ != -1) close(descriptor_);
    descriptor_ = -1;
  }
  // How many bytes were moved, 0 at the end of the stream, -1 with errno.  A peer that left is an
  // error to report and no signal.
  ssize_t Send(const void* source, size_t bytes) {
    return retried([&] { return send(descriptor_, source, bytes, MSG_NOSIGNAL); });
  }
  ssize_t Recv(void* target, size_t bytes) {
    return retried([&] { return recv(descriptor_, target, bytes, 0); });
  }
  // How many bytes were moved: fewer than asked for when the stream ended or failed.
  size_t SendAll(const void* source, size_t bytes) {
    const auto* from = static_cast<const char*>(source);
    return moved(bytes, [&](size_t at) { return Send(from + at, bytes - at); });
  }
  size_t RecvAll(void* target, size_t bytes) {
    auto* into = static_cast<char*>(target);
    return moved(bytes, [&](size_t at) { return Recv(into + at, bytes - at); });
  }

 private:
  template <typename Call>
  static auto retried(Call call) -> decltype(call()) {
    while (true) {
      const auto result = call();
      if (result != -1 || errno != EINTR) return result;
    }
  }
  template <typename Move>
  static size_t moved(size_t bytes, Move move) {
    size_t done = 0;
    while (done < bytes) {
      const ssize_t piece = move(done);
      if (piece <= 0) break;
      done += static_cast<size_t>(piece);
    }
    return done;
  }

  SockType descriptor_ = -1;
};

}  // namespace tvm::support
