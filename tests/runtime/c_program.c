/* Runs a bundle through the C API; the tests compile this file against adrenoc.h.
 *
 *   c_program MODE BUNDLE_OR_TAR OPENCL CACHE INPUT... ; outputs go to stdout as raw bytes.
 *
 * MODE: path, fd, memory (how to load), repeat (2,000 runs; prints the growth of the memory in KiB),
 * pair (two models of one file with overlapping lives), errors (what wrong calls answer).
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "adrenoc.h"

#define MAX_TENSORS 8

static void need(adrenoc_status status, const char *call) {
  if (status == ADRENOC_OK) return;
  fprintf(stderr, "%s: %s: %s\n", call, adrenoc_status_text(status), adrenoc_last_error());
  exit(1);
}
#define NEED(call) need(call, #call)

static void expect(int holds, const char *claim) {
  if (holds) return;
  fprintf(stderr, "not so: %s (last error: %s)\n", claim, adrenoc_last_error());
  exit(1);
}
#define EXPECT(claim) expect(claim, #claim)

static void *read_file(const char *path, size_t *bytes) {
  struct stat facts;
  FILE *file = fopen(path, "rb");
  void *data;
  EXPECT(file != NULL && fstat(fileno(file), &facts) == 0);
  *bytes = (size_t)facts.st_size;
  data = malloc(*bytes + 1);
  EXPECT(fread(data, 1, *bytes, file) == *bytes);
  fclose(file);
  return data;
}

static adrenoc_model *load(const char *mode, const char *path, const adrenoc_options *options) {
  adrenoc_model *model = NULL;
  size_t bytes;
  void *data = NULL;
  if (strcmp(mode, "memory") == 0) {
    data = read_file(path, &bytes);
    NEED(adrenoc_load_memory(data, bytes, options, &model));
    memset(data, 0xAA, bytes); /* it may be released: nothing of it may be used later */
  } else if (strcmp(mode, "fd") == 0) {
    /* In the middle of a larger file, as in an APK. */
    FILE *whole = tmpfile();
    const char before[1000] = "before";
    data = read_file(path, &bytes);
    fwrite(before, 1, sizeof(before), whole);
    fwrite(data, 1, bytes, whole);
    fwrite(before, 1, sizeof(before), whole);
    fflush(whole);
    NEED(adrenoc_load_fd(fileno(whole), sizeof(before), (int64_t)bytes, options, &model));
    fclose(whole);
  } else {
    NEED(adrenoc_load(path, options, &model));
  }
  free(data);
  return model;
}

static void *buffers[2][MAX_TENSORS];

static void bind_all(adrenoc_model *model, char **inputs) {
  size_t i;
  EXPECT(adrenoc_input_count(model) <= MAX_TENSORS && adrenoc_output_count(model) <= MAX_TENSORS);
  for (i = 0; i < adrenoc_input_count(model); ++i) {
    size_t bytes;
    free(buffers[0][i]);
    buffers[0][i] = read_file(inputs[i], &bytes);
    NEED(adrenoc_bind_input(model, i, buffers[0][i], bytes));
  }
  for (i = 0; i < adrenoc_output_count(model); ++i) {
    adrenoc_tensor_info info;
    NEED(adrenoc_output_info(model, i, &info));
    free(buffers[1][i]);
    buffers[1][i] = malloc(info.bytes);
    NEED(adrenoc_bind_output(model, i, buffers[1][i], info.bytes));
  }
}

static void write_outputs(adrenoc_model *model) {
  size_t i;
  for (i = 0; i < adrenoc_output_count(model); ++i) {
    adrenoc_tensor_info info;
    NEED(adrenoc_output_info(model, i, &info));
    fwrite(buffers[1][i], 1, info.bytes, stdout);
  }
}

static long resident_kib(void) {
  long pages = 0;
  long ignored = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  EXPECT(file != NULL && fscanf(file, "%ld %ld", &ignored, &pages) == 2);
  fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void repeat(adrenoc_model *model, long runs) {
  long i;
  long before = 0;
  for (i = 0; i < runs; ++i) {
    if (i == runs / 4) before = resident_kib();
    NEED(adrenoc_run(model));
  }
  printf("%ld\n", resident_kib() - before);
}

static void wrong_calls(adrenoc_model *model, const char *path) {
  adrenoc_model *other = (adrenoc_model *)buffers;
  adrenoc_options unsized;
  adrenoc_tensor_info info;
  adrenoc_times times;
  adrenoc_launching launching;
  float value = 0;
  memset(&unsized, 0, sizeof(unsized));
  EXPECT(adrenoc_run(model) == ADRENOC_BAD_ARGUMENT);
  EXPECT(strstr(adrenoc_last_error(), "is not bound") != NULL);
  EXPECT(adrenoc_bind_input(model, 0, &value, sizeof(value)) == ADRENOC_BAD_ARGUMENT);
  EXPECT(strcmp(adrenoc_last_error(), "`image` has 1728 bytes, got 4") == 0);
  EXPECT(adrenoc_bind_input(model, 99, &value, sizeof(value)) == ADRENOC_BAD_ARGUMENT);
  EXPECT(adrenoc_bind_input(model, 0, NULL, 1728) == ADRENOC_BAD_ARGUMENT);
  EXPECT(adrenoc_bind_output(model, 99, &value, sizeof(value)) == ADRENOC_BAD_ARGUMENT);
  EXPECT(adrenoc_input_info(model, 99, &info) == ADRENOC_BAD_ARGUMENT);
  EXPECT(adrenoc_input_info(model, 0, NULL) == ADRENOC_BAD_ARGUMENT);
  EXPECT(adrenoc_load(NULL, NULL, &other) == ADRENOC_BAD_ARGUMENT);
  EXPECT(adrenoc_load(path, NULL, NULL) == ADRENOC_BAD_ARGUMENT);
  EXPECT(adrenoc_load(path, &unsized, &other) == ADRENOC_BAD_ARGUMENT && other == NULL);
  EXPECT(adrenoc_load_memory("", 0, NULL, &other) == ADRENOC_BAD_BUNDLE && other == NULL);
  EXPECT(adrenoc_load_fd(-1, 0, 0, NULL, &other) == ADRENOC_NOT_FOUND);
  EXPECT(adrenoc_run(NULL) == ADRENOC_BAD_ARGUMENT);
  EXPECT(adrenoc_run_async(NULL) == ADRENOC_BAD_ARGUMENT);
  EXPECT(adrenoc_wait(model, 0) == ADRENOC_BAD_ARGUMENT);
  EXPECT(adrenoc_run_async(model) == ADRENOC_OK);
  EXPECT(adrenoc_wait(model, -1) == ADRENOC_BAD_ARGUMENT);
  EXPECT(strstr(adrenoc_last_error(), "is not bound") != NULL);
  EXPECT(adrenoc_input_count(NULL) == 0 && adrenoc_output_count(NULL) == 0);
  EXPECT(strcmp(adrenoc_model_name(NULL), "") == 0);
  EXPECT(adrenoc_get_times(model, &times) == ADRENOC_OK && times.runs == 0);
  memset(&launching, 0, sizeof(launching));
  EXPECT(adrenoc_get_launching(model, &launching) == ADRENOC_BAD_ARGUMENT);
  EXPECT(adrenoc_get_launching(model, NULL) == ADRENOC_BAD_ARGUMENT);
  launching.struct_bytes = sizeof(launching.struct_bytes) + sizeof(launching.launches);
  launching.api_calls = 77;
  EXPECT(adrenoc_get_launching(model, &launching) == ADRENOC_OK);
  EXPECT(launching.launches == 0 && launching.api_calls == 77 && launching.mode == NULL);
  adrenoc_free(NULL);
}

int main(int count, char **values) {
  const char *mode = values[1];
  adrenoc_options options;
  adrenoc_model *model;
  adrenoc_model *first = NULL;
  EXPECT(count > 5);
  memset(&options, 0, sizeof(options));
  options.struct_bytes = sizeof(options);
  options.opencl_library = values[3];
  options.cache_folder = values[4];
  options.no_record = getenv("NO_RECORD") != NULL;
  if (strcmp(mode, "pair") == 0) first = load(mode, values[2], &options);
  model = load(mode, values[2], &options);
  if (strcmp(mode, "errors") == 0) {
    wrong_calls(model, values[2]);
    adrenoc_free(model);
    return 0;
  }
  if (first != NULL) {
    bind_all(first, values + 5);
    NEED(adrenoc_run(first));
    /* What the second model calls must not go with the first. */
    adrenoc_free(first);
  }
  bind_all(model, values + 5);
  if (strcmp(mode, "repeat") == 0) {
    repeat(model, getenv("RUNS") != NULL ? atol(getenv("RUNS")) : 2000);
  } else {
    NEED(adrenoc_run(model));
    write_outputs(model);
  }
  adrenoc_free(model);
  return 0;
}
