// The one file that is told the version: it changes with every source, and recompiles this alone.
#include "base/machine.h"

namespace adrenoc_runtime {

const char* stamp() { return ADRENOC_STAMP; }

}  // namespace adrenoc_runtime
