#include "rpc_ending.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <string>

namespace adrenoc_rpc {
namespace {

constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP};
volatile sig_atomic_t seen = 0;
int read_end = -1;
int write_end = -1;

void note(int signal_number) {
  const int code = errno;
  seen = signal_number;
  (void)!write(write_end, "", 1);
  errno = code;
}

}  // namespace

int catch_endings() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
    throw std::runtime_error(std::string("cannot make a pipe: ") + std::strerror(errno));
  }
  read_end = ends[0];
  write_end = ends[1];
  for (const int number : kSignals) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler == SIG_IGN) continue;  // nohup: it is to live on
    action.sa_handler = note;
    sigaction(number, &action, nullptr);
  }
  return read_end;
}

int ending_signal() { return seen; }

void end_by(int signal_number) {
  signal(signal_number, SIG_DFL);
  raise(signal_number);
  _exit(128 + signal_number);
}

void forget_endings() {
  for (const int number : kSignals) {
    struct sigaction action {};
    sigaction(number, nullptr, &action);
    if (action.sa_handler == note) signal(number, SIG_DFL);
  }
  close(read_end);
  close(write_end);
}

}  // namespace adrenoc_rpc
