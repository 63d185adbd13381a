/* Counts, objects and the log of the counting OpenCL library: see stub_opencl.c. */
#include "stub_objects.h"

#include <stdio.h>

enum { MAX_LOG = 1 << 20, MAX_ENTRIES = 128, MAX_PENDING = 256 };

static stub_entry entries[MAX_ENTRIES];
static int entry_count = 0;
static char entries_lock = 0;
unsigned stub_slow_us = 0;
long stub_live_objects = 0;

stub_entry* stub_find(const char* name) {
  while (__atomic_test_and_set(&entries_lock, __ATOMIC_ACQUIRE)) {
  }
  stub_entry* found = NULL;
  for (int i = 0; i < entry_count && found == NULL; ++i) {
    if (strcmp(entries[i].name, name) == 0) found = &entries[i];
  }
  if (found == NULL) {
    if (entry_count == MAX_ENTRIES) abort();
    found = &entries[entry_count++];
    found->name = strdup(name);
  }
  __atomic_clear(&entries_lock, __ATOMIC_RELEASE);
  return found;
}

void stub_fail_after(const char* name, int code, long calls);

long stub_calls(const char* name) { return stub_find(name)->calls; }
void stub_fail(const char* name, int code) { stub_fail_after(name, code, 0); }
void stub_fail_after(const char* name, int code, long calls) {
  stub_entry* of = stub_find(name);
  of->spared = calls;
  of->code = code;
}
int stub_failure(stub_entry* of) {
  if (of->code == SUCCESS) return SUCCESS;
  return __atomic_fetch_sub(&of->spared, 1, __ATOMIC_RELAXED) > 0 ? SUCCESS : of->code;
}
void stub_slow(unsigned microseconds) { stub_slow_us = microseconds; }
long stub_live(void) { return stub_live_objects; }

static char log_text[MAX_LOG];
static char log_given[MAX_LOG];
static size_t log_size = 0;
static int logging = 0;

const char* stub_log(int on) {
  logging = on;
  memcpy(log_given, log_text, log_size + 1);
  log_text[log_size = 0] = '\0';
  return log_given;
}

void stub_compute(const launch* what) {
  if (!logging) return;
  const size_t size = strlen(what->text);
  if (log_size + size + 2 > MAX_LOG) return;
  memcpy(log_text + log_size, what->text, size);
  log_size += size;
  log_text[log_size++] = '\n';
  log_text[log_size] = '\0';
}

void stub_compute_list(const list* which) {
  for (int i = 0; i < which->count; ++i) stub_compute(&which->launches[i]);
}

void stub_describe(launch* out, const kernel* k, cl_uint dimensions, const size_t* global,
                   const size_t* local) {
  out->text[0] = '\0';
  if (!logging) return;
  int at = snprintf(out->text, sizeof(out->text), "%s", k->name);
  for (cl_uint i = 0; i < dimensions; ++i) {
    at += snprintf(out->text + at, sizeof(out->text) - at, " %zu/%zu", global[i], local[i]);
  }
  for (int i = 0; i < MAX_ARGUMENTS && k->sizes[i] != 0; ++i) {
    /* Handles are the one thing here that is as long as a pointer. */
    const long value = k->sizes[i] == sizeof(void*) ? ((memory*)(uintptr_t)k->values[i])->number
                                                    : (long)k->values[i];
    at += snprintf(out->text + at, sizeof(out->text) - at, " %ld", value);
  }
}

void* stub_new_event(list* of) {
  event* made = calloc(1, sizeof(event));
  made->of = of;
  __atomic_fetch_add(&stub_live_objects, 1, __ATOMIC_RELAXED);
  return made;
}

void stub_append(list* to, const launch* what) {
  to->launches = realloc(to->launches, (to->count + 1) * sizeof(launch));
  to->launches[to->count++] = *what;
}

static list* pending_lists[MAX_PENDING];
static int pending_count = 0;

void stub_begin(list* which) {
  if (!which->pending && pending_count < MAX_PENDING) pending_lists[pending_count++] = which;
  which->pending = 1;
}

void stub_all_done(void) {
  while (pending_count > 0) pending_lists[--pending_count]->pending = 0;
}

void stub_free_list(list* which) {
  for (int i = pending_count - 1; i >= 0; --i) {
    if (pending_lists[i] == which) pending_lists[i] = pending_lists[--pending_count];
  }
  free(which->launches);
}
