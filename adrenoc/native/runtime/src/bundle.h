// A bundle: its files, checked, wherever they come from.
#ifndef ADRENOC_RUNTIME_BUNDLE_H_
#define ADRENOC_RUNTIME_BUNDLE_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "manifest.h"
#include "mapped_file.h"
#include "safetensors.h"

namespace adrenoc {

// This machine, as manifests name it.
#if defined(__aarch64__)
constexpr const char* kMachine = "aarch64";
#elif defined(__x86_64__)
constexpr const char* kMachine = "x86_64";
#elif defined(__arm__)
constexpr const char* kMachine = "arm";
#elif defined(__i386__)
constexpr const char* kMachine = "i386";
#else
#error "adrenoc does not know this machine"
#endif

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

  [[nodiscard]] const Manifest& manifest() const { return manifest_; }
  // The constants by name; their data lives as long as the bundle.
  [[nodiscard]] const std::map<std::string, StoredTensor>& params() const { return params_; }
  // A path for the dynamic loader, valid as long as the bundle lives.
  [[nodiscard]] const std::string& library_path() const { return library_path_; }
  // SHA-256 of model.so as the manifest gives it.
  [[nodiscard]] const std::string& library_digest() const;

 private:
  using FindFile = std::function<std::string_view(const std::string& path)>;
  void read(const FindFile& find, bool verify);
  void read_archive(std::string_view archive, bool verify);
  [[nodiscard]] std::string_view checked(const FindFile& find, const std::string& path,
                                         bool verify) const;

  std::vector<MappedFile> mapped_;
  std::optional<Descriptor> library_file_;
  Manifest manifest_;
  std::map<std::string, StoredTensor> params_;
  std::string library_path_;
};

}  // namespace adrenoc

#endif  // ADRENOC_RUNTIME_BUNDLE_H_
