#include "bundle/bundle.h"

#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/failure.h"
#include "base/machine.h"
#include "base/sha256.h"
#include "bundle/elf_extents.h"
#include "bundle/tar.h"

namespace adrenoc_runtime {
namespace {

constexpr const char* kManifest = "manifest.json";
constexpr const char* kLibrary = "model.so";
constexpr const char* kParams = "params.safetensors";
constexpr const char* kFallback = "cpu.so";
constexpr const char* kProof = "proof.json";
constexpr const char* kPrograms = "programs/";
constexpr const char* kBuckets = "buckets.json";
constexpr const char* kHere = ".";  // the bucket that is the bundle itself

bool is_folder(const std::string& path) {
  struct stat facts {};
  return stat(path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode);
}

// The dynamic loader wants a file: one that lives in memory and has no name in any folder.
Descriptor library_in_memory(std::string_view content, const std::string& name) {
  check_extents(content, name);
  constexpr unsigned close_on_exec = 1;  // MFD_CLOEXEC, which old C libraries do not name
  Descriptor file(static_cast<int>(syscall(SYS_memfd_create, kLibrary, close_on_exec)));
  if (file.get() < 0) {
    throw Failure(ADRENOC_INTERNAL,
                  std::string("cannot make a file in memory for ") + name + ": " +
                      std::strerror(errno));
  }
  while (!content.empty()) {
    const ssize_t written = write(file.get(), content.data(), content.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) throw Failure(ADRENOC_OUT_OF_MEMORY, "no memory is left for " + name);
    content.remove_prefix(static_cast<size_t>(written));
  }
  return file;
}

std::string path_of(const Descriptor& file) {
  return "/proc/self/fd/" + std::to_string(file.get());
}

}  // namespace

Bundle::Bundle(const std::string& path, bool verify) {
  if (!is_folder(path)) {
    mapped_.emplace_back(path);
    read_archive(mapped_.back().content(), verify);
    return;
  }
  read(
      [&](const std::string& name) {
        mapped_.emplace_back(path + "/" + name);
        return mapped_.back().content();
      },
      verify);
}

Bundle::Bundle(MappedFile archive, bool verify) {
  mapped_.push_back(std::move(archive));
  read_archive(mapped_.back().content(), verify);
}

Bundle::Bundle(std::string_view archive, bool verify) { read_archive(archive, verify); }

void Bundle::read_archive(std::string_view archive, bool verify) {
  const auto files = read_tar(archive);
  const FindFile find = [&](const std::string& name) {
    const auto found = files.find(name);
    if (found == files.end()) refuse_bundle("the bundle lacks the file " + name);
    return found->second;
  };
  read(find, verify);
}

void Bundle::read(const FindFile& find, bool verify) {
  const std::string_view manifest = find(kManifest);
  manifest_ = read_manifest(manifest);
  digest_ = sha256_hex(manifest);
  if (manifest_.machine != kMachine) {
    refuse_bundle("the bundle is for " + manifest_.machine + " (" + manifest_.target +
                  "), this machine is " + kMachine);
  }
  params_ = read_safetensors(checked(find, kParams, verify), kParams);
  for (const auto& [path, entry] : manifest_.files) {
    // Built kernels carry a digest of their own, which is checked when they are used.
    if (path.rfind(kPrograms, 0) == 0) programs_[path.substr(std::strlen(kPrograms))] = find(path);
  }
  if (manifest_.files.count(kFallback) != 0) {
    library_files_.push_back(library_in_memory(checked(find, kFallback, verify), kFallback));
    fallback_path_ = path_of(library_files_.back());
  }
  // A copy: it is read when somebody asks, and what the bundle came from may be gone by then.
  if (manifest_.files.count(kProof) != 0) proof_ = checked(find, kProof, verify);
  std::vector<std::string> folders = {kHere};
  if (manifest_.files.count(kBuckets) != 0) {
    BucketList list = read_buckets(checked(find, kBuckets, verify));
    folders = std::move(list.folders);
    batch_ = std::move(list.batch);
  }
  for (const std::string& folder : folders) add_bucket(find, folder, verify);
  check_alike(buckets_, batch_);
}

void Bundle::add_bucket(const FindFile& find, const std::string& folder, bool verify) {
  const std::string prefix = folder == kHere ? "" : folder + "/";
  Bucket bucket;
  bucket.manifest =
      prefix.empty() ? manifest_ : read_manifest(checked(find, prefix + kManifest, verify));
  check_params(bucket.manifest);
  // Always a copy: a library keeps the address of the one module that it belongs to, and the
  // dynamic loader would give two models of one file the same library.
  const std::string library = prefix + kLibrary;
  library_files_.push_back(library_in_memory(checked(find, library, verify), library));
  bucket.library_path = path_of(library_files_.back());
  buckets_.push_back(std::move(bucket));
}

void Bundle::check_params(const Manifest& manifest) const {
  for (const ParamSpec& spec : manifest.params) {
    const auto found = params_.find(spec.name);
    if (found == params_.end()) refuse_bundle("params.safetensors lacks " + spec.name);
    if (found->second.dtype != spec.dtype || found->second.shape != spec.shape) {
      refuse_bundle("params.safetensors: " + spec.name +
                    " has another shape or dtype than the manifest gives");
    }
  }
}

std::string_view Bundle::checked(const FindFile& find, const std::string& path,
                                 bool verify) const {
  const auto entry = manifest_.files.find(path);
  if (entry == manifest_.files.end()) refuse_bundle("manifest.json does not list " + path);
  const std::string_view content = find(path);
  if (content.size() != entry->second.bytes) {
    refuse_bundle(path + " has " + std::to_string(content.size()) + " bytes, expected " +
                  std::to_string(entry->second.bytes));
  }
  if (verify && sha256_hex(content) != entry->second.sha256) {
    refuse_bundle(path + " is not what was compiled (its SHA-256 differs)");
  }
  return content;
}

std::optional<std::string_view> Bundle::programs(const std::string& name) const {
  const auto found = programs_.find(name);
  if (found == programs_.end()) return std::nullopt;
  return found->second;
}

}  // namespace adrenoc_runtime
