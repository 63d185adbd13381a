// Serves TVM's RPC protocol, so that a compiler on another machine can load and time bundles here.
//
//   adrenoc_rpc [--host 127.0.0.1] [--port 9090] [--key KEY] [--tracker HOST:PORT]
//               [--advertise ADDRESS] [--timeout SECONDS] [--folder FOLDER] [--store FOLDER]
//               [--max-message MIB] [--opencl LIBRARY] [--open]
//
// Each session runs in a process of its own, one after the other: a crash or a time-out ends that
// session and not the server.  With a tracker, it gives clients a key for one session; without, they
// need KEY; without KEY it listens to this machine alone unless --open says that everybody may run
// code here.  Prints {"port": N} when it listens (port 0 takes any free one), then a line for each
// session.  A signal that ends it ends its session too, and nothing of that is left behind.
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>

#include "adrenoc.h"
#include "rpc_ending.h"
#include "rpc_folder.h"
#include "rpc_greeting.h"
#include "rpc_socket.h"
#include "rpc_tracker.h"

namespace {

using adrenoc_rpc::Greetings;
using adrenoc_rpc::Peer;
using adrenoc_rpc::SessionFolder;
using adrenoc_rpc::Socket;
using adrenoc_rpc::TrackerEntry;

constexpr int kUsageCode = 2;
// How a session ended whose peer was refused, or vanished.
constexpr int kRefusedCode = 3;
constexpr uint64_t kMebibyte = uint64_t{1} << 20;

constexpr char kUsage[] =
    "usage: adrenoc_rpc [OPTION]...\n"
    "\n"
    "Serves TVM's RPC protocol, so that adrenoc on another machine can run bundles here.\n"
    "Prints {\"port\": N} when it listens, then a line for each session.\n"
    "\n"
    "  --host ADDRESS         where to listen (127.0.0.1)\n"
    "  --port NUMBER          0 takes any free one (9090)\n"
    "  --key KEY              what clients have to know, or the name at a tracker\n"
    "  --tracker HOST:PORT    offer this device at TVM's tracker\n"
    "  --advertise ADDRESS    by which clients of the tracker reach it\n"
    "  --timeout SECONDS      the longest session (600)\n"
    "  --folder FOLDER        for the files of sessions\n"
    "  --store FOLDER         where uploaded files are kept for later sessions\n"
    "  --max-message MIB      the largest message that is taken (1024)\n"
    "  --opencl LIBRARY       the OpenCL library to open\n"
    "  --open                 listen beyond this machine without --key: anybody may run code here\n"
    "  --version, --help\n";

struct Arguments {
  std::string host = "127.0.0.1";
  int port = 9090;
  std::string key;
  std::string tracker_host;
  int tracker_port = 0;
  std::string address;
  int timeout_s = 600;
  std::string folder = "/tmp";
  std::string store;
  int max_message_mib = 1024;
  bool is_open = false;
  std::string opencl_library;
};

[[noreturn]] void fail(const std::string& deed) {
  throw std::runtime_error(deed + ": " + std::strerror(errno));
}

int parse_number(const std::string& option, const std::string& text, long limit) {
  char* end = nullptr;
  const long value = std::strtol(text.c_str(), &end, 10);
  if (text.empty() || *end != '\0' || value < 0 || value > limit) {
    throw std::invalid_argument(option + " is \"" + text + "\", expected a number up to " +
                                std::to_string(limit));
  }
  return static_cast<int>(value);
}

void parse_tracker(const std::string& text, Arguments* arguments) {
  const size_t colon = text.rfind(':');
  if (colon == text.npos || colon == 0) {
    throw std::invalid_argument("--tracker is \"" + text + "\", expected HOST:PORT");
  }
  arguments->tracker_host = text.substr(0, colon);
  arguments->tracker_port = parse_number("--tracker", text.substr(colon + 1), 65535);
}

// Whether only programs of this machine reach the address.
bool is_loopback(const std::string& host) { return host.rfind("127.", 0) == 0; }

Arguments parse(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i < count; i += 2) {
    const std::string option = values[i];
    if (option == "--open") {
      arguments.is_open = true;
      --i;  // it has no value
      continue;
    }
    if (i + 1 == count) throw std::invalid_argument(option + " has no value, or is unknown");
    const std::string value = values[i + 1];
    if (option == "--host") {
      arguments.host = value;
    } else if (option == "--port") {
      arguments.port = parse_number(option, value, 65535);
    } else if (option == "--key") {
      arguments.key = value;
    } else if (option == "--tracker") {
      parse_tracker(value, &arguments);
    } else if (option == "--advertise") {
      arguments.address = value;
    } else if (option == "--timeout") {
      arguments.timeout_s = parse_number(option, value, 1000000);
    } else if (option == "--folder") {
      arguments.folder = value;
    } else if (option == "--store") {
      arguments.store = value;
    } else if (option == "--max-message") {
      arguments.max_message_mib = std::max(1, parse_number(option, value, 1 << 20));
    } else if (option == "--opencl") {
      arguments.opencl_library = value;
    } else {
      throw std::invalid_argument("unknown option " + option);
    }
  }
  if (!arguments.tracker_host.empty() && arguments.key.empty()) {
    throw std::invalid_argument("--tracker needs --key, the name of this kind of device");
  }
  if (arguments.key.empty() && !is_loopback(arguments.host) && !arguments.is_open) {
    throw std::invalid_argument("--host " + arguments.host + " lets anybody who reaches it run any "
                                "code here: name a --key, or say --open where nobody else is");
  }
  return arguments;
}

// A session in a process of its own; returns its exit code.
int serve(const Peer& peer, const Arguments& arguments, const std::string& folder) {
  peer.connection.prepare_session();
  // Its signal ends this process, whatever a driver is doing in it.
  alarm(peer.asked_s);
  adrenoc_rpc_options options{};
  options.struct_bytes = sizeof(options);
  options.folder = folder.c_str();
  options.store = arguments.store.empty() ? nullptr : arguments.store.c_str();
  options.max_message_bytes = static_cast<uint64_t>(arguments.max_message_mib) * kMebibyte;
  options.opencl_library =
      arguments.opencl_library.empty() ? nullptr : arguments.opencl_library.c_str();
  if (adrenoc_serve_rpc(peer.connection.get(), &options) == ADRENOC_OK) return 0;
  std::fprintf(stderr, "adrenoc_rpc: %s\n", adrenoc_last_error());
  return kRefusedCode;
}

// What a session did last, as its trace file tells; empty when it did nothing on a device.
std::string last_deed(const std::string& folder) {
  std::ifstream stream(folder + "/doing");
  std::string text;
  std::getline(stream, text, '\0');
  return text.empty() ? "" : "; last it was " + text;
}

// Waits for the process of a session, at most `timeout_s` (0: for ever), and says how it ended.
std::string wait_for(pid_t session, int timeout_s, const std::string& folder) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(timeout_s);
  int status = 0;
  while (waitpid(session, &status, WNOHANG) == 0) {
    const bool is_late = timeout_s != 0 && Clock::now() >= end;
    if (is_late || adrenoc_rpc::ending_signal() != 0) {
      kill(session, SIGKILL);
      waitpid(session, &status, 0);
      if (!is_late) return "was stopped with the server";
      return "was stopped after " + std::to_string(timeout_s) + " s" + last_deed(folder);
    }
    usleep(10000);
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
  if (tracker != nullptr && adrenoc_rpc::ending_signal() == 0) tracker->offer();
  while (true) {
    const std::string key = tracker == nullptr ? arguments.key : tracker->session_key();
    std::optional<Peer> peer = greetings->wait(key, limit_ms, ending);
    if (adrenoc_rpc::ending_signal() != 0) adrenoc_rpc::end_by(adrenoc_rpc::ending_signal());
    if (peer.has_value()) return std::move(*peer);
    if (tracker != nullptr) tracker->keep();
  }
}

// Serves a peer in a process of its own, and says how that ended.
std::string run_session(const Arguments& arguments, Greetings* greetings, const Peer& peer) {
  const SessionFolder folder(arguments.folder);
  const pid_t server = getpid();
  const pid_t session = fork();
  if (session < 0) fail("cannot start a process");
  if (session == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != server) _exit(1);  // the server ended before the line above
    adrenoc_rpc::forget_endings();
    greetings->close_all();
    _exit(serve(peer, arguments, folder.path()));
  }
  return wait_for(session, arguments.timeout_s, folder.path());
}

[[noreturn]] void serve_all(const Arguments& arguments, Greetings greetings,
                            TrackerEntry* tracker, int ending) {
  for (uint64_t number = 1;; ++number) {
    const Peer peer = next_peer(&greetings, arguments, tracker, ending);
    std::string said;
    try {
      said = run_session(arguments, &greetings, peer);
    } catch (const std::runtime_error& error) {
      // No room for its folder, no process: the next may have more luck.
      said = std::string("was not started: ") + error.what();
    }
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
    const Arguments arguments = parse(count, values);
    int port = arguments.port;
    const int ending = adrenoc_rpc::catch_endings();
    Socket listening = adrenoc_rpc::listen_on(arguments.host, &port);
    std::unique_ptr<TrackerEntry> tracker;
    if (!arguments.tracker_host.empty()) {
      tracker = std::make_unique<TrackerEntry>(arguments.tracker_host, arguments.tracker_port,
                                               arguments.key, arguments.address, port);
    }
    // A server that was killed could not do it.
    adrenoc_rpc::remove_left_folders(arguments.folder);
    std::printf("{\"port\": %d}\n", port);
    std::fflush(stdout);
    serve_all(arguments, Greetings(std::move(listening), arguments.key), tracker.get(), ending);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr, "adrenoc_rpc: %s\n%s", error.what(), kUsage);
    return kUsageCode;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "adrenoc_rpc: %s\n", error.what());
    return 1;
  }
}
