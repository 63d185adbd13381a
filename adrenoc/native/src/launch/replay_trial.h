// Finds out which way of launching is the fastest, in runs that are wanted anyway.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/replay.h"

namespace adrenoc_runtime::opencl {

// Some drivers replay a recording more slowly than they take plain launches, so each way gets two
// runs, which are waited for.  A recording wins unless it is clearly slower: what it saves of the
// host's time is not in these times.
class Trial {
 public:
  Trial() = default;  // of nothing: not under way
  // `kept` must live as long as the trial.
  Trial(Replay& kept, std::vector<std::unique_ptr<Replay>> recorded);

  [[nodiscard]] bool is_under_way() const;

  // Gives one run to the device and waits for it.  Returns the name of the way that it took, or
  // null when that way failed, which then is out of the trial.
  [[nodiscard]] const char* run(QueueLock& queue);

  // The recording that won, or null; `reason` then says why none did.
  [[nodiscard]] std::unique_ptr<Replay> take_best(std::string* reason);

 private:
  struct Way {
    Replay* replay;
    std::unique_ptr<Replay> owned;
    double best_ms;
    std::string failure;
  };

  std::vector<Way> ways_;  // the first is that of plain launches
  size_t runs_ = 0;
};

}  // namespace adrenoc_runtime::opencl
