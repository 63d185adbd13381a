// Texts that end an answer, of which they are no part.
#pragma once

#include <string>
#include <vector>

namespace adrenoc_runtime {

// Text that is given on as it comes, but for what may be the beginning of a stop.
class Stops {
 public:
  explicit Stops(std::vector<std::string> texts) : texts_(std::move(texts)) {}

  // What can be given on now that `piece` is there.
  [[nodiscard]] std::string feed(const std::string& piece);
  // The rest, as no more comes.
  [[nodiscard]] std::string finish(const std::string& piece);
  [[nodiscard]] bool has_stopped() const { return has_stopped_; }

 private:
  [[nodiscard]] std::string give(size_t count);

  const std::vector<std::string> texts_;
  std::string kept_;
  bool has_stopped_ = false;
};

}  // namespace adrenoc_runtime
