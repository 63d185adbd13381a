/* A bare-metal start for QEMU's MPS boards: vectors, memory, floating point, a counter of time, and
 * a way out by semihosting.  For `adrenoc firmware run` alone: firmware has its own. */
#include <stdint.h>

extern uint32_t data_source[], data_begin[], data_end[], bss_begin[], bss_end[], stack_top[];
int main(void);

#define REGISTER(address) (*(volatile uint32_t *)(address))
#define COPROCESSORS REGISTER(0xE000ED88u)
#define TICK_CONTROL REGISTER(0xE000E010u)
#define TICK_RELOAD REGISTER(0xE000E014u)
#define TICK_VALUE REGISTER(0xE000E018u)

static void ask_host(int what, const void *argument) {
  register int r0 __asm__("r0") = what;
  register const void *r1 __asm__("r1") = argument;
  __asm__ volatile("bkpt 0xAB" : "+r"(r0) : "r"(r1) : "memory");
}

void board_print(const char *text) { ask_host(0x04, text); }

uint32_t board_ticks(void) { return 0xFFFFFFu - TICK_VALUE; }

static void leave(uint32_t code) {
  const uint32_t reason[2] = {0x20026u, code};
  for (;;) ask_host(0x20, reason);
}

static void fault(void) {
  board_print("FAULT\n");
  leave(99);
}

void start(void) {
#if __ARM_ARCH >= 7
  COPROCESSORS |= 0xFu << 20;
  __asm__ volatile("dsb\n isb" ::: "memory");
#endif
  for (uint32_t *to = data_begin, *from = data_source; to < data_end;) *to++ = *from++;
  for (uint32_t *to = bss_begin; to < bss_end;) *to++ = 0;
  TICK_RELOAD = 0xFFFFFFu;
  TICK_VALUE = 0;
  TICK_CONTROL = 5;
  leave((uint32_t)main());
}

__attribute__((section(".vectors"), used)) const void *const vectors[16] = {
    stack_top, start, fault, fault, fault, fault, fault, fault,
    0, 0, 0, fault, fault, 0, fault, fault};
