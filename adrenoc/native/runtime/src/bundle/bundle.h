// A bundle: its files, checked, wherever they come from.  One that was compiled for several shapes
// holds a bundle for each (adrenoc/bundle/buckets.py has the layout), one for several GPUs such a
// bundle for each GPU (adrenoc/bundle/buckets.py), and the constants once.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/stopwatch.h"
#include "bundle/manifest.h"
#include "bundle/moves.h"
#include "files/file.h"
#include "files/safetensors.h"

namespace adrenoc_runtime {

class Bundle {
 public:
  // From a folder or a tar file.  With `verify` each file that the runtime uses must have the
  // digest that the manifest gives.  Throws Failure (not found, bad bundle).
  Bundle(const std::string& path, bool verify);
  // From the tar form in a mapped file.
  Bundle(MappedFile archive, bool verify);
  // From the tar form in memory, which must stay until the constants are on the device.
  Bundle(std::string_view archive, bool verify);
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  // The texts of its manifest, buckets and devices as one object of JSON, whatever machine it is
  // for. Throws Failure (not found, bad bundle).
  [[nodiscard]] static std::string describe(const std::string& path);

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  // What it holds for single GPUs, the common edition last; empty where it is for one device.
  [[nodiscard]] const std::vector<Edition>& editions() const { return editions_; }
  // Has manifests and libraries of buckets from another edition; those of the one before are gone.
  // Throws Failure (bad bundle).
  void open_edition(const Edition& edition);
  // The constants by name, good as long as their data is there.
  [[nodiscard]] const std::map<std::string, StoredTensor>& params() const { return params_; }
  // Whether their data is: what came from memory is the caller's.
  [[nodiscard]] bool keeps_constants() const { return !mapped_.empty(); }
  // Gives back the memory of a constant's data, which is read again from its file if need be.
  void forget(std::string_view data) const;
  // How constants that are not there come of those that are, by name.
  [[nodiscard]] const std::map<std::string, Move>& moves() const { return moves_; }
  // Of the edition that is open, at first the common one.  The smallest first; a bundle for one
  // shape has one.
  [[nodiscard]] const std::vector<Bucket>& buckets() const { return buckets_; }
  [[nodiscard]] const Batch& batch() const { return batch_; }
  // Where the model's code for the CPU can be opened; "" where the bundle carries none.
  [[nodiscard]] const std::string& fallback_path() const { return fallback_path_; }
  // How long opening and checking took.
  [[nodiscard]] double opened_ms() const { return opened_ms_; }
  // SHA-256 of the manifest, which has the digests of all other files.
  [[nodiscard]] const std::string& digest() const { return digest_; }
  // Inputs with what has to come of them (proof/proof.h); "" where the bundle carries none.
  [[nodiscard]] const std::string& proof() const { return proof_; }
  // What texts and tokens are turned into each other by; "" where the bundle carries none.  It is
  // given once.
  [[nodiscard]] std::string take_text_tables() { return std::move(text_tables_); }
  // A file of built kernels that came with the bundle, by its name.
  [[nodiscard]] std::optional<std::string_view> programs(const std::string& name) const;

 private:
  using FindFile = std::function<std::string_view(const std::string& path)>;
  explicit Bundle(bool verify) : verify_(verify) {}
  void open(const std::string& path);
  void open_archive(std::string_view archive);
  // The manifest, which all other files are held against.
  [[nodiscard]] std::string_view read_own_manifest();
  void read();
  void open_folder(const std::string& prefix);
  void add_bucket(const std::string& prefix, const std::string& signature);
  void check_params(const Manifest& manifest) const;
  // A file as it is stored, and what it holds.
  [[nodiscard]] std::string_view checked(const std::string& path) const;
  [[nodiscard]] std::string inflated(const std::string& path) const;

  Stopwatch watch_;
  double opened_ms_ = 0;
  bool verify_;
  FindFile find_;
  std::vector<MappedFile> mapped_;
  std::vector<Descriptor> library_files_;  // of the buckets
  std::optional<Descriptor> fallback_file_;
  Manifest manifest_;
  std::vector<Edition> editions_;
  std::map<std::string, Move> moves_;
  std::vector<Bucket> buckets_;
  Batch batch_;
  std::string fallback_path_;
  std::string digest_;
  std::string proof_;
  std::string text_tables_;
  std::map<std::string, StoredTensor> params_;
  std::map<std::string, std::string_view> programs_;
};

}  // namespace adrenoc_runtime
