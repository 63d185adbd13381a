#include "rpc_socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>

#include "words.h"

namespace adrenoc_rpc {
namespace {

template <typename Value>
void set_option(int descriptor, int level, int option, const Value& value) {
  setsockopt(descriptor, level, option, &value, sizeof(value));
}

}  // namespace

Socket::~Socket() {
  if (is_open()) close(descriptor_);
}

bool Socket::peer_has_left() const {
  pollfd watched{descriptor_, POLLRDHUP, 0};
  return poll(&watched, 1, 0) > 0;
}

void Socket::limit_waits(int seconds) const {
  timeval limit{};
  limit.tv_sec = seconds;
  set_option(descriptor_, SOL_SOCKET, SO_RCVTIMEO, limit);
  set_option(descriptor_, SOL_SOCKET, SO_SNDTIMEO, limit);
}

void Socket::prepare_session() const {
  set_option(descriptor_, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(descriptor_, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(descriptor_, IPPROTO_TCP, TCP_KEEPIDLE, 20);
  set_option(descriptor_, IPPROTO_TCP, TCP_KEEPINTVL, 10);
  set_option(descriptor_, IPPROTO_TCP, TCP_KEEPCNT, 3);
}

bool Socket::receive(void* target, size_t bytes) const {
  return recv(descriptor_, target, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

bool Socket::send_all(const std::string& bytes) const {
  return send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

Socket listen_on(const std::string& host, int* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(*port));
  if (inet_pton(AF_INET, host.c_str(), &address.sin_addr) != 1) {
    throw UsageError("--host is \"" + host + "\", expected an IPv4 address");
  }
  Socket listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  set_option(listening.get(), SOL_SOCKET, SO_REUSEADDR, 1);
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

Socket connect_to(const std::string& host, int port, int seconds) {
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), std::to_string(port).c_str(), &wanted, &found) != 0) return {};
  Socket connection;
  for (const addrinfo* at = found; at != nullptr && !connection.is_open(); at = at->ai_next) {
    Socket candidate(socket(at->ai_family, at->ai_socktype | SOCK_CLOEXEC, at->ai_protocol));
    if (!candidate.is_open()) continue;
    candidate.limit_waits(seconds);  // of connecting too
    if (connect(candidate.get(), at->ai_addr, at->ai_addrlen) == 0) {
      connection = std::move(candidate);
    }
  }
  freeaddrinfo(found);
  return connection;
}

std::string number_bytes(int32_t number) {
  return {reinterpret_cast<const char*>(&number), sizeof(number)};
}

}  // namespace adrenoc_rpc
