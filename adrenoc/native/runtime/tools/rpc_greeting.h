// Greets peers, many at once: one that says nothing keeps nobody else waiting.
#pragma once

#include <chrono>
#include <cstdint>
#include <list>
#include <map>
#include <optional>
#include <string>

#include "rpc_socket.h"

namespace adrenoc_rpc {

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
  Greetings(Socket listening, std::string own_key);

  // The first peer that says `expected_key`, if one does within `limit_ms` (-1: no limit) and
  // before something can be read from the descriptor `ending`.  Tells stderr whom it sent away.
  // Throws std::runtime_error when connections cannot be accepted any more.
  [[nodiscard]] std::optional<Peer> wait(const std::string& expected_key, int limit_ms, int ending);

  // For the process of a session, which has no business with other peers.
  void close_all();

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

  void accept_one();
  [[nodiscard]] Heard hear(Greeting* greeting, const std::string& expected_key, unsigned* asked_s);
  void send_late_away();
  void forget_waits();

  Socket listening_;
  std::string own_key_;
  std::list<Greeting> waiting_;
  std::map<uint32_t, Clock::time_point> unheard_until_;
};

}  // namespace adrenoc_rpc
