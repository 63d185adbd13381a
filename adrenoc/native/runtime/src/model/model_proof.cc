// Does the device compute what the bundle's proof says?  Verdicts are kept by device and driver.
#include <unistd.h>

#include <cstdlib>

#include "base/failure.h"
#include "base/machine.h"
#include "base/sha256.h"
#include "base/stopwatch.h"
#include "files/file.h"
#include "model/model.h"

namespace adrenoc_runtime {
namespace {

// The first run goes through the virtual machine, the second keeps arguments, later ones try what
// the driver records: each way has to give the same bits.
constexpr uint32_t kMostRuns = 7;
constexpr uint32_t kLeastRuns = 3;
constexpr double kEnoughMs = 250;
// So often a proof may end without a verdict, as when somebody closes the app.
constexpr int kMostBegun = 2;

constexpr char kBegun = 'b';
constexpr char kEnded = 'e';

using Bytes = std::vector<std::vector<char>>;

// One verdict: one file for each device and bundle, so that a new driver's takes the place of the
// old.  What is damaged, of another driver or of another runtime counts as not there.
class VerdictFile {
 public:
  // `device`: platform, name and OpenCL version; how launches reach it.  An empty folder keeps
  // nothing.
  VerdictFile(std::string folder, const std::string& device, std::string driver,
              const std::string& bundle)
      : folder_(std::move(folder)),
        name_(sha256_hex("adrenoc-verdict-1\n" + device + "\n" + bundle) + ".verdict"),
        driver_(std::move(driver)) {}

  // What was wrong, "" if nothing was; none where there is no verdict yet.
  [[nodiscard]] std::optional<std::string> find() const { return read(kEnded); }
  // Notes that a proof begins: one that hangs, or ends the process, leaves no verdict.  Returns how
  // many began before and did not end.
  int begin() const {
    const int before = std::atoi(read(kBegun).value_or("0").c_str());
    write(kBegun, std::to_string(before + 1));
    return before;
  }
  void keep(const std::string& wrong) const { write(kEnded, wrong); }
  // The proof ended without a verdict.
  void forget() const {
    if (!folder_.empty()) unlink(path().c_str());
  }

 private:
  [[nodiscard]] std::string path() const { return folder_ + "/" + name_; }
  // Of what a verdict depends on and of what it says.
  [[nodiscard]] std::string digest(const std::string& said) const {
    return sha256_hex(name_ + "\n" + driver_ + "\n" + stamp() + "\n" + said);
  }
  // A file holds that digest, and behind it a letter for the kind and the text.
  [[nodiscard]] std::optional<std::string> read(char kind) const {
    if (folder_.empty() || !why_not_private(folder_).empty()) return std::nullopt;
    try {
      const Descriptor file = open_private_file(path());
      const MappedFile mapped(file.get(), path());
      const std::string content(mapped.content());
      const size_t digest_end = content.find('\n');
      if (digest_end == content.npos || digest_end + 1 == content.size()) return std::nullopt;
      const std::string said = content.substr(digest_end + 1);
      if (content.substr(0, digest_end) != digest(said) || said[0] != kind) return std::nullopt;
      return said.substr(1);
    } catch (const Failure&) {
      return std::nullopt;  // not there, not readable, or not to be trusted: all mean to try
    }
  }
  void write(char kind, const std::string& text) const {
    // Where nothing can be kept, each start proves anew, which is right and takes longer.
    if (folder_.empty() || !make_private_folder(folder_).empty()) return;
    const std::string said = kind + text;
    (void)write_private_file(path(), digest(said) + "\n" + said);
  }

  std::string folder_;
  std::string name_;
  std::string driver_;
};

}  // namespace

Model::Verdict Model::prove() {
  if (bundle_->proof().empty()) {
    throw Failure(ADRENOC_UNSUPPORTED,
                  "the bundle carries no proof: adrenoc prove BUNDLE MODEL puts one into it");
  }
  const Stopwatch watch;
  std::string device = device_name_;
  std::string shown = "the CPU";
  std::string driver;
  if (device_.device_type == kDLOpenCL) {
    const opencl::DeviceInfo& info = opencl::device_at(device_.device_id).info();
    device = info.key() + (no_record_ ? "\nno record" : "");
    if (!edition_.empty()) device += "\n" + edition_;
    shown = info.name + " (driver " + info.driver + ")";
    driver = info.driver;
  }
  const VerdictFile store(cache_folder_, device, driver, bundle_->digest());
  Verdict verdict;
  if (std::optional<std::string> kept = store.find()) {
    verdict.wrong = std::move(*kept);
    verdict.was_kept = true;
    verdict.ms = watch.ms();
    return verdict;
  }
  const std::vector<Trial> trials = read_proof(bundle_->proof(), buckets());
  if (store.begin() >= kMostBegun) {
    throw Failure(ADRENOC_DEVICE_FAILED,
                  {"on ", shown, " the proof has begun ", kMostBegun,
                   " times and never ended: the driver hung, or ended the process"});
  }
  try {
    const Aside own(this);
    for (const Trial& trial : trials) {
      verdict.wrong = prove_bucket(trial, &verdict.runs);
      if (!verdict.wrong.empty()) break;
    }
    has_states_ = false;  // those of the trials are nobody's
  } catch (...) {
    has_states_ = false;
    store.forget();
    throw;
  }
  if (!verdict.wrong.empty()) verdict.wrong = "on " + shown + " " + verdict.wrong;
  store.keep(verdict.wrong);
  verdict.ms = watch.ms();
  return verdict;
}

std::string Model::prove_bucket(const Trial& trial, uint32_t* runs) {
  choose(whole_bucket(buckets(), trial.bucket));
  Bytes own;
  Bytes other;
  for (size_t i = 0; i < trial.inputs.size(); ++i) {
    own.push_back(draw(trial.inputs[i], chosen_.inputs[i], 0));
    // What an earlier run left is not to pass for this run's.
    other.push_back(draw(trial.inputs[i], chosen_.inputs[i], 1));
  }
  Bytes seen;
  for (const TensorSpec& spec : chosen_.outputs) {
    seen.emplace_back(spec.bytes);
    seen.back().reserve(1);  // null is not bound
  }
  const auto compute = [&](Bytes& inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) bound_inputs_[i] = {inputs[i].data(), std::nullopt};
    for (size_t i = 0; i < seen.size(); ++i) bound_outputs_[i] = {seen[i].data(), std::nullopt};
    run_once();
    ++*runs;
  };
  compute(own);
  for (const ProvenOutput& output : trial.outputs) {
    const std::string wrong = find_wrong(output, chosen_.outputs[output.index], seen[output.index]);
    if (!wrong.empty()) return output.part + " is wrong: " + wrong;
  }
  const Bytes first = seen;
  const Stopwatch repeating;
  for (uint32_t run = 1; run < kMostRuns; ++run) {
    compute(run % 2 == 1 ? other : own);
    if (run % 2 == 1) continue;
    for (const ProvenOutput& output : trial.outputs) {
      const std::string unsteady =
          find_unsteady(chosen_.outputs[output.index], first[output.index], seen[output.index]);
      if (!unsteady.empty()) return output.part + " changes from run to run: " + unsteady;
    }
    if (run + 1 >= kLeastRuns && repeating.ms() > kEnoughMs) break;
  }
  return "";
}

}  // namespace adrenoc_runtime
