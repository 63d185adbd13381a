// Which of a bundle's kernels a device gets, where it holds those of several GPUs.

#include "model/choose_device.h"
#include "model/model.h"

namespace adrenoc_runtime {

void Model::load_best_edition(const LoadOptions& options) {
  const opencl::DeviceInfo& info = opencl::device_at(device_.device_id).info();
  RankedEditions ranked = rank_editions(bundle_->editions(), adreno_number(info), info.driver);
  const Edition common = ranked.editions.back();
  for (const Edition& edition : ranked.editions) {
    bundle_->open_edition(edition);
    edition_ = edition.folder;
    edition_note_ = "kernels for " + edition.title() + " run: " + ranked.reason;
    std::string refused;
    try {
      load_edition(options);
      return;
    } catch (const Failure& failure) {
      if (edition.folder == common.folder || failure.status() != ADRENOC_DEVICE_FAILED) throw;
      refused = failure.what();
    } catch (const tvm::ffi::Error& error) {
      if (edition.folder == common.folder || opencl::is_cancelled(error)) throw;
      refused = error.message();
    }
    ranked.reason += ", and could not run those for " + edition.title() + ": " + refused;
    // Before the files that their code lies in.
    inputs_.clear();
    programs_.clear();
  }
}

}  // namespace adrenoc_runtime
