// Sockets of adrenoc_rpc: every wait has a limit, and they close themselves.
#pragma once

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <utility>

#include "words.h"

namespace adrenoc_rpc {

class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  Socket(const Socket&) = delete;
  ~Socket() {
    if (is_open()) close(descriptor_);
  }

  // Throws UsageError unless `host` is an IPv4 address, std::runtime_error when it cannot
  // be listened on.  `port` 0 takes any free one; the one taken is stored.
  [[nodiscard]] static Socket listen_on(const std::string& host, int* port) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(static_cast<uint16_t>(*port));
    if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
      throw UsageError("--host is \"" + host + "\", expected an IPv4 address");
    }
    Socket listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    listening.set_option(SOL_SOCKET, SO_REUSEADDR, 1);
    auto* generic = reinterpret_cast<sockaddr*>(&address);
    if (bind(listening.get(), generic, sizeof(address)) != 0 || listen(listening.get(), 16) != 0) {
      throw std::runtime_error("cannot listen on " + host + ":" + std::to_string(*port) + ": " +
                               std::strerror(errno));
    }
    socklen_t size = sizeof(address);
    getsockname(listening.get(), generic, &size);
    *port = ntohs(address.sin_port);
    return listening;
  }

  // Not open when nobody listens there.  Each of its waits is of at most so many seconds.
  [[nodiscard]] static Socket connect_to(const std::string& host, int port, int seconds) {
    addrinfo wanted{};
    wanted.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) return {};
    Socket connection;
    for (const addrinfo* at = found; at != nullptr && !connection.is_open(); at = at->ai_next) {
      Socket candidate(socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
      if (!candidate.is_open()) continue;
      timeval limit{};
      limit.tv_sec = seconds;
      candidate.set_option(SOL_SOCKET, SO_RCVTIMEO, limit);
      candidate.set_option(SOL_SOCKET, SO_SNDTIMEO, limit);  // of connecting too
      if (connect(candidate.get(), at->ai_addr, at->ai_addrlen) == 0) {
        connection = std::move(candidate);
      }
    }
    freeaddrinfo(found);
    return connection;
  }

  [[nodiscard]] int get() const { return descriptor_; }
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }

  // Whether the peer has left; what it sent before may still be there to be read.
  [[nodiscard]] bool peer_has_left() const {
    pollfd watched{descriptor_, POLLRDHUP, 0};
    return poll(&watched, 1, 0) > 0;
  }

  // Small messages go at once, and a peer that vanished without a word is noticed.
  void prepare_session() const {
    set_option(IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(SOL_SOCKET, SO_KEEPALIVE, 1);
    set_option(IPPROTO_TCP, TCP_KEEPIDLE, 20);
    set_option(IPPROTO_TCP, TCP_KEEPINTVL, 10);
    set_option(IPPROTO_TCP, TCP_KEEPCNT, 3);
  }

  // False when the peer left or the wait was too long.
  [[nodiscard]] bool receive(void* target, size_t bytes) const {
    return recv(descriptor_, target, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
  }
  [[nodiscard]] bool send_all(const std::string& bytes) const {
    return send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }

 private:
  template <typename Value>
  void set_option(int level, int option, const Value& value) const {
    setsockopt(descriptor_, level, option, &value, sizeof(value));
  }

  int descriptor_ = -1;
};

// A number of a message, in the byte order that TVM's protocol has.
[[nodiscard]] inline std::string number_bytes(int32_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

}  // namespace adrenoc_rpc
