// Where the library's tuning results are kept between processes.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.h"
#include "base/sha256.h"
#include "files/byte_stream.h"
#include "files/file.h"

namespace adrenoc_runtime::clml {

// "CLMLTUNE" as a big-endian number: starts each record in the files of TVM's runtime.
constexpr uint64_t kTuningMagic = 0x434C4D4C54554E45;
constexpr const char* kOwnMagic = "adrenoc-clml-tuning-1";

struct TuningRecord {
  std::string symbol;
  std::string bytes;
};

// Nothing of a file that is not there; of our own folder, nor of one that others may have written.
inline std::string read_whole(const std::string& path, bool is_own) {
  try {
    const Descriptor file = is_own ? open_private_file(path) : open_file(path);
    return std::string(MappedFile(file.get(), path).content());
  } catch (const Failure&) {
    return "";
  }
}

// The records up to the first that is not whole, as TVM's runtime reads them.
inline std::vector<TuningRecord> read_records(const std::string& content) {
  opencl::ByteReader reader("A CLML tuning file", content.data(), content.size());
  std::vector<TuningRecord> records;
  uint64_t magic = 0, reserved = 0;
  while (reader.Read(&magic) && magic == kTuningMagic && reader.Read(&reserved)) {
    TuningRecord record;
    std::vector<unsigned char> bytes;
    if (!reader.Read(&record.symbol) || !reader.Read(&bytes)) break;
    record.bytes.assign(bytes.begin(), bytes.end());
    records.push_back(std::move(record));
  }
  return records;
}

inline std::string written_records(const std::vector<TuningRecord>& records) {
  opencl::ByteWriter writer;
  for (const TuningRecord& record : records) {
    writer.Write(kTuningMagic);
    writer.Write(uint64_t{0});
    writer.Write(record.symbol);
    writer.Write(std::vector<unsigned char>(record.bytes.begin(), record.bytes.end()));
  }
  return writer.finish();
}

inline std::string kept(const std::string& path, const std::string& wrong) {
  return wrong.empty() ? "tuned, kept in " + path : "tuned, but not kept: " + wrong;
}

// TVM's runtime writes one N, the RFC that it came from two.
inline bool asks_for_tuning() {
  for (const char* name : {"CLML_IS_TUNING_RUN", "CLML_IS_TUNNING_RUN"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && std::atoi(value) != 0) return true;
  }
  return false;
}

inline std::string tuning_file() {
  for (const char* name : {"CLML_TUNING_CACHE", "CLML_TUNNING_CACHE"}) {
    const char* value = std::getenv(name);
    if (value != nullptr && *value != '\0') return value;
  }
  return "";
}

// CLML_IS_TUNING_RUN=1 (or, as the RFC of TVM spells it, CLML_IS_TUNNING_RUN) asks to tune.
// CLML_TUNING_CACHE names a file in TVM's form: records by symbol.  Without it the results lie in
// the cache folder, a file for each region, device, driver and library version.
class TuningStore {
 public:
  // `key` says all that the results depend on; `folder` is empty where nothing shall be kept.
  TuningStore(std::string folder, std::string key)
      : folder_(std::move(folder)), key_(std::move(key)) {
    file_ = tuning_file();
    tuning_run_ = asks_for_tuning();
  }

  [[nodiscard]] bool is_tuning_run() const { return tuning_run_; }

  // What was kept for a region, or nothing; `note` is told where it came from.
  [[nodiscard]] std::string find(const std::string& symbol, std::string* note) const {
    if (!file_.empty()) {
      for (const TuningRecord& record : read_records(read_whole(file_, false))) {
        if (record.symbol != symbol) continue;
        *note = "tuned by " + file_;
        return record.bytes;
      }
      *note = file_ + " has no tuning of this region";
      return "";
    }
    if (folder_.empty() || !why_not_private(folder_).empty()) return "";
    const std::string path = own_file(symbol);
    const std::string content = read_whole(path, true);
    opencl::ByteReader reader("A tuning result", content.data(), content.size());
    std::string magic, key, bytes;
    if (!reader.Read(&magic) || magic != kOwnMagic || !reader.Read(&key) || !reader.Read(&bytes)) {
      return "";
    }
    if (key != key_ + "\n" + symbol) return "";
    *note = "tuned by " + path;
    return bytes;
  }

  // Keeps it, in place of what was there; returns where, or why not.
  [[nodiscard]] std::string save(const std::string& symbol, const std::string& bytes) const {
    if (!file_.empty()) {
      std::vector<TuningRecord> records = read_records(read_whole(file_, false));
      bool replaced = false;
      for (TuningRecord& record : records) {
        if (record.symbol == symbol) record.bytes = bytes, replaced = true;
      }
      if (!replaced) records.push_back({symbol, bytes});
      return kept(file_, write_private_file(file_, written_records(records)));
    }
    if (folder_.empty()) return "tuned, but not kept: there is no cache folder";
    const std::string path = own_file(symbol);
    if (const std::string wrong = make_private_folder(folder_); !wrong.empty()) {
      return kept(path, wrong);
    }
    opencl::ByteWriter writer;
    writer.Write(std::string(kOwnMagic));
    writer.Write(key_ + "\n" + symbol);
    writer.Write(bytes);
    return kept(path, write_private_file(path, writer.finish()));
  }

 private:
  [[nodiscard]] std::string own_file(const std::string& symbol) const {
    return folder_ + "/clml-" + sha256_hex(key_ + "\n" + symbol).substr(0, 16) + ".tuning";
  }

  const std::string folder_;
  const std::string key_;
  std::string file_;
  bool tuning_run_ = false;
};

}  // namespace adrenoc_runtime::clml
