/* Profiles a run that fails, then one that does not; the tests compile this file.
 *
 *   failing_launch BUNDLE OPENCL CACHE INPUT... ; what was recorded goes to stdout. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adrenoc.h"

static void fail(const char* what) {
  fprintf(stderr, "%s (last error: %s)\n", what, adrenoc_last_error());
  exit(1);
}

int main(int count, char** values) {
  adrenoc_options options;
  adrenoc_model* model = NULL;
  const char* seen;
  memset(&options, 0, sizeof(options));
  options.struct_bytes = sizeof(options);
  options.opencl_library = values[2];
  options.cache_folder = values[3];
  if (adrenoc_load(values[1], &options, &model) != ADRENOC_OK) fail("load");
  for (int i = 4; i < count; ++i) {
    adrenoc_tensor_info info;
    if (adrenoc_input_info(model, i - 4, &info) != ADRENOC_OK) fail("info");
    void* data = calloc(1, info.bytes);
    if (adrenoc_bind_input(model, i - 4, data, info.bytes) != ADRENOC_OK) fail("bind");
  }
  setenv("ADRENOC_TEST_FAIL_LAUNCH", "1", 1);
  if (adrenoc_profile(model) != NULL) fail("a run without launches was profiled");
  if (strstr(adrenoc_last_error(), "clEnqueueNDRangeKernel") == NULL) fail("another error");
  if (adrenoc_run(model) == ADRENOC_OK) fail("a run without launches did not fail");
  unsetenv("ADRENOC_TEST_FAIL_LAUNCH");
  if (adrenoc_run(model) != ADRENOC_OK) fail("run");
  seen = adrenoc_profile(model);
  if (seen == NULL) fail("profile");
  puts(seen);
  adrenoc_free(model);
  return 0;
}
