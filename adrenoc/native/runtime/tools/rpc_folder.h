// The folder of a session, which goes with it; what servers that were killed left behind.
#pragma once

#include <string>

namespace adrenoc_rpc {

// Is locked for as long as this process or one that it forked has it open, so that other servers
// know it from one that nobody uses any more.
class SessionFolder {
 public:
  // Makes one in `parent`.  Throws std::runtime_error.
  explicit SessionFolder(const std::string& parent);
  SessionFolder(const SessionFolder&) = delete;
  SessionFolder& operator=(const SessionFolder&) = delete;
  // Removes it.
  ~SessionFolder();

  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
  int lock_ = -1;
};

// The first folder that sessions may have theirs in: beside this program, $TMPDIR, and where
// Android and others let programs write.  Throws std::runtime_error, naming each that was tried and
// why not.
[[nodiscard]] std::string find_session_parent();

// Removes the folders of sessions in `parent` that no process uses; returns how many.
int remove_left_folders(const std::string& parent);

}  // namespace adrenoc_rpc
