// A bundle: its files, checked, wherever they come from.  One that was compiled for several shapes
// holds a bundle for each (adrenoc/bundle/buckets.py has the layout), one for several GPUs such a
// bundle for each GPU (adrenoc/bundle/buckets.py), and the constants once.
#pragma once

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/machine.h"
#include "base/sha256.h"
#include "base/stopwatch.h"
#include "bundle/formats.h"
#include "bundle/manifest.h"
#include "bundle/moves.h"
#include "files/file.h"
#include "files/safetensors.h"

namespace adrenoc_runtime {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kLibrary = "model.so";
constexpr const char* kParams = "params.safetensors";
constexpr const char* kFallback = "cpu.so";
constexpr const char* kProof = "proof.json";
constexpr const char* kTextTables = "text_tables.bin";
constexpr const char* kPrograms = "programs/";
constexpr const char* kBuckets = "buckets.json";
constexpr const char* kDevices = "devices.json";
constexpr const char* kMoves = "moves.json";
constexpr const char* kHere = ".";  // the bucket that is the bundle itself

inline bool is_folder(const std::string& path) {
  struct stat facts{};
  return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// The dynamic loader wants a file: one that lives in memory and has no name in any folder.
inline Descriptor library_in_memory(std::string_view content, const std::string& name) {
  check_extents(content, name);
  constexpr unsigned close_on_exec = 1;  // MFD_CLOEXEC, which old C libraries do not name
  Descriptor file(static_cast<int>(syscall(SYS_memfd_create, kLibrary, close_on_exec)));
  if (file.get() < 0) {
    throw Failure(ADRENOC_INTERNAL,
                  {"cannot make a file in memory for ", name, ": ", std::strerror(errno)});
  }
  while (!content.empty()) {
    const ssize_t written = write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw Failure(ADRENOC_OUT_OF_MEMORY, {"no memory is left for ", name});
    content.remove_prefix(static_cast<size_t>(written));
  }
  return file;
}

inline std::string path_of(const Descriptor& file) {
  return "/proc/self/fd/" + std::to_string(file.get());
}

class Bundle {
 public:
  // From a folder or a tar file.  With `verify` each file that the runtime uses must have the
  // digest that the manifest gives.  Throws Failure (not found, bad bundle).
  Bundle(const std::string& path, bool verify) : verify_(verify) {
    open(path);
    read();
  }
  // From the tar form in a mapped file.
  Bundle(MappedFile archive, bool verify) : verify_(verify) {
    mapped_.push_back(std::move(archive));
    open_archive(mapped_.back().content());
    read();
  }
  // From the tar form in memory, which must stay until the constants are on the device.
  Bundle(std::string_view archive, bool verify) : verify_(verify) {
    open_archive(archive);
    read();
  }
  Bundle(const Bundle&) = delete;
  Bundle& operator=(const Bundle&) = delete;

  // The texts of its manifest, buckets and devices as one object of JSON, whatever machine it is
  // for. Throws Failure (not found, bad bundle).
  [[nodiscard]] static std::string describe(const std::string& path) {
    Bundle bundle(true);
    bundle.open(path);
    const std::string manifest(bundle.read_own_manifest());
    const auto text_or_null = [&bundle](const char* name) {
      return bundle.manifest_.files.count(name) == 0 ? "null" : bundle.inflated(name);
    };
    return "{\"manifest\": " + manifest + ", \"buckets\": " + text_or_null(kBuckets) +
           ", \"devices\": " + text_or_null(kDevices) + "}";
  }

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  // What it holds for single GPUs, the common edition last; empty where it is for one device.
  [[nodiscard]] const std::vector<Edition>& editions() const { return editions_; }
  // Has manifests and libraries of buckets from another edition; those of the one before are gone.
  // Throws Failure (bad bundle).
  void open_edition(const Edition& edition) {
    const std::vector<Bucket> common = buckets_;
    open_folder(edition.folder == kHere ? "" : edition.folder + "/");
    const auto alike = [](const Bucket& one, const Bucket& other) {
      const auto same = [](const TensorSpec& a, const TensorSpec& b) {
        return a.name == b.name && a.shape == b.shape;
      };
      const Manifest& mine = one.manifest;
      const Manifest& its = other.manifest;
      return std::equal(mine.inputs.begin(), mine.inputs.end(), its.inputs.begin(),
                        its.inputs.end(), same) &&
             std::equal(mine.outputs.begin(), mine.outputs.end(), its.outputs.begin(),
                        its.outputs.end(), same);
    };
    if (!std::equal(common.begin(), common.end(), buckets_.begin(), buckets_.end(), alike)) {
      refuse_bundle({edition.folder, " has other inputs or outputs than the bundle"});
    }
  }
  // The constants by name, good as long as their data is there.
  [[nodiscard]] const std::map<std::string, StoredTensor>& params() const { return params_; }
  // Whether their data is: what came from memory is the caller's.
  [[nodiscard]] bool keeps_constants() const { return !mapped_.empty(); }
  // Gives back the memory of a constant's data, which is read again from its file if need be.
  void forget(std::string_view data) const {
    for (const MappedFile& file : mapped_) file.forget(data);
  }
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
  [[nodiscard]] std::optional<std::string_view> programs(const std::string& name) const {
    const auto found = programs_.find(name);
    if (found == programs_.end()) return std::nullopt;
    return found->second;
  }

 private:
  using FindFile = std::function<std::string_view(const std::string& path)>;
  explicit Bundle(bool verify) : verify_(verify) {}
  void open(const std::string& path) {
    if (!is_folder(path)) {
      mapped_.emplace_back(path);
      open_archive(mapped_.back().content());
      return;
    }
    find_ = [this, path](const std::string& name) {
      mapped_.emplace_back(path + "/" + name);
      return mapped_.back().content();
    };
  }
  void open_archive(std::string_view archive) {
    find_ = [files = read_tar(archive)](const std::string& name) {
      const auto found = files.find(name);
      if (found == files.end()) refuse_bundle({"the bundle lacks the file ", name});
      return found->second;
    };
  }
  // The manifest, which all other files are held against.
  [[nodiscard]] std::string_view read_own_manifest() {
    const std::string_view manifest = find_(kManifest);
    manifest_ = read_manifest(manifest);
    return manifest;
  }
  void read() {
    digest_ = sha256_hex(read_own_manifest());
    if (manifest_.machine != kMachine) {
      refuse_bundle({"the bundle is for ", manifest_.machine, " (", manifest_.target,
                     "), this machine is ", kMachine});
    }
    const std::string_view params = checked(kParams);
    params_ = read_safetensors(params, kParams);
    forget(params);  // its digest was made of all of it
    if (manifest_.files.count(kMoves) != 0) moves_ = read_moves(inflated(kMoves));
    for (const auto& [path, entry] : manifest_.files) {
      // Built kernels carry a digest of their own, which is checked when they are used.
      if (path.rfind(kPrograms, 0) == 0)
        programs_[path.substr(std::strlen(kPrograms))] = find_(path);
    }
    if (manifest_.files.count(kFallback) != 0) {
      fallback_file_.emplace(library_in_memory(inflated(kFallback), kFallback));
      fallback_path_ = path_of(*fallback_file_);
    }
    // A copy: it is read when somebody asks, and what the bundle came from may be gone by then.
    if (manifest_.files.count(kProof) != 0) proof_ = inflated(kProof);
    if (manifest_.files.count(kTextTables) != 0) text_tables_ = inflated(kTextTables);
    if (manifest_.files.count(kDevices) != 0) editions_ = read_editions(inflated(kDevices));
    open_folder("");
    opened_ms_ = watch_.ms();
  }
  void open_folder(const std::string& prefix) {
    std::vector<std::string> folders = {kHere};
    std::vector<std::string> signatures = {""};
    batch_ = {};
    if (manifest_.files.count(prefix + kBuckets) != 0) {
      BucketList list = read_buckets(inflated(prefix + kBuckets));
      folders = std::move(list.folders);
      signatures = std::move(list.signatures);
      batch_ = std::move(list.batch);
    }
    buckets_.clear();
    library_files_.clear();
    for (size_t i = 0; i < folders.size(); ++i) {
      add_bucket(folders[i] == kHere ? prefix : prefix + folders[i] + "/", signatures[i]);
    }
    check_alike(buckets_, batch_);
  }
  void add_bucket(const std::string& prefix, const std::string& signature) {
    Bucket bucket;
    bucket.signature = signature;
    bucket.manifest = prefix.empty() ? manifest_ : read_manifest(inflated(prefix + kManifest));
    check_params(bucket.manifest);
    // Always a copy: a library keeps the address of the one module that it belongs to, and the
    // dynamic loader would give two models of one file the same library.
    const std::string library = prefix + kLibrary;
    library_files_.push_back(library_in_memory(inflated(library), library));
    bucket.library_path = path_of(library_files_.back());
    buckets_.push_back(std::move(bucket));
  }
  void check_params(const Manifest& manifest) const {
    for (const ParamSpec& spec : manifest.params) {
      const auto found = params_.find(spec.name);
      const auto move = moves_.find(spec.name);
      const bool is_moved = move != moves_.end() && params_.count(move->second.source) != 0;
      if (found == params_.end() && !is_moved)
        refuse_bundle({"params.safetensors lacks ", spec.name});
      const std::string& dtype = is_moved ? move->second.dtype : found->second.dtype;
      const std::vector<int64_t>& shape = is_moved ? move->second.shape : found->second.shape;
      if (dtype != spec.dtype || shape != spec.shape) {
        refuse_bundle({"params.safetensors: ", spec.name,
                       " has another shape or dtype than the manifest gives"});
      }
    }
  }
  // A file as it is stored, and what it holds.
  [[nodiscard]] std::string_view checked(const std::string& path) const {
    const auto entry = manifest_.files.find(path);
    if (entry == manifest_.files.end()) refuse_bundle({"manifest.json does not list ", path});
    const std::string_view content = find_(path);
    if (content.size() != entry->second.bytes) {
      refuse_bundle({path, " has ", content.size(), " bytes, expected ", entry->second.bytes});
    }
    if (verify_ && sha256_hex(content) != entry->second.sha256) {
      refuse_bundle({path, " is not what was compiled (its SHA-256 differs)"});
    }
    return content;
  }
  [[nodiscard]] std::string inflated(const std::string& path) const {
    const std::string_view content = checked(path);
    const uint64_t bytes = manifest_.files.at(path).inflated_bytes;
    return bytes == 0 ? std::string(content) : inflate(content, bytes, path);
  }

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
