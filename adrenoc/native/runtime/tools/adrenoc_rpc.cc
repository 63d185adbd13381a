// Serves TVM's RPC protocol, so that a compiler on another machine can load and time bundles here.
//
//   adrenoc_rpc [--host 127.0.0.1] [--port 9090] [--key KEY] [--timeout SECONDS] [--folder FOLDER]
//               [--opencl LIBRARY]
//
// Each session runs in a process of its own, one after the other: a crash or a time-out ends that
// session and not the server.  Prints {"port": N} when it listens (port 0 takes any free one), then
// a line for each session.  Ends with the signal that ends it.
#include <arpa/inet.h>
#include <dirent.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>

#include "adrenoc.h"

namespace {

// TVM's protocol: what both sides say first, and what a server says of a wrong key.
constexpr int32_t kMagic = 0xff271;
constexpr int32_t kMismatch = kMagic + 2;
constexpr int32_t kMaxKeyBytes = 1024;
constexpr int kHandshakeSeconds = 10;
constexpr int kUsageCode = 2;

struct Arguments {
  std::string host = "127.0.0.1";
  int port = 9090;
  std::string key;
  int timeout_s = 600;
  std::string folder = "/tmp";
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

Arguments parse(int count, char** values) {
  Arguments arguments;
  for (int i = 1; i < count; i += 2) {
    const std::string option = values[i];
    if (i + 1 == count) throw std::invalid_argument(option + " has no value, or is unknown");
    const std::string value = values[i + 1];
    if (option == "--host") {
      arguments.host = value;
    } else if (option == "--port") {
      arguments.port = parse_number(option, value, 65535);
    } else if (option == "--key") {
      arguments.key = value;
    } else if (option == "--timeout") {
      arguments.timeout_s = parse_number(option, value, 1000000);
    } else if (option == "--folder") {
      arguments.folder = value;
    } else if (option == "--opencl") {
      arguments.opencl_library = value;
    } else {
      throw std::invalid_argument("unknown option " + option);
    }
  }
  return arguments;
}

int listen_on(const Arguments& arguments, int* port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(arguments.port));
  if (inet_pton(AF_INET, arguments.host.c_str(), &address.sin_addr) != 1) {
    throw std::invalid_argument("--host is \"" + arguments.host + "\", expected an IPv4 address");
  }
  const int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (listening < 0) fail("cannot make a socket");
  const int on = 1;
  setsockopt(listening, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (bind(listening, generic, sizeof(address)) != 0 || listen(listening, 16) != 0) {
    fail("cannot listen on " + arguments.host + ":" + std::to_string(arguments.port));
  }
  socklen_t size = sizeof(address);
  getsockname(listening, generic, &size);
  *port = ntohs(address.sin_port);
  return listening;
}

void limit_wait(int connection, int seconds) {
  timeval limit{};
  limit.tv_sec = seconds;
  setsockopt(connection, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof(limit));
  setsockopt(connection, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
}

bool receive(int connection, void* target, size_t bytes) {
  return recv(connection, target, bytes, MSG_WAITALL) == static_cast<ssize_t>(bytes);
}

bool answer(int connection, int32_t code, const std::string& key) {
  std::string text(reinterpret_cast<const char*>(&code), sizeof(code));
  if (code == kMagic) {
    const auto bytes = static_cast<int32_t>(key.size());
    text.append(reinterpret_cast<const char*>(&bytes), sizeof(bytes));
    text += key;
  }
  return send(connection, text.data(), text.size(), MSG_NOSIGNAL) ==
         static_cast<ssize_t>(text.size());
}

// What is wrong with the peer's greeting, or nullptr.
const char* shake_hands(int connection, const std::string& key) {
  int32_t code = 0;
  int32_t bytes = 0;
  if (!receive(connection, &code, sizeof(code)) || code != kMagic) {
    return "the peer does not speak TVM's RPC protocol";
  }
  if (!receive(connection, &bytes, sizeof(bytes)) || bytes <= 0 || bytes > kMaxKeyBytes) {
    return "the peer's key is too long";
  }
  std::string greeting(static_cast<size_t>(bytes), '\0');
  if (!receive(connection, greeting.data(), greeting.size())) return "the peer left";
  // Options may follow the key: "client:KEY -timeout=60".
  if (greeting.substr(0, greeting.find(' ')) != "client:" + key) {
    (void)answer(connection, kMismatch, "");
    return "the peer has another key";
  }
  return answer(connection, kMagic, "server:" + key) ? nullptr : "the peer left";
}

// A session in a process of its own; returns its exit code.
int serve(int connection, const Arguments& arguments, const std::string& folder) {
  limit_wait(connection, kHandshakeSeconds);
  if (const char* wrong = shake_hands(connection, arguments.key)) {
    std::fprintf(stderr, "adrenoc_rpc: %s\n", wrong);
    return 1;
  }
  limit_wait(connection, 0);
  const int on = 1;
  setsockopt(connection, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  const char* opencl =
      arguments.opencl_library.empty() ? nullptr : arguments.opencl_library.c_str();
  if (adrenoc_serve_rpc(connection, folder.c_str(), opencl) == ADRENOC_OK) return 0;
  std::fprintf(stderr, "adrenoc_rpc: %s\n", adrenoc_last_error());
  return 1;
}

void remove_folder(const std::string& folder) {
  if (DIR* listing = opendir(folder.c_str())) {
    while (const dirent* entry = readdir(listing)) unlink((folder + "/" + entry->d_name).c_str());
    closedir(listing);
  }
  rmdir(folder.c_str());
}

// Waits for the process of a session, at most `timeout_s` (0: for ever), and says how it ended.
std::string wait_for(pid_t session, int timeout_s) {
  using Clock = std::chrono::steady_clock;
  const auto end = Clock::now() + std::chrono::seconds(timeout_s);
  int status = 0;
  while (waitpid(session, &status, timeout_s == 0 ? 0 : WNOHANG) == 0) {
    if (Clock::now() >= end) {
      kill(session, SIGKILL);
      waitpid(session, &status, 0);
      return "was stopped after " + std::to_string(timeout_s) + " s";
    }
    usleep(10000);
  }
  if (WIFSIGNALED(status)) return "crashed with signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "ended" : "failed";
}

[[noreturn]] void serve_all(const Arguments& arguments, int listening) {
  for (uint64_t number = 1;; ++number) {
    const int connection = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (connection < 0) {
      if (errno == EINTR || errno == ECONNABORTED) continue;
      fail("cannot accept a connection");
    }
    std::string folder = arguments.folder + "/adrenoc-rpc-XXXXXX";
    if (mkdtemp(folder.data()) == nullptr) fail("cannot make a folder in " + arguments.folder);
    const pid_t server = getpid();
    const pid_t session = fork();
    if (session < 0) fail("cannot start a session");
    if (session == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != server) _exit(1);  // the server ended before the line above
      close(listening);
      _exit(serve(connection, arguments, folder));
    }
    close(connection);
    const std::string ending = wait_for(session, arguments.timeout_s);
    remove_folder(folder);
    std::printf("session %llu %s\n", static_cast<unsigned long long>(number), ending.c_str());
    std::fflush(stdout);
  }
}

}  // namespace

int main(int count, char** values) {
  if (count == 2 && std::strcmp(values[1], "--version") == 0) {
    std::printf("%s\n", adrenoc_runtime_version());
    return 0;
  }
  try {
    const Arguments arguments = parse(count, values);
    int port = 0;
    const int listening = listen_on(arguments, &port);
    std::printf("{\"port\": %d}\n", port);
    std::fflush(stdout);
    serve_all(arguments, listening);
  } catch (const std::invalid_argument& error) {
    std::fprintf(stderr,
                 "adrenoc_rpc: %s\nusage: adrenoc_rpc [--host ADDRESS] [--port NUMBER] [--key KEY] "
                 "[--timeout SECONDS] [--folder FOLDER] [--opencl LIBRARY]\n",
                 error.what());
    return kUsageCode;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "adrenoc_rpc: %s\n", error.what());
    return 1;
  }
}
