// The server as a process: signals that end it, and folders of its sessions, which go with them;
// also what servers that were killed left behind.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace adrenoc_rpc {

// A signal that asks the server to end makes a descriptor readable instead of ending this process.
class Endings {
 public:
  // From now on SIGTERM, SIGINT and SIGHUP do so; returns the descriptor.  Throws
  // std::runtime_error.
  [[nodiscard]] static int begin() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) {
      throw std::runtime_error(std::string("cannot make a pipe: ") + std::strerror(errno));
    }
    read_end_ = ends[0];
    write_end_ = ends[1];
    for (const int number : kSignals) {
      struct sigaction action{};
      sigaction(number, nullptr, &action);
      if (action.sa_handler == SIG_IGN) continue;  // nohup: it is to live on
      action.sa_handler = note;
      sigaction(number, &action, nullptr);
    }
    return read_end_;
  }

  // The signal that came, 0 as long as none did.
  [[nodiscard]] static int signal_seen() { return seen_; }

  // Ends this process by that signal, as one that had not caught it.
  [[noreturn]] static void end_process() {
    signal(seen_, SIG_DFL);
    raise(seen_);
    _exit(128 + seen_);
  }

  // For the process of a session: signals end it again as they do any other.
  static void forget() {
    for (const int number : kSignals) {
      struct sigaction action{};
      sigaction(number, nullptr, &action);
      if (action.sa_handler == note) signal(number, SIG_DFL);
    }
    close(read_end_);
    close(write_end_);
  }

 private:
  static void note(int signal_number) {
    const int code = errno;
    seen_ = signal_number;
    (void)!write(write_end_, "", 1);
    errno = code;
  }

  static constexpr int kSignals[] = {SIGTERM, SIGINT, SIGHUP};
  static inline volatile sig_atomic_t seen_ = 0;
  static inline int read_end_ = -1;
  static inline int write_end_ = -1;
};

// The folder of a session.  Is locked for as long as this process or one that it forked has it
// open, so that other servers know it from one that nobody uses any more.
class SessionFolder {
 public:
  // Makes one in `parent`.  Throws std::runtime_error.
  explicit SessionFolder(const std::string& parent) {
    while (true) {
      path_ = parent + "/" + kPrefix + "XXXXXX";
      if (mkdtemp(path_.data()) == nullptr) {
        throw std::runtime_error("cannot make a folder in " + parent + ": " + std::strerror(errno));
      }
      lock_ = open_folder(path_);
      struct stat facts{};
      // A server that starts may have taken it for a left one before it was locked.
      if (lock_ >= 0 && flock(lock_, LOCK_EX) == 0 && stat(path_.c_str(), &facts) == 0) return;
      if (lock_ >= 0) close(lock_);
    }
  }
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  ~SessionFolder() {
    remove(path_);
    close(lock_);
  }

  [[nodiscard]] const std::string& path() const { return path_; }

  // The first folder that sessions may have theirs in: beside this program, $TMPDIR, and where
  // Android and others let programs write.  Throws std::runtime_error, naming each that was tried
  // and why not.
  [[nodiscard]] static std::string find_parent() {
    std::string tried;
    const char* const named = std::getenv("TMPDIR");
    for (const std::string& parent : {program_folder(), std::string(named == nullptr ? "" : named),
                                      std::string("/data/local/tmp"), std::string("/tmp")}) {
      if (parent.empty()) continue;
      // Asked by doing it: a disk that is only read, or is full, says so only then.
      std::string probe = parent + "/" + kPrefix + "XXXXXX";
      if (mkdtemp(probe.data()) != nullptr) {
        rmdir(probe.c_str());
        return parent;
      }
      tried += (tried.empty() ? "" : "; ") + parent + ": " + std::strerror(errno);
    }
    throw std::runtime_error("there is no folder for sessions (" + tried + ")");
  }

  // Removes the folders of sessions in `parent` that no process uses.
  static void remove_left(const std::string& parent) {
    for (const std::string& name : names_in(parent)) {
      if (name.rfind(kPrefix, 0) != 0) continue;
      const std::string path = parent + "/" + name;
      const int lock = open_folder(path);
      if (lock < 0) continue;
      if (flock(lock, LOCK_EX | LOCK_NB) == 0) remove(path);
      close(lock);
    }
  }

 private:
  // As adrenoc/device/serve.py has it.
  static constexpr const char* kPrefix = "adrenoc-rpc-";

  static int open_folder(const std::string& path) {
    return open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  }

  static std::vector<std::string> names_in(const std::string& folder) {
    std::vector<std::string> names;
    DIR* listing = opendir(folder.c_str());
    if (listing == nullptr) return names;
    while (const dirent* entry = readdir(listing)) names.emplace_back(entry->d_name);
    closedir(listing);
    return names;
  }

  // Sessions make no folders in theirs.
  static void remove(const std::string& path) {
    for (const std::string& name : names_in(path)) unlink((path + "/" + name).c_str());
    rmdir(path.c_str());
  }

  // Where the program that runs lies; empty where the system does not tell.
  static std::string program_folder() {
    std::string path(4096, '\0');
    const ssize_t length = readlink("/proc/self/exe", path.data(), path.size());
    if (length <= 0) return "";
    path.resize(static_cast<size_t>(length));
    return path.substr(0, path.rfind('/'));
  }

  std::string path_;
  int lock_ = -1;
};

}  // namespace adrenoc_rpc
