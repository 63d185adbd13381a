// Which runtime this is, for C programs.
#include "adrenoc.h"
#include "base/stamp.h"

const char* adrenoc_runtime_version(void) { return adrenoc_runtime::stamp(); }
