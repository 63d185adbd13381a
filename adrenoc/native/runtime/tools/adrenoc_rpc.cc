// Serves TVM's RPC protocol, so that a compiler on another machine can load and time bundles here.
//
//   adrenoc_rpc [--host 127.0.0.1] [--port 9090] [--key KEY] [--tracker HOST:PORT]
//               [--advertise ADDRESS] [--timeout SECONDS] [--folder FOLDER] [--store FOLDER]
//               [--max-message MIB] [--opencl LIBRARY]
//
// Each session runs in a process of its own, one after the other: a crash or a time-out ends that
// session and not the server, and so does a peer that leaves a session which does not end.  Without
// KEY it listens to this machine alone; with a tracker too, which tells whoever asks what to say in
// place of KEY, to one client at a time.  Sessions have their
// folders in FOLDER; without it beside this program, in $TMPDIR, /data/local/tmp or /tmp, whichever
// is the first that can be written to.  Prints {"port": N, "folder": FOLDER} when it listens (port
// 0 takes any free one), then a line for each session.  A signal that ends it ends its session too,
// and nothing of that is left behind.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "adrenoc.h"
#include "rpc/rpc_session.h"
#include "rpc_greeting.h"
#include "rpc_host.h"
#include "rpc_socket.h"
#include "rpc_tracker.h"
#include "words.h"

namespace {

using adrenoc_rpc::Endings;
using adrenoc_rpc::Greetings;
using adrenoc_rpc::Peer;
using adrenoc_rpc::SessionFolder;
using adrenoc_rpc::Socket;
using adrenoc_rpc::TrackerEntry;
using Clock = std::chrono::steady_clock;

constexpr int kUsageCode = 2;
// How a session ended whose peer was refused, or vanished.
constexpr int kRefusedCode = 3;
// A session whose peer has left has so long to clean up; then it is ended, and has so long to go.
constexpr int kLeftSeconds = 5;
constexpr int kKilledSeconds = 5;
constexpr int kTickMs = 100;
constexpr uint64_t kMebibyte = uint64_t{1} << 20;

constexpr char kUsage[] =
    "usage: adrenoc_rpc [OPTION]...\n"
    "\n"
    "Serves TVM's RPC protocol, so that adrenoc on another machine can run bundles here.\n"
    "Prints {\"port\": N, \"folder\": FOLDER} when it listens, then a line for each session.\n"
    "\n"
    "  --host ADDRESS         where to listen (127.0.0.1)\n"
    "  --port NUMBER          0 takes any free one (9090)\n"
    "  --key KEY              what clients have to know, or the name at a tracker\n"
    "  --tracker HOST:PORT    offer this device at TVM's tracker\n"
    "  --advertise ADDRESS    by which clients of the tracker reach it\n"
    "  --timeout SECONDS      the longest session (600)\n"
    "  --folder FOLDER        for the files of sessions (beside this program, $TMPDIR,\n"
    "                         /data/local/tmp or /tmp)\n"
    "  --store FOLDER         where uploaded files are kept for later sessions\n"
    "  --max-message MIB      the largest message that is taken (1024)\n"
    "  --opencl LIBRARY       the OpenCL library to open\n"
    "  --version, --help\n";

struct Arguments {
  std::string host = "127.0.0.1";
  int port = 9090;
  std::string key;
  std::string tracker_host;
  int tracker_port = 0;
  std::string address;
  int timeout_s = 600;
  std::string folder;
  std::string store;
  int max_message_mib = 1024;
  std::string opencl_library;
};

void parse_tracker(const std::string& text, Arguments* arguments) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) {
    throw UsageError("--tracker is \"" + text + "\", expected HOST:PORT");
  }
  arguments->tracker_host = text.substr(0, colon);
  arguments->tracker_port =
      static_cast<int>(parse_count("--tracker", text.substr(colon + 1), 65535));
}

// Whether only programs of this machine reach the address.
bool is_loopback(const std::string& host) { return host.rfind("127.", 0) == 0; }

using Text = const std::string&;
constexpr Option<Arguments> kOptions[] = {
    {"--host", [](Arguments& a, Text, Text v) { a.host = v; }},
    {"--port", [](Arguments& a, Text o, Text v) { a.port = int(parse_count(o, v, 65535)); }},
    {"--key", [](Arguments& a, Text, Text v) { a.key = v; }},
    {"--tracker", [](Arguments& a, Text, Text v) { parse_tracker(v, &a); }},
    {"--advertise", [](Arguments& a, Text, Text v) { a.address = v; }},
    {"--timeout",
     [](Arguments& a, Text o, Text v) { a.timeout_s = int(parse_count(o, v, 1000000)); }},
    {"--folder", [](Arguments& a, Text, Text v) { a.folder = v; }},
    {"--store", [](Arguments& a, Text, Text v) { a.store = v; }},
    {"--max-message",
     [](Arguments& a, Text o, Text v) {
       a.max_message_mib = std::max(1, int(parse_count(o, v, 1 << 20)));
     }},
    {"--opencl", [](Arguments& a, Text, Text v) { a.opencl_library = v; }},
};

Arguments parse(int count, char** values) {
  Arguments arguments;
  parse_options(count, values, kOptions, &arguments,
                [](const std::string& word) { throw UsageError("unknown option " + word); });
  if (!arguments.tracker_host.empty() && arguments.key.empty()) {
    throw UsageError("--tracker needs --key, the name of this kind of device");
  }
  const bool has_secret = !arguments.key.empty() && arguments.tracker_host.empty();
  if (!has_secret && !is_loopback(arguments.host)) {
    const char* why = arguments.tracker_host.empty()
                          ? "name a --key"
                          : "a tracker gives the key to whoever asks; leave --host out and lead "
                            "both ports through ssh";
    throw UsageError("--host " + arguments.host +
                     " lets anybody who reaches it run any "
                     "code here: " +
                     why);
  }
  return arguments;
}

// A session in a process of its own; returns its exit code.  With a `refusal`, the peer is told
// that there is none.
int serve(const Peer& peer, const Arguments& arguments, const std::string& folder,
          const std::string& refusal) {
  peer.connection.prepare_session();
  if (!refusal.empty()) {
    adrenoc_runtime::refuse_rpc(peer.connection.get(), refusal);
    return kRefusedCode;
  }
  // Its signal ends this process, whatever a driver is doing in it.
  alarm(peer.asked_s);
  const std::string wrong = adrenoc_runtime::why_not_served(
      peer.connection.get(), {folder, arguments.store, arguments.opencl_library,
                              static_cast<uint64_t>(arguments.max_message_mib) * kMebibyte});
  if (wrong.empty()) return 0;
  std::fprintf(stderr, "adrenoc_rpc: %s\n", wrong.c_str());
  return kRefusedCode;
}

// What a session did last, as its trace file tells; empty when it did nothing on a device.
std::string last_deed(const std::string& folder) {
  std::ifstream stream(folder + "/doing");
  std::string text;
  std::getline(stream, text, '\0');
  return text.empty() ? "" : "; last it was " + text;
}

// Waits for the process of a session, at most `limit`; whether it has ended, and how.
bool ends_within(pid_t session, std::chrono::milliseconds limit, int* status) {
  const auto end = Clock::now() + limit;
  while (waitpid(session, status, WNOHANG) == 0) {
    if (Clock::now() >= end) return false;
    usleep(10000);
  }
  return true;
}

// Ends a session, and says why.  One that its driver does not let go is left to itself: it must not
// keep the server too.
std::string stop(pid_t session, const std::string& why, const std::string& last) {
  int status = 0;
  kill(session, SIGKILL);
  const bool ended = ends_within(session, std::chrono::seconds(kKilledSeconds), &status);
  return "was stopped " + why + last + (ended ? "" : "; its process does not end");
}

// Waits for the process of a session, at most `timeout_s` (0: for ever), and says how it ended.
// With `asked_s`, the limit that its peer asked for, it ends itself by a signal (see `serve`).
std::string wait_for(pid_t session, const Peer& peer, int timeout_s, const std::string& folder) {
  const Socket& connection = peer.connection;
  const unsigned asked_s = peer.asked_s;
  const auto end = Clock::now() + std::chrono::seconds(timeout_s);
  auto patience = Clock::time_point::max();
  int status = 0;
  while (!ends_within(session, std::chrono::milliseconds(kTickMs), &status)) {
    if (Endings::signal_seen() != 0) return stop(session, "with the server", "");
    if (timeout_s != 0 && Clock::now() >= end) {
      return stop(session, "after " + std::to_string(timeout_s) + " s", last_deed(folder));
    }
    const bool has_left = patience != Clock::time_point::max();
    if (!has_left && connection.peer_has_left()) {
      patience = Clock::now() + std::chrono::seconds(kLeftSeconds);
    }
    if (has_left && Clock::now() >= patience) {
      const std::string why = std::to_string(kLeftSeconds) + " s after its peer had left";
      return stop(session, why, last_deed(folder));
    }
  }
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM && asked_s != 0) {
    return "was stopped after " + std::to_string(asked_s) + " s, as its peer had asked" +
           last_deed(folder);
  }
  if (WIFSIGNALED(status)) {
    return "crashed with signal " + std::to_string(WTERMSIG(status)) + last_deed(folder);
  }
  if (WEXITSTATUS(status) == kRefusedCode) return "failed";
  // A driver may end the process by itself.
  const std::string code = std::to_string(WEXITSTATUS(status));
  return WEXITSTATUS(status) == 0 ? "ended" : "ended with code " + code + last_deed(folder);
}

// The next peer that knows the key; keeps the tracker's entry alive meanwhile.  Ends this process
// when a signal asks for that.
Peer next_peer(Greetings* greetings, const Arguments& arguments, TrackerEntry* tracker,
               int ending) {
  const int limit_ms = tracker == nullptr ? -1 : TrackerEntry::kTickSeconds * 1000;
  if (tracker != nullptr && Endings::signal_seen() == 0) tracker->offer();
  while (true) {
    const std::string key = tracker == nullptr ? arguments.key : tracker->session_key();
    std::optional<Peer> peer = greetings->wait(key, limit_ms, ending);
    if (Endings::signal_seen() != 0) Endings::end_process();
    if (peer.has_value()) return std::move(*peer);
    if (tracker != nullptr) tracker->keep();
  }
}

// Serves a peer in a process of its own, and says how that ended.
std::string run_session(const Arguments& arguments, Greetings* greetings, const Peer& peer) {
  std::unique_ptr<SessionFolder> made;
  std::string refusal;
  try {
    made = std::make_unique<SessionFolder>(arguments.folder);
  } catch (const std::runtime_error& error) {
    refusal = error.what();  // the next may have more luck
  }
  const std::string folder = made == nullptr ? "" : made->path();
  const pid_t server = getpid();
  const pid_t session = fork();
  if (session < 0) {
    refusal = std::string("cannot start a process: ") + std::strerror(errno);
    (void)serve(peer, arguments, folder, refusal);
    return "was not started: " + refusal;
  }
  if (session == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != server) _exit(1);  // the server ended before the line above
    Endings::forget();
    greetings->close_all();
    _exit(serve(peer, arguments, folder, refusal));
  }
  const std::string ending = wait_for(session, peer, arguments.timeout_s, folder);
  return refusal.empty() ? ending : "was not started: " + refusal;
}

[[noreturn]] void serve_all(const Arguments& arguments, Greetings greetings, TrackerEntry* tracker,
                            int ending) {
  for (uint64_t number = 1;; ++number) {
    const Peer peer = next_peer(&greetings, arguments, tracker, ending);
    const std::string said = run_session(arguments, &greetings, peer);
    std::printf("session %llu %s\n", static_cast<unsigned long long>(number), said.c_str());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** values) {
  if (count == 2 && std::strcmp(values[1], "--version") == 0) {
    std::printf("%s\n", adrenoc_runtime_version());
    return 0;
  }
  if (count == 2 && (std::strcmp(values[1], "--help") == 0 || std::strcmp(values[1], "-h") == 0)) {
    std::fputs(kUsage, stdout);
    return 0;
  }
  try {
    Arguments arguments = parse(count, values);
    if (arguments.folder.empty()) arguments.folder = SessionFolder::find_parent();
    int port = arguments.port;
    const int ending = Endings::begin();
    Socket listening = Socket::listen_on(arguments.host, &port);
    std::unique_ptr<TrackerEntry> tracker;
    if (!arguments.tracker_host.empty()) {
      tracker = std::make_unique<TrackerEntry>(arguments.tracker_host, arguments.tracker_port,
                                               arguments.key, arguments.address, port);
    }
    // A server that was killed could not do it.
    SessionFolder::remove_left(arguments.folder);
    std::printf("{\"port\": %d, \"folder\": %s}\n", port, json_quoted(arguments.folder).c_str());
    std::fflush(stdout);
    serve_all(arguments, Greetings(std::move(listening), arguments.key), tracker.get(), ending);
  } catch (const UsageError& error) {
    std::fprintf(stderr, "adrenoc_rpc: %s\n%s", error.what(), kUsage);
    return kUsageCode;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "adrenoc_rpc: %s\n", error.what());
    return 1;
  }
}
