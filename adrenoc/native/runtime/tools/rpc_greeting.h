// Greets peers, many at once: one that says nothing keeps nobody else waiting.
#pragma once

#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <list>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "rpc_socket.h"

namespace adrenoc_rpc {

// TVM's protocol: what both sides say first, and what a server says of a wrong key.
constexpr int32_t kMagic = 0xff271;
constexpr int32_t kMismatch = kMagic + 2;
constexpr int32_t kMaxKeyBytes = 1024;
constexpr size_t kHeadBytes = 2 * sizeof(int32_t);
constexpr std::chrono::seconds kLimit(10);
// More peers at once than a server has any use for; the one that came first has to go then.
constexpr size_t kMostPeers = 128;
// Where nothing of ours can make room.
constexpr useconds_t kPauseUs = 100000;
// Nobody of an address that said a wrong key is heard for so long.
constexpr std::chrono::seconds kWrongKey(1);

// Whether two texts are equal, in a time that does not tell where they differ.
inline bool same_secret(const std::string& a, const std::string& b) {
  unsigned difference = a.size() == b.size() ? 0 : 1;
  for (size_t i = 0; i < a.size() && i < b.size(); ++i) {
    difference |= static_cast<unsigned char>(a[i]) ^ static_cast<unsigned char>(b[i]);
  }
  return difference == 0;
}

inline unsigned asked_limit_s(const std::string& wishes) {
  const std::string option = " -timeout=";
  const size_t place = wishes.find(option);
  if (place == std::string::npos) return 0;
  const double seconds = std::strtod(wishes.c_str() + place + option.size(), nullptr);
  return seconds > 0 && seconds < 1e6 ? static_cast<unsigned>(std::ceil(seconds)) : 0;
}

inline int32_t number_at(const std::string& bytes, size_t place) {
  int32_t number = 0;
  std::memcpy(&number, bytes.data() + place, sizeof(number));
  return number;
}

inline void tell(const char* wrong) { std::fprintf(stderr, "adrenoc_rpc: %s\n", wrong); }

inline int left_ms(std::chrono::steady_clock::time_point end) {
  using std::chrono::milliseconds;
  const auto left = std::chrono::ceil<milliseconds>(end - std::chrono::steady_clock::now());
  return std::max(0, static_cast<int>(left.count()));
}

// A peer that knows the key; `asked_s` is the number of seconds after which it wants its session
// stopped, 0 for never.
struct Peer {
  Socket connection;
  unsigned asked_s = 0;
};

// The peers that wait at a listening socket.  Each has one limit for all of its greeting, counted
// from its connection, so that a byte a second does not hold a place.  Who says a wrong key waits
// before anybody of that address is heard again: keys are not found by trying.
class Greetings {
 public:
  Greetings(Socket listening, std::string own_key)
      : listening_(std::move(listening)), own_key_(std::move(own_key)) {}

  // The first peer that says `expected_key`, if one does within `limit_ms` (-1: no limit) and
  // before something can be read from the descriptor `ending`.  Tells stderr whom it sent away.
  // Throws std::runtime_error when connections cannot be accepted any more.
  [[nodiscard]] std::optional<Peer> wait(const std::string& expected_key, int limit_ms,
                                         int ending) {
    const auto end = Clock::now() + std::chrono::milliseconds(std::max(0, limit_ms));
    while (true) {
      forget_waits();
      std::vector<pollfd> watched = {{listening_.get(), POLLIN, 0}, {ending, POLLIN, 0}};
      int wait_ms = limit_ms < 0 ? -1 : left_ms(end);
      for (const Greeting& greeting : waiting_) {
        const auto unheard = unheard_until_.find(greeting.address);
        const bool is_heard = unheard == unheard_until_.end();
        // A negative descriptor is not looked at.
        watched.push_back({is_heard ? greeting.connection.get() : -1, POLLIN, 0});
        const int late_ms =
            left_ms(is_heard ? greeting.end : std::min(greeting.end, unheard->second));
        wait_ms = wait_ms < 0 ? late_ms : std::min(wait_ms, late_ms);
      }
      if (poll(watched.data(), watched.size(), wait_ms) < 0) {
        if (errno == EINTR) continue;
        throw std::runtime_error(std::string("cannot wait for peers: ") + std::strerror(errno));
      }
      if (watched[1].revents != 0) return std::nullopt;
      size_t index = 2;
      for (auto at = waiting_.begin(); at != waiting_.end(); ++index) {
        const auto greeting = at++;
        const bool is_heard = unheard_until_.count(greeting->address) == 0;
        if (watched[index].revents == 0 || !is_heard) continue;
        Peer peer;
        const Heard heard = hear(&*greeting, expected_key, &peer.asked_s);
        if (heard == Heard::kPart) continue;
        if (heard == Heard::kWrongKey) unheard_until_[greeting->address] = Clock::now() + kWrongKey;
        peer.connection = std::move(greeting->connection);
        waiting_.erase(greeting);
        if (heard == Heard::kAll) return peer;
      }
      if (watched[0].revents != 0) accept_one();
      send_late_away();
      if (limit_ms >= 0 && Clock::now() >= end) return std::nullopt;
    }
  }

  // For the process of a session, which has no business with other peers.
  void close_all() {
    waiting_.clear();
    listening_ = Socket();
  }

 private:
  using Clock = std::chrono::steady_clock;
  struct Greeting {
    Socket connection;
    uint32_t address;
    Clock::time_point end;
    std::string received;
  };
  // What a look at a peer found: nothing new, all of its greeting, or that it has to go.
  enum class Heard { kPart, kAll, kWrong, kWrongKey };

  void accept_one() {
    sockaddr_in from = {};
    socklen_t bytes = sizeof(from);
    Socket connection(
        accept4(listening_.get(), reinterpret_cast<sockaddr*>(&from), &bytes, SOCK_CLOEXEC));
    if (!connection.is_open()) {
      if (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN) return;
      const bool is_short =
          errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM;
      if (is_short) {  // many came who say nothing: the first of them has to go
        tell("there is no room for another peer");
        if (waiting_.empty()) usleep(kPauseUs);
        if (!waiting_.empty()) waiting_.pop_front();
        return;
      }
      throw std::runtime_error(std::string("cannot accept a connection: ") + std::strerror(errno));
    }
    if (waiting_.size() >= kMostPeers) {
      tell("a peer said nothing, and too many others came");
      waiting_.pop_front();
    }
    waiting_.push_back({std::move(connection), from.sin_addr.s_addr, Clock::now() + kLimit, {}});
  }
  [[nodiscard]] Heard hear(Greeting* greeting, const std::string& expected_key, unsigned* asked_s) {
    std::string& received = greeting->received;
    const auto wanted = [&] {
      const bool has_head = received.size() >= kHeadBytes;
      return kHeadBytes + (has_head ? static_cast<size_t>(number_at(received, 4)) : 0);
    };
    char piece[kMaxKeyBytes];
    const size_t missing = wanted() - received.size();
    const ssize_t got = recv(greeting->connection.get(), piece, missing, MSG_DONTWAIT);
    if (got < 0 && (errno == EAGAIN || errno == EINTR)) return Heard::kPart;
    if (got <= 0) {
      // Who says nothing at all looks whether anybody listens.
      if (!received.empty()) tell("the peer left");
      return Heard::kWrong;
    }
    received.append(piece, static_cast<size_t>(got));
    if (received.size() < kHeadBytes) return Heard::kPart;
    if (number_at(received, 0) != kMagic) {
      tell("the peer does not speak TVM's RPC protocol");
      return Heard::kWrong;
    }
    if (const int32_t bytes = number_at(received, 4); bytes <= 0 || bytes > kMaxKeyBytes) {
      tell("the peer's key is too long");
      return Heard::kWrong;
    }
    if (received.size() < wanted()) return Heard::kPart;
    const std::string said = received.substr(kHeadBytes);
    // Options may follow the key, which may hold spaces itself: "client:KEY -timeout=60".
    const std::string key = "client:" + expected_key;
    const std::string wishes = said.size() > key.size() ? said.substr(key.size()) : "";
    if (!same_secret(said.substr(0, key.size()), key) || (!wishes.empty() && wishes[0] != ' ')) {
      (void)greeting->connection.send_all(number_bytes(kMismatch));
      tell("the peer has another key");
      return Heard::kWrongKey;
    }
    *asked_s = asked_limit_s(wishes);
    const std::string own = "server:" + own_key_;
    const std::string answer =
        number_bytes(kMagic) + number_bytes(static_cast<int32_t>(own.size())) + own;
    // Goes at once: nothing went before.
    return greeting->connection.send_all(answer) ? Heard::kAll : Heard::kWrong;
  }
  void send_late_away() {
    const auto now = Clock::now();
    waiting_.remove_if([&](const Greeting& greeting) {
      const bool is_late = greeting.end <= now;
      if (is_late) tell("a peer took too long to say who it is");
      return is_late;
    });
  }
  void forget_waits() {
    const auto now = Clock::now();
    for (auto at = unheard_until_.begin(); at != unheard_until_.end();) {
      at = at->second <= now ? unheard_until_.erase(at) : std::next(at);
    }
  }

  Socket listening_;
  std::string own_key_;
  std::list<Greeting> waiting_;
  std::map<uint32_t, Clock::time_point> unheard_until_;
};

}  // namespace adrenoc_rpc
