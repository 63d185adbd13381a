#include "bundle/bundle.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/failure.h"
#include "base/machine.h"
#include "base/sha256.h"
#include "bundle/formats.h"

namespace adrenoc_runtime {
namespace {

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

bool is_folder(const std::string& path) {
  struct stat facts{};
  return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// The dynamic loader wants a file: one that lives in memory and has no name in any folder.
Descriptor library_in_memory(std::string_view content, const std::string& name) {
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

std::string path_of(const Descriptor& file) {
  return "/proc/self/fd/" + std::to_string(file.get());
}

}  // namespace

Bundle::Bundle(const std::string& path, bool verify) : verify_(verify) {
  open(path);
  read();
}

Bundle::Bundle(MappedFile archive, bool verify) : verify_(verify) {
  mapped_.push_back(std::move(archive));
  open_archive(mapped_.back().content());
  read();
}

Bundle::Bundle(std::string_view archive, bool verify) : verify_(verify) {
  open_archive(archive);
  read();
}

void Bundle::open(const std::string& path) {
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

void Bundle::open_archive(std::string_view archive) {
  find_ = [files = read_tar(archive)](const std::string& name) {
    const auto found = files.find(name);
    if (found == files.end()) refuse_bundle({"the bundle lacks the file ", name});
    return found->second;
  };
}

std::string_view Bundle::read_own_manifest() {
  const std::string_view manifest = find_(kManifest);
  manifest_ = read_manifest(manifest);
  return manifest;
}

std::string Bundle::describe(const std::string& path) {
  Bundle bundle(true);
  bundle.open(path);
  const std::string manifest(bundle.read_own_manifest());
  const auto text_or_null = [&bundle](const char* name) {
    return bundle.manifest_.files.count(name) == 0 ? "null" : bundle.inflated(name);
  };
  return "{\"manifest\": " + manifest + ", \"buckets\": " + text_or_null(kBuckets) +
         ", \"devices\": " + text_or_null(kDevices) + "}";
}

void Bundle::read() {
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
    if (path.rfind(kPrograms, 0) == 0) programs_[path.substr(std::strlen(kPrograms))] = find_(path);
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

void Bundle::open_edition(const Edition& edition) {
  const std::vector<Bucket> common = buckets_;
  open_folder(edition.folder == kHere ? "" : edition.folder + "/");
  const auto alike = [](const Bucket& one, const Bucket& other) {
    const auto same = [](const TensorSpec& a, const TensorSpec& b) {
      return a.name == b.name && a.shape == b.shape;
    };
    const Manifest& mine = one.manifest;
    const Manifest& its = other.manifest;
    return std::equal(mine.inputs.begin(), mine.inputs.end(), its.inputs.begin(), its.inputs.end(),
                      same) &&
           std::equal(mine.outputs.begin(), mine.outputs.end(), its.outputs.begin(),
                      its.outputs.end(), same);
  };
  if (!std::equal(common.begin(), common.end(), buckets_.begin(), buckets_.end(), alike)) {
    refuse_bundle({edition.folder, " has other inputs or outputs than the bundle"});
  }
}

void Bundle::open_folder(const std::string& prefix) {
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

void Bundle::add_bucket(const std::string& prefix, const std::string& signature) {
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

void Bundle::check_params(const Manifest& manifest) const {
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

void Bundle::forget(std::string_view data) const {
  for (const MappedFile& file : mapped_) file.forget(data);
}

std::string_view Bundle::checked(const std::string& path) const {
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

std::string Bundle::inflated(const std::string& path) const {
  const std::string_view content = checked(path);
  const uint64_t bytes = manifest_.files.at(path).inflated_bytes;
  return bytes == 0 ? std::string(content) : inflate(content, bytes, path);
}

std::optional<std::string_view> Bundle::programs(const std::string& name) const {
  const auto found = programs_.find(name);
  if (found == programs_.end()) return std::nullopt;
  return found->second;
}

}  // namespace adrenoc_runtime
