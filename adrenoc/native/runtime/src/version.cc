// Which runtime this is, for C programs.
#include "adrenoc.h"

const char* adrenoc_runtime_version(void) { return ADRENOC_STAMP; }
