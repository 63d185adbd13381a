// Tells whoever polls file descriptors that a run has ended.
#pragma once

#include <mutex>
#include <optional>

#include "files/mapped_file.h"

namespace adrenoc_runtime {

class Fence {
 public:
  // Readable from signal() to reset(); made at the first call.  Throws Failure (out of memory)
  // where the process has no descriptor left.
  [[nodiscard]] int descriptor();
  void signal() noexcept;
  void reset() noexcept;
  [[nodiscard]] bool is_signalled() noexcept;

  // Signals when it goes, however the run ends.
  class Signal {
   public:
    explicit Signal(Fence& fence) : fence_(fence) {}
    Signal(const Signal&) = delete;
    Signal& operator=(const Signal&) = delete;
    ~Signal() { fence_.signal(); }

   private:
    Fence& fence_;
  };

 private:
  void write_locked() noexcept;

  std::mutex mutex_;
  std::optional<Descriptor> event_;
  bool signalled_ = false;  // a run may end before anybody asks for the descriptor
};

}  // namespace adrenoc_runtime
