/* Asks the processor which instruction sets it has (CPUID on x86, the system's flags on ARM). On
 * other architectures nothing is asked, and all sets count as present. */
#include "cpu.h"

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

enum { AVX_SETS = 0x1ffffe0, AVX512_SETS = 0x2fff000 };
#define AMX_SETS ((uint64_t)7 << 29)

/* Which registers the system saves. */
static uint32_t saved(void) {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  (void)high;
  return low;
}

/* Whether Linux keeps tiles for this program, which it has to be asked for (`arch_prctl`): it
 * refuses where a stack for signals has no room for them. */
static int keeps_tiles(void) {
  long answer = -1;
#if defined(__x86_64__) && defined(__linux__)
  answer = 158;
  __asm__ volatile("syscall" : "+a"(answer) : "D"(0x1023L), "S"(18L) : "rcx", "r11", "memory");
#endif
  return answer == 0;
}

uint64_t rt_cpu_has(void) {
  static const struct {
    int bit;
    uint32_t leaf, subleaf;
    int reported, at;
  } sets[] = {
#define SET(name, bit, leaf, subleaf, reported, at) {bit, leaf, subleaf, reported, at},
      RT_CPU_SETS(SET)
#undef SET
  };
  uint64_t has = 0;
  for (unsigned i = 0; i < sizeof sets / sizeof *sets; i++) {
    uint32_t r[4] = {0, 0, 0, 0};
    if (!__get_cpuid_count(sets[i].leaf, sets[i].subleaf, &r[0], &r[1], &r[2], &r[3])) continue;
    if (r[sets[i].reported] >> sets[i].at & 1) has |= (uint64_t)1 << sets[i].bit;
  }
  uint32_t a, b, c = 0, d;
  int asks = __get_cpuid(1, &a, &b, &c, &d) && (c >> 27 & 1);
  uint32_t kept = asks ? saved() : 0;
  if ((kept & 6) != 6) has &= ~(uint64_t)AVX_SETS;
  if ((kept & 0xe6) != 0xe6) has &= ~(uint64_t)AVX512_SETS;
  if ((kept & 0x600e6) != 0x600e6 || !(has & AMX_SETS) || !keeps_tiles()) has &= ~AMX_SETS;
  return has;
}
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>

/* Products of bytes of one sign, of any sign, and of pairs of bf16. */
enum { DOTPROD = 26, I8MM = 27, BF16 = 28 };

uint64_t rt_cpu_has(void) {
  unsigned long first = getauxval(AT_HWCAP), second = getauxval(AT_HWCAP2);
  uint64_t asked = (uint64_t)7 << DOTPROD, has = ~asked;
  has |= (uint64_t)(first >> 20 & 1) << DOTPROD;
  has |= (uint64_t)(second >> 13 & 1) << I8MM;
  return has | (uint64_t)(second >> 14 & 1) << BF16;
}
#else
uint64_t rt_cpu_has(void) { return UINT64_MAX; }
#endif
