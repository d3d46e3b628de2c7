/* Hides AVX-512, AVX-VNNI and AMX from a process, so that libraries which choose kernels by CPUID
 * take those of x86-64-v3: loaded by LD_PRELOAD before them. It asks Linux to let CPUID fault
 * (arch_prctl, Intel since Ivy Bridge and AMD since Zen 4 where the virtual machine has it), and
 * answers the faults: with what the processor says, without those bits. */
#define _GNU_SOURCE
#include <cpuid.h>
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

enum { ARCH_SET_CPUID = 0x1012 };

/* Bits of leaf 7: those of AVX-512 and AMX, and in its second part those of AVX-VNNI and of formats
 * that came with it or later. */
static const unsigned ebx7 = 1u << 16 | 1u << 17 | 1u << 21 | 1u << 26 | 1u << 27 | 1u << 28 |
                             1u << 30 | 1u << 31;
static const unsigned ecx7 = 1u << 1 | 1u << 6 | 1u << 11 | 1u << 12 | 1u << 14;
static const unsigned edx7 = 1u << 2 | 1u << 3 | 1u << 8 | 1u << 22 | 1u << 23 | 1u << 24 |
                             1u << 25;
static const unsigned eax71 = 1u << 4 | 1u << 5 | 1u << 21 | 1u << 23;

/* The C library's own `sigaction`. */
static int handle(int signal, const struct sigaction *act, struct sigaction *old) {
  typedef int (*function)(int, const struct sigaction *, struct sigaction *);
  static function real;
  if (!real) real = (function)dlsym(RTLD_NEXT, "sigaction");
  return real(signal, act, old);
}

/* A program that handles these faults itself, as compilers do to say so, would end at the first
 * CPUID: it goes without. */
int sigaction(int signal, const struct sigaction *act, struct sigaction *old) {
  return handle(signal, signal == SIGSEGV ? NULL : act, old);
}

sighandler_t signal(int number, sighandler_t handler) {
  typedef sighandler_t (*function)(int, sighandler_t);
  return number == SIGSEGV ? SIG_DFL : ((function)dlsym(RTLD_NEXT, "signal"))(number, handler);
}

static void answer(int signal, siginfo_t *info, void *context) {
  (void)info;
  greg_t *r = ((ucontext_t *)context)->uc_mcontext.gregs;
  const unsigned char *at = (const unsigned char *)r[REG_RIP];
  if (at[0] != 0x0F || at[1] != 0xA2) {
    /* A fault of another kind ends the process as it would have, when it comes again. */
    struct sigaction usual = {.sa_handler = SIG_DFL};
    handle(signal, &usual, NULL);
    return;
  }
  unsigned leaf = (unsigned)r[REG_RAX], part = (unsigned)r[REG_RCX], a, b, c, d;
  syscall(SYS_arch_prctl, ARCH_SET_CPUID, 1);
  __cpuid_count(leaf, part, a, b, c, d);
  syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0);
  if (leaf == 7 && part == 0) b &= ~ebx7, c &= ~ecx7, d &= ~edx7;
  if (leaf == 7 && part == 1) a &= ~eax71, d = 0;
  if (leaf == 0x1E || leaf == 0x24) a = b = c = d = 0;
  r[REG_RAX] = a, r[REG_RBX] = b, r[REG_RCX] = c, r[REG_RDX] = d;
  r[REG_RIP] += 2;
}

__attribute__((constructor)) static void hold(void) {
  struct sigaction act = {.sa_sigaction = answer, .sa_flags = SA_SIGINFO | SA_NODEFER};
  handle(SIGSEGV, &act, NULL);
  if (syscall(SYS_arch_prctl, ARCH_SET_CPUID, 0) != 0) {
    fputs("this machine's CPUID cannot be made to fault\n", stderr);
    exit(69);
  }
}
