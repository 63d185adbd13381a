// Verdicts of earlier proofs, one file for each device and bundle.
#pragma once

#include <optional>
#include <string>

namespace adrenoc_runtime {

// What a verdict depends on.
struct VerdictKey {
  std::string device;  // platform, name and OpenCL version; how launches reach it
  std::string driver;  // CL_DRIVER_VERSION
  std::string bundle;  // digest of the manifest

  // One file for each device and bundle, so that a new driver's verdict takes the place of the old.
  [[nodiscard]] std::string file_name() const;
};

// A folder of them.  What is damaged, of another driver or of another runtime counts as not there.
class VerdictStore {
 public:
  // An empty folder keeps nothing.
  VerdictStore(std::string folder, VerdictKey key);

  // What was wrong, "" if nothing was; none where the key has no verdict yet.
  [[nodiscard]] std::optional<std::string> find() const;

  // Notes that a proof begins: one that hangs, or ends the process, leaves no verdict.  Returns how
  // many began before and did not end.
  int begin() const;

  void keep(const std::string& wrong) const;

  // The proof ended without a verdict.
  void forget() const;

 private:
  [[nodiscard]] std::string path() const;
  [[nodiscard]] std::string digest(const std::string& said) const;
  [[nodiscard]] std::optional<std::string> read(char kind) const;
  void write(char kind, const std::string& text) const;

  std::string folder_;
  VerdictKey key_;
};

}  // namespace adrenoc_runtime
