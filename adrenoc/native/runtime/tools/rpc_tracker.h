// TVM's tracker, which tells clients where free servers are.
#pragma once

#include <cstdint>
#include <cstdio>
#include <random>
#include <string>
#include <utility>

#include "rpc_socket.h"
#include "words.h"

namespace adrenoc_rpc {

constexpr int32_t kTrackerMagic = 0x2f271;
// Codes of requests.
constexpr const char* kPut = "3";
constexpr const char* kUpdateInfo = "5";
constexpr const char* kPendingKeys = "7";
constexpr const char* kSuccess = "0";
constexpr int kWaitSeconds = 5;
constexpr int32_t kMaxAnswerBytes = 1 << 20;
// A client that got the key has this many ticks to come.
constexpr int kPatienceTicks = 3;

inline std::string random_text() {
  std::random_device source;
  std::string text;
  for (int i = 0; i < 4; ++i) {
    char word[9];
    std::snprintf(word, sizeof(word), "%08x", source());
    text += word;
  }
  return text;
}

// This server's entry in a tracker.  The tracker gives one client at a time the key, by which that
// client may also come again: what is proven or measured takes many sessions.
class TrackerEntry {
 public:
  // `address` is where clients reach this server; empty for the address that the tracker sees.
  TrackerEntry(std::string host, int tracker_port, std::string key, std::string address,
               int server_port)
      : host_(std::move(host)),
        tracker_port_(tracker_port),
        key_(std::move(key)),
        address_(std::move(address)),
        server_port_(server_port),
        session_key_(key_ + ":" + random_text()) {}

  // Offers this server for one session; tries again at `keep` when no tracker is there.
  void offer() {
    ticks_taken_ = 0;
    // Who had a session before came back by the key, and the offer stands.
    if (is_offered_ && is_pending()) return;
    const std::string address = address_.empty() ? "null" : json_quoted(address_);
    std::string answer;
    is_offered_ = (tracker_.is_open() || connect()) &&
                  ask(std::string("[") + kPut + ", " + json_quoted(key_) + ", [" +
                          std::to_string(server_port_) + ", " + json_quoted(session_key_) + "], " +
                          address + "]",
                      &answer) &&
                  answer == kSuccess;
    if (!is_offered_) tracker_ = Socket();
  }

  // To be called every kTickSeconds while nobody comes: offers the server again when the tracker
  // was restarted, or gave the key to a client that never came.
  void keep() {
    const bool is_waiting = is_offered_ && is_pending();
    ticks_taken_ = is_waiting ? 0 : ticks_taken_ + 1;
    const bool has_tracker = is_offered_ && tracker_.is_open();
    if (!has_tracker || ticks_taken_ > kPatienceTicks) offer();
  }

  // The key that the next client must know.
  [[nodiscard]] const std::string& session_key() const { return session_key_; }

  static constexpr int kTickSeconds = 2;

 private:
  [[nodiscard]] bool connect() {
    Socket tracker = Socket::connect_to(host_, tracker_port_, kWaitSeconds);
    int32_t magic = 0;
    if (!tracker.is_open() || !tracker.send_all(number_bytes(kTrackerMagic)) ||
        !tracker.receive(&magic, sizeof(magic)) || magic != kTrackerMagic) {
      return false;
    }
    tracker_ = std::move(tracker);
    const std::string address = address_.empty() ? "null" : json_quoted(address_);
    std::string answer;
    return ask(std::string("[") + kUpdateInfo + ", {\"key\": " + json_quoted("server:" + key_) +
                   ", \"addr\": [" + address + ", " + std::to_string(server_port_) + "]}]",
               &answer) &&
           answer == kSuccess;
  }
  // Whether no client has been given the key that was offered last.
  [[nodiscard]] bool is_pending() {
    std::string pending;
    return ask(std::string("[") + kPendingKeys + "]", &pending) &&
           pending.find(json_quoted(session_key_)) != pending.npos;
  }
  // Sends one request; returns false, and leaves the tracker, when no answer comes.
  bool ask(const std::string& request, std::string* answer) {
    int32_t bytes = 0;
    bool done = tracker_.send_all(number_bytes(static_cast<int32_t>(request.size())) + request) &&
                tracker_.receive(&bytes, sizeof(bytes)) && bytes >= 0 && bytes <= kMaxAnswerBytes;
    if (done) {
      answer->assign(static_cast<size_t>(bytes), '\0');
      done = tracker_.receive(answer->data(), answer->size());
    }
    if (!done) tracker_ = Socket();
    return done;
  }

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
