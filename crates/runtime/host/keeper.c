/* The keeper: a static program at the far end of the connection to a board (a machine that only
 * runs kernels). It needs nothing of the board but its operating system's kernel. It describes
 * the board, takes files into the folder where it was started, starts programs there (the
 * runner, the roof's program) and passes on their input and output.
 * crates/measure/src/board/link.rs is the other end, and docs/decisions/0045 says why.
 *
 * It hears                           and says
 *   file NAME BYTES, then the bytes    fact BYTES PATH, then the bytes: a file of the system
 *   drop NAME                          cores LIST: those that the board may use
 *   start [NAME=VALUE].. PROGRAM ARG.. ready
 *   say MILLISECONDS BYTES, the bytes  said BYTES, then the bytes: what the program printed
 *   stop                               started: what was asked for runs
 *   alive                              ended exit|signal NUMBER CPU: the program did
 *                                      late CPU: it gave no line in time and was killed
 *                                      refused TEXT: what was asked cannot be done
 *
 * When the connection ends, or nothing was heard for a while, it kills the program, removes the
 * folder and ends: a cut connection leaves nothing behind, whatever a kernel does. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum { VERSION = 1, SILENCE = 40, LONGEST = 1 << 16, WORDS = 64, FACT = 1 << 14 };

static char folder[4096];
static unsigned char buffer[1 << 16]; /* what was read of the connection */
static size_t held, at;
static volatile sig_atomic_t silent; /* seconds since something was heard */
static volatile pid_t child;         /* 0 for none */
static int to_child = -1, from_child = -1;
static double deadline; /* of the answer that is waited for; 0 for none */

/* Kills the program with its group; the CPU seconds that it took. */
static double end_child(int *status) {
  struct rusage u;
  int s = 0;
  double cpu = 0;
  if (child > 0) {
    kill(-child, SIGKILL);
    while (wait4(child, &s, 0, &u) < 0 && errno == EINTR) {
    }
    cpu = (double)(u.ru_utime.tv_sec + u.ru_stime.tv_sec) +
          1e-6 * (double)(u.ru_utime.tv_usec + u.ru_stime.tv_usec);
  }
  child = 0, deadline = 0;
  if (to_child >= 0) close(to_child);
  if (from_child >= 0) close(from_child);
  to_child = from_child = -1;
  if (status) *status = s;
  return cpu;
}

/* Removes the folder and ends. Signals call it at any moment, so that it takes no memory: entries
 * are read by the system call that readdir() uses, whose record is described in getdents64(2). */
static void quit(int code) {
  struct entry {
    unsigned long long number, next;
    unsigned short bytes;
    unsigned char type;
    char name[];
  };
  static _Alignas(8) char entries[1 << 12];
  end_child(NULL);
  /* Never a folder that was not made for it. */
  int d = strstr(folder, "/squall-board-") ? open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC) : -1;
  for (long n; d >= 0 && (n = syscall(SYS_getdents64, d, entries, sizeof entries)) > 0;)
    for (long i = 0; i < n;) {
      struct entry *e = (struct entry *)(void *)(entries + i);
      if (strcmp(e->name, ".") && strcmp(e->name, "..")) unlinkat(d, e->name, 0);
      i += e->bytes;
    }
  if (d >= 0) close(d), rmdir(folder);
  _exit(code);
}

/* A host that was frozen, or a network that went away without a word. */
static void tick(int number) {
  (void)number;
  if (++silent > SILENCE) quit(3);
}

static void told_to_end(int number) {
  (void)number;
  quit(4);
}

static void put(const void *bytes, size_t n) {
  for (const char *p = bytes; n > 0;) {
    ssize_t wrote = write(1, p, n);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote <= 0) quit(5);
    p += wrote, n -= (size_t)wrote;
  }
}

__attribute__((format(printf, 1, 2))) static void tell(const char *format, ...) {
  char line[LONGEST];
  va_list a;
  va_start(a, format);
  int n = vsnprintf(line, sizeof line - 1, format, a);
  va_end(a);
  if (n < 0) n = 0;
  if (n > (int)sizeof line - 2) n = (int)sizeof line - 2;
  line[n] = '\n';
  put(line, (size_t)n + 1);
}

/* Reads more of the connection; its end ends everything. */
static void fill(void) {
  if (at == held) at = held = 0;
  ssize_t n;
  while ((n = read(0, buffer + held, sizeof buffer - held)) < 0 && errno == EINTR) {
  }
  if (n <= 0) quit(0);
  silent = 0, held += (size_t)n;
}

static double now(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* Seconds until the answer that is waited for is late; one where none is. */
static double time_left(void) { return deadline > 0 ? deadline - now() : 1; }

/* Waits until one of these is ready, for `seconds`, at most one; returns poll()'s answer. */
static int await(struct pollfd *all, nfds_t count, double seconds) {
  return poll(all, count, seconds > 1 ? 1000 : (int)(seconds * 1000) + 1);
}

/* Waits until a program reads what is said to it, at most to the deadline of its answer. */
static int is_read(int to) {
  struct pollfd p = {to, POLLOUT, 0};
  double left = time_left();
  if (left <= 0) return 0;
  await(&p, 1, left);
  return 1;
}

/* Hands `bytes` bytes of the connection to a descriptor; bytes that cannot be written are passed
 * over, and the reason is returned. */
static int take(size_t bytes, int to) {
  int fault = to < 0 ? EBADF : 0;
  while (bytes > 0) {
    if (at == held) fill();
    size_t n = held - at < bytes ? held - at : bytes;
    for (size_t done = 0; !fault && done < n;) {
      ssize_t wrote = write(to, buffer + at + done, n - done);
      if (wrote < 0 && errno == EINTR) continue;
      if (wrote < 0 && errno == EAGAIN) fault = is_read(to) ? 0 : ETIMEDOUT;
      else if (wrote <= 0) fault = wrote < 0 ? errno : ENOSPC;
      else done += (size_t)wrote;
    }
    at += n, bytes -= n;
  }
  return fault;
}

static void line_of(char *line) {
  size_t n = 0;
  for (;;) {
    if (at == held) fill();
    char c = (char)buffer[at++];
    if (c == '\n' || n == LONGEST - 1) break;
    line[n++] = c;
  }
  line[n] = 0;
}

static int is_plain(const char *name) {
  return name && *name && *name != '.' && !strchr(name, '/');
}

static void take_file(const char *name, size_t bytes) {
  int to = -1, fault = EINVAL;
  if (is_plain(name)) {
    unlink(name); /* a program that runs keeps the old one */
    to = open(name, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0700);
    fault = to < 0 ? errno : 0;
  }
  int wrote = take(bytes, to);
  if (to >= 0 && close(to) != 0 && !wrote) wrote = errno;
  if (to >= 0) fault = wrote;
  if (fault)
    tell("refused cannot write %.200s/%.100s: %s", folder, name ? name : "", strerror(fault));
}

static void drop(const char *name) {
  if (is_plain(name)) unlink(name);
}

static void start(char **word, int count) {
  int in[2], out[2], first = 0;
  end_child(NULL);
  while (first < count && strchr(word[first], '=')) first++;
  if (first == count) {
    tell("refused nothing to start");
    return;
  }
  if (pipe2(in, O_CLOEXEC) != 0 || pipe2(out, O_CLOEXEC) != 0) {
    tell("refused no pipes: %s", strerror(errno));
    return;
  }
  pid_t pid = fork();
  if (pid == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    int null = open("/dev/null", O_RDWR);
    dup2(in[0], 0), dup2(out[1], 1), dup2(null, 2);
    signal(SIGPIPE, SIG_DFL), signal(SIGTERM, SIG_DFL), signal(SIGHUP, SIG_DFL);
    for (int i = 0; i < first; i++) putenv(word[i]);
    word[count] = NULL;
    execv(word[first], word + first);
    _exit(126);
  }
  close(in[0]), close(out[1]);
  to_child = in[1], from_child = out[0];
  fcntl(to_child, F_SETFL, O_NONBLOCK);
  child = pid > 0 ? pid : 0;
  if (pid < 0) {
    end_child(NULL);
    tell("refused cannot start a process: %s", strerror(errno));
    return;
  }
  setpgid(pid, pid);
  tell("started");
}

static void say(double milliseconds, size_t bytes) {
  deadline = milliseconds > 0 ? now() + 1e-3 * milliseconds : 0;
  /* A program that died cannot be written to; its end is told all the same. */
  take(bytes, to_child);
}

/* The program printed something, or ended. */
static void hear(void) {
  char text[1 << 14];
  ssize_t n;
  while ((n = read(from_child, text, sizeof text)) < 0 && errno == EINTR) {
  }
  if (n > 0) {
    tell("said %zd", n);
    put(text, (size_t)n);
    if (text[n - 1] == '\n') deadline = 0;
    return;
  }
  /* It is about to end, or closed its output and never will. */
  int status = 0;
  for (int i = 0; i < 100; i++) {
    siginfo_t how;
    how.si_pid = 0;
    if (waitid(P_PID, (id_t)child, &how, WEXITED | WNOHANG | WNOWAIT) == 0 && how.si_pid) break;
    usleep(10000);
  }
  double cpu = end_child(&status);
  if (WIFEXITED(status)) tell("ended exit %d %.6f", WEXITSTATUS(status), cpu);
  else tell("ended signal %d %.6f", WTERMSIG(status), cpu);
}

static void obey(void) {
  static char line[LONGEST];
  char *word[WORDS + 1], *rest = NULL;
  int count = 0;
  line_of(line);
  for (char *w = strtok_r(line, " ", &rest); w && count < WORDS; w = strtok_r(NULL, " ", &rest))
    word[count++] = w;
  const char *verb = count ? word[0] : "";
  if (strcmp(verb, "file") == 0 && count == 3)
    take_file(word[1], (size_t)strtoull(word[2], NULL, 10));
  else if (strcmp(verb, "drop") == 0 && count == 2) drop(word[1]);
  else if (strcmp(verb, "start") == 0) start(word + 1, count - 1);
  else if (strcmp(verb, "say") == 0 && count == 3)
    say(atof(word[1]), (size_t)strtoull(word[2], NULL, 10));
  else if (strcmp(verb, "stop") == 0) end_child(NULL);
  else if (strcmp(verb, "alive") != 0) tell("refused no such request: %.40s", verb);
}

static void fact(const char *path) {
  static char text[FACT];
  FILE *f = fopen(path, "r");
  if (!f) return;
  size_t n = fread(text, 1, sizeof text, f);
  fclose(f);
  tell("fact %zu %s", n, path);
  put(text, n);
}

static void describe_core(int core) {
  static const char *const of_cache[] = {"level", "type", "size", "shared_cpu_list"};
  char path[200];
  const char *cpus = "/sys/devices/system/cpu";
  snprintf(path, sizeof path, "%s/cpu%d/topology/thread_siblings_list", cpus, core);
  fact(path);
  for (int index = 0; index < 8; index++)
    for (int i = 0; i < 4; i++) {
      snprintf(path, sizeof path, "%s/cpu%d/cache/index%d/%s", cpus, core, index, of_cache[i]);
      fact(path);
    }
}

static void describe(void) {
  enum { CORES = 4096 };
  static char list[CORES * 6];
  size_t n = 0;
  tell("keeper %d", VERSION);
  fact("/proc/cpuinfo");
  fact("/proc/sys/kernel/hostname");
  fact("/proc/sys/kernel/osrelease");
  fact("/proc/sys/kernel/random/boot_id");
  fact("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor");
  cpu_set_t *set = CPU_ALLOC(CORES);
  size_t bytes = CPU_ALLOC_SIZE(CORES);
  if (sched_getaffinity(0, bytes, set) != 0) {
    CPU_ZERO_S(bytes, set);
    CPU_SET_S(0, bytes, set);
  }
  for (int core = 0; core < CORES; core++) {
    if (!CPU_ISSET_S(core, bytes, set)) continue;
    n += (size_t)snprintf(list + n, sizeof list - n, "%s%d", n ? "," : "", core);
    describe_core(core);
  }
  tell("cores %s", list);
  tell("ready");
}

int main(void) {
  if (!getcwd(folder, sizeof folder)) folder[0] = 0;
  signal(SIGPIPE, SIG_IGN);
  signal(SIGTERM, told_to_end), signal(SIGHUP, told_to_end), signal(SIGINT, told_to_end);
  struct sigaction on_tick = {.sa_handler = tick, .sa_flags = SA_RESTART};
  sigaction(SIGALRM, &on_tick, NULL);
  struct itimerval second = {{1, 0}, {1, 0}};
  setitimer(ITIMER_REAL, &second, NULL);
  describe();
  for (;;) {
    while (at < held) obey();
    struct pollfd all[2] = {{0, POLLIN, 0}, {from_child, POLLIN, 0}};
    double left = time_left();
    if (child && deadline > 0 && left <= 0) {
      tell("late %.6f", end_child(NULL));
      continue;
    }
    if (await(all, from_child >= 0 ? 2 : 1, left) < 0) continue;
    if (all[0].revents) fill();
    if (from_child >= 0 && all[1].revents) hear();
  }
}
