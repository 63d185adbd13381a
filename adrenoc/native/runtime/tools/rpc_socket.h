// Sockets of adrenoc_rpc: every wait has a limit, and they close themselves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

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
  Socket& operator=(const Socket&) = delete;
  ~Socket();

  [[nodiscard]] int get() const { return descriptor_; }
  [[nodiscard]] bool is_open() const { return descriptor_ >= 0; }

  // Whether the peer has left; what it sent before may still be there to be read.
  [[nodiscard]] bool peer_has_left() const;

  // Seconds to wait in each call; 0 for ever.
  void limit_waits(int seconds) const;
  // Small messages go at once, and a peer that vanished without a word is noticed.
  void prepare_session() const;

  // False when the peer left or the wait was too long.
  [[nodiscard]] bool receive(void* target, size_t bytes) const;
  [[nodiscard]] bool send_all(const std::string& bytes) const;

 private:
  int descriptor_ = -1;
};

// Throws UsageError unless `host` is an IPv4 address, std::runtime_error when it cannot
// be listened on.  `port` 0 takes any free one; the one taken is stored.
[[nodiscard]] Socket listen_on(const std::string& host, int* port);

// Not open when nobody listens there.
[[nodiscard]] Socket connect_to(const std::string& host, int port, int seconds);

// A number of a message, in the byte order that TVM's protocol has.
[[nodiscard]] std::string number_bytes(int32_t number);

}  // namespace adrenoc_rpc
