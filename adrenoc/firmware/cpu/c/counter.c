/* A plug-in for QEMU's user mode (its API of version 1): counts executed instructions of all
 * threads.  Arguments: mark=ADDRESS of a function, out=FILE.  At each call of that function a line
 * with the count so far is written; instructions of that function itself are not counted. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#define EXPORT __attribute__((visibility("default")))

typedef uint64_t plugin_id;
struct qemu_plugin_tb;
struct qemu_plugin_insn;
typedef void (*translated_function)(plugin_id, struct qemu_plugin_tb *);
typedef void (*executed_function)(unsigned int, void *);
void qemu_plugin_register_vcpu_tb_trans_cb(plugin_id, translated_function);
void qemu_plugin_register_vcpu_tb_exec_cb(struct qemu_plugin_tb *, executed_function, int, void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
struct qemu_plugin_insn *qemu_plugin_tb_get_insn(const struct qemu_plugin_tb *, size_t);
uint64_t qemu_plugin_insn_vaddr(const struct qemu_plugin_insn *);
EXPORT int qemu_plugin_version = 1;

static uint64_t mark, total;
static FILE *out;

static void executed(unsigned int cpu, void *count) {
  (void)cpu;
  __atomic_fetch_add(&total, (uint64_t)(uintptr_t)count, __ATOMIC_RELAXED);
}
static void marked(unsigned int cpu, void *unused) {
  (void)cpu;
  (void)unused;
  fprintf(out, "%llu\n", (unsigned long long)total);
  fflush(out);
}
static void translated(plugin_id id, struct qemu_plugin_tb *block) {
  (void)id;
  const size_t count = qemu_plugin_tb_n_insns(block);
  if (qemu_plugin_insn_vaddr(qemu_plugin_tb_get_insn(block, 0)) == mark)
    qemu_plugin_register_vcpu_tb_exec_cb(block, marked, 0, 0);
  else
    qemu_plugin_register_vcpu_tb_exec_cb(block, executed, 0, (void *)(uintptr_t)count);
}
EXPORT int qemu_plugin_install(plugin_id id, const void *info, int argc, char **argv) {
  (void)info;
  for (int i = 0; i < argc; ++i) {
    if (!strncmp(argv[i], "mark=", 5)) mark = strtoull(argv[i] + 5, 0, 0);
    if (!strncmp(argv[i], "out=", 4)) out = fopen(argv[i] + 4, "w");
  }
  if (!out) return 1;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  return 0;
}
