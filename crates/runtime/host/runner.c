/* The runner: the process that runs kernels while they are tuned, so that a crash or a hang ends
 * one trial and not the tuner. It is compiled by the user's own C compiler when a measurer opens
 * (crates/measure/src/cpu/runner.rs), and converses as conversation.h says:
 *
 *   runner VERSION kernels CORE,CORE.. cpu|wall     runs kernels on the CPU
 *   runner VERSION kernels CORE,CORE.. gpu:ORDINAL  runs kernels on a GPU, references on the CPU
 *   runner VERSION describe ORDINAL                 says what the GPU is
 *   runner VERSION roof ORDINAL ARCHITECTURE        measures what the GPU can do at most
 *   runner VERSION nvrtc ARCHITECTURE               compiles for a GPU
 *
 * VERSION is that of the host's protocol: another one is refused. */
#define SQUALL_RUNNER
#include "runtime.c"
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/time.h>
#ifdef _OPENMP
#include <omp.h>
#endif

static rt_runner runner;
static pid_t parent;

/* Says by a last line whose code crashed, and where. */
static void crashed(int number, siginfo_t *info, void *context) {
  static const struct {
    int number;
    const char *name;
  } names[] = {{SIGSEGV, "SIGSEGV"}, {SIGBUS, "SIGBUS"}, {SIGILL, "SIGILL"}, {SIGFPE, "SIGFPE"}};
  char text[400], where[200] = "";
  const char *name = "SIGABRT";
  (void)context;
  for (int i = 0; i < 4; i++)
    if (names[i].number == number) name = names[i].name;
  if (number == SIGSEGV || number == SIGBUS)
    rt_describe_address(&runner.host.guards, info->si_addr, where, sizeof where);
  int n = snprintf(text, sizeof text, "0 crash message=killed by signal %d (%s) in %s%s\n", number,
                   name, runner.host.phase, where);
  rt_send(runner.out, text, n < (int)sizeof text ? (size_t)n : sizeof text - 1);
  signal(number, SIG_DFL);
  raise(number);
}

/* A runner without its parent would run a hanging kernel for ever. */
static void tick(int number) {
  (void)number;
  if (getppid() != parent) _exit(1);
}

static int pin(const char *cores) {
#ifdef __linux__
  rt_error *e = &runner.host.error;
  cpu_set_t *set = CPU_ALLOC(4096);
  size_t bytes = CPU_ALLOC_SIZE(4096);
  CPU_ZERO_S(bytes, set);
  for (const char *c = cores; *c;) {
    char *end;
    unsigned long core = strtoul(c, &end, 10);
    if (end == c || core >= 4096) return rt_fail(e, "launch", "no core number: %s", c);
    CPU_SET_S(core, bytes, set);
    runner.session.threads++;
    c = *end == ',' ? end + 1 : end;
  }
  if (sched_setaffinity(0, bytes, set) != 0)
    return rt_fail(e, "launch", "cannot be pinned to cores %s: %s", cores, strerror(errno));
#else
  (void)cores;
#endif
  return 1;
}

/* Signals are handled on a stack of their own: a kernel's may be used up. */
static void watch(void) {
  static unsigned char spare[65536];
  static const int deadly[] = {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT};
  stack_t stack = {.ss_sp = spare, .ss_size = sizeof spare};
  sigaltstack(&stack, NULL);
  struct sigaction crash = {.sa_sigaction = crashed,
                            .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESETHAND};
  for (int i = 0; i < 5; i++) sigaction(deadly[i], &crash, NULL);
  struct sigaction on_tick = {.sa_handler = tick, .sa_flags = SA_RESTART | SA_ONSTACK};
  sigaction(SIGALRM, &on_tick, NULL);
  struct itimerval half = {{0, 500000}, {0, 500000}};
  setitimer(ITIMER_REAL, &half, NULL);
}

static void limit(int memory) {
  struct rlimit none = {0, 0};
  setrlimit(RLIMIT_CORE, &none);
#ifdef _SC_PHYS_PAGES
  /* A kernel that allocates without end shall fail alone. CUDA reserves more addresses than there
   * is memory. */
  rlim_t all = (rlim_t)sysconf(_SC_PHYS_PAGES) * runner.host.guards.page;
  struct rlimit most = {all, all};
  if (memory) setrlimit(RLIMIT_AS, &most);
#endif
}

/* The first reply, by what the program was started as. */
static int begin(int argc, char **argv) {
  const char *what = argv[2], *first = argv[3], *second = argc > 4 ? argv[4] : "";
  if (atoi(argv[1]) != RT_PROTOCOL)
    return rt_fail(&runner.host.error, "version", "the runner speaks protocol %d, its host %.20s",
                   RT_PROTOCOL, argv[1]);
  if (strcmp(what, "describe") == 0) return rt_describe_gpu(&runner, atoi(first));
  if (strcmp(what, "roof") == 0) return rt_measure_roof(&runner, atoi(first), second);
  int gpu = strncmp(second, "gpu:", 4) == 0;
  int fine = strcmp(what, "nvrtc") == 0
                 ? rt_become_compiler(&runner, first)
                 : pin(first) && (!gpu || rt_use_gpu(&runner, atoi(second + 4)));
  rt_say(&runner, "ready version=%d", RT_PROTOCOL);
  return fine;
}

int main(int argc, char **argv) {
  if (argc < 4) return 2;
  parent = getppid();
  rt_host_open(&runner.host);
  runner.session.host = &runner.host;
  /* The conversation moves away from the standard streams, which are the kernels' to write to. */
  int in = fcntl(0, F_DUPFD_CLOEXEC, 10), null = open("/dev/null", O_RDWR);
  runner.out = fcntl(1, F_DUPFD_CLOEXEC, 10);
  if (in < 0 || runner.out < 0 || null < 0) return 2;
  for (int i = 0; i < 3; i++) dup2(null, i);
  runner.in = fdopen(in, "r");
  if (!runner.in) return 2;
  const char *clock = argc > 4 ? argv[4] : "";
  if (strcmp(clock, "cpu") == 0) runner.host.clock = CLOCK_THREAD_CPUTIME_ID;
  limit(strcmp(clock, "cpu") == 0 || strcmp(clock, "wall") == 0);
  watch();
#ifdef _OPENMP
  /* Keeps the OpenMP library and its threads: unloading it with the first kernel would crash. */
  omp_set_dynamic(0);
#endif
  int fine = begin(argc, argv);
  rt_converse(&runner, fine);
  return 0;
}
