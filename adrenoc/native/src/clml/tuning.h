// Where the library's tuning results are kept between processes.
#pragma once

#include <string>

namespace adrenoc_runtime::clml {

// CLML_IS_TUNING_RUN=1 (or, as the RFC of TVM spells it, CLML_IS_TUNNING_RUN) asks to tune.
// CLML_TUNING_CACHE names a file in TVM's form: records by symbol.  Without it the results lie in
// the cache folder, a file for each region, device, driver and library version.
class TuningStore {
 public:
  // `key` says all that the results depend on; `folder` is empty where nothing shall be kept.
  TuningStore(std::string folder, std::string key);

  [[nodiscard]] bool is_tuning_run() const { return tuning_run_; }

  // What was kept for a region, or nothing; `note` is told where it came from.
  [[nodiscard]] std::string find(const std::string& symbol, std::string* note) const;

  // Keeps it, in place of what was there; returns where, or why not.
  [[nodiscard]] std::string save(const std::string& symbol, const std::string& bytes) const;

 private:
  [[nodiscard]] std::string own_file(const std::string& symbol) const;

  const std::string folder_;
  const std::string key_;
  std::string file_;
  bool tuning_run_ = false;
};

}  // namespace adrenoc_runtime::clml
