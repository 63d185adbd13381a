// TVM's tracker, which tells clients where free servers are.
#pragma once

#include <string>

#include "rpc_socket.h"

namespace adrenoc_rpc {

// This server's entry in a tracker.  The tracker gives one client at a time the key, by which that
// client may also come again: what is proven or measured takes many sessions.
class TrackerEntry {
 public:
  // `address` is where clients reach this server; empty for the address that the tracker sees.
  TrackerEntry(std::string host, int tracker_port, std::string key, std::string address,
               int server_port);

  // Offers this server for one session; tries again at `keep` when no tracker is there.
  void offer();

  // To be called every kTickSeconds while nobody comes: offers the server again when the tracker
  // was restarted, or gave the key to a client that never came.
  void keep();

  // The key that the next client must know.
  [[nodiscard]] const std::string& session_key() const { return session_key_; }

  static constexpr int kTickSeconds = 2;

 private:
  [[nodiscard]] bool connect();
  // Whether no client has been given the key that was offered last.
  [[nodiscard]] bool is_pending();
  // Sends one request; returns false, and leaves the tracker, when no answer comes.
  bool ask(const std::string& request, std::string* answer);

  std::string host_;
  int tracker_port_;
  std::string key_;
  std::string address_;
  int server_port_;
  Socket tracker_;
  std::string session_key_;
  bool is_offered_ = false;
  int ticks_taken_ = 0;
};

}  // namespace adrenoc_rpc
