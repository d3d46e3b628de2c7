/* Part of driver.c: the threads of a launch as fibers of one thread of the CPU. Each has a stack of
 * its own and runs until it waits for others of its warp, block or cluster. */

typedef struct {
  unsigned x, y, z;
} triple;
API triple emulated_thread, emulated_block, emulated_threads, emulated_blocks;
/* Of the block whose thread runs: where its shared memory begins, its number in its cluster. */
API char *emulated_here;
API unsigned emulated_rank;

typedef struct {
  void (*run)(void **);
  int (*sizes)(size_t *);
  int shared, cluster;
} function;

typedef struct {
  function *f;
  triple blocks, threads;
  unsigned shared;
  int count;
  /* A tensor map is the largest that a kernel takes. */
  _Alignas(16) unsigned char values[MOST][128];
  /* Without a function: a time to be noted, or a copy, or where there is nothing to copy from,
   * filling. */
  double *clock;
  void *to, *from;
  int byte, staged;
  size_t bytes;
  /* In a graph: which nodes it waits for. */
  int before[BEFORE], before_count;
} work;

typedef struct {
  void *to;
  const void *from;
  int bytes, valid, batch;
} copy;

enum { RUNS, AT_WARP, AT_BLOCK, AT_CLUSTER, AT_TURN, ENDED };
typedef struct {
  /* Where the thread waits; it is made once and runs every kernel's thread of its number. */
  jmp_buf place;
  int is_made, state;
  triple thread;
  /* Copies on their way, and the batch that is open. */
  copy *copies;
  int count, room, batch;
  unsigned exchanges;
} fiber;

static jmp_buf scheduler;
static fiber fibers[CLUSTER * THREADS];
static char *stacks, *memory, slots[2][CLUSTER * THREADS][SLOT] __attribute__((aligned(64)));
static int turn, block_threads;
static triple first_block;
static work *current;

/* The running thread waits for others. */
static void await(int state) {
  fibers[turn].state = state;
  if (!_setjmp(fibers[turn].place)) _longjmp(scheduler, 1);
}
API void emulated_barrier(void) { await(AT_BLOCK); }
API void emulated_cluster_barrier(void) { await(AT_CLUSTER); }
/* Lets all others of the block go on first. */
API void emulated_turn(void) { await(AT_TURN); }

/* Gives the warp's threads something of at most a slot; the slots of all 32. */
API char *emulated_exchange(const void *mine, size_t n) {
  char (*all)[SLOT] = slots[fibers[turn].exchanges++ & 1];
  int first = turn - turn % block_threads % 32;
  memcpy(all[turn], mine, n);
  await(AT_WARP);
  return all[first];
}

API void emulated_copy(void *to, const void *from, int bytes, int valid) {
  fiber *f = &fibers[turn];
  if ((size_t)to % (size_t)bytes || (valid && (size_t)from % (size_t)bytes)) __builtin_trap();
  if (f->count == f->room)
    f->copies = realloc(f->copies, (size_t)(f->room = 2 * f->room + 32) * sizeof *f->copies);
  f->copies[f->count++] = (copy){to, from, bytes, valid, f->batch};
}
API void emulated_commit(void) { fibers[turn].batch++; }
/* All batches of copies arrive but the last `last` ones; all copies where that is negative. */
API void emulated_arrive(int last) {
  fiber *f = &fibers[turn];
  int kept = 0;
  for (int i = 0; i < f->count; i++) {
    copy c = f->copies[i];
    if (last >= 0 && c.batch >= f->batch - last)
      f->copies[kept++] = c;
    else if (c.valid)
      memcpy(c.to, c.from, (size_t)c.bytes);
    else
      memset(c.to, 0, (size_t)c.bytes);
  }
  f->count = kept;
}

static void thread_main(void) {
  void *a[MOST];
  for (;;) {
    for (int i = 0; i < current->count; i++) a[i] = current->values[i];
    current->f->run(a);
    emulated_arrive(-1);
    await(ENDED);
  }
}

/* Lets threads go on if all of them, but those that ended, wait for each other. */
static int release(int first, int last, int state) {
  int waiting = 0;
  for (int i = first; i < last; i++) {
    if (fibers[i].state != state && fibers[i].state != ENDED) return 0;
    waiting += fibers[i].state == state;
  }
  for (int i = first; i < last; i++)
    if (fibers[i].state == state) fibers[i].state = RUNS;
  return waiting > 0;
}

/* Contexts only start a thread: a switch between them asks the kernel for the signal mask. */
static void run_thread(int i) {
  int rank = i / block_threads;
  turn = i;
  emulated_rank = (unsigned)rank;
  emulated_thread = fibers[i].thread;
  emulated_block = (triple){first_block.x + (unsigned)rank, first_block.y, first_block.z};
  emulated_here = memory + (size_t)rank * SHARED;
  if (_setjmp(scheduler)) return;
  if (fibers[turn].is_made) _longjmp(fibers[turn].place, 1);
  ucontext_t made;
  getcontext(&made);
  made.uc_stack.ss_sp = stacks + (size_t)turn * STACK;
  made.uc_stack.ss_size = STACK;
  makecontext(&made, thread_main, 0);
  fibers[turn].is_made = 1;
  setcontext(&made);
}

/* A block, until all its threads wait for other blocks or ended; how many ended. */
static int run_block(int from, int *round) {
  int warps = (block_threads + 31) / 32, ended = 0, again;
  do {
    for (int k = 0; k < warps; k++) {
      int first = from + 32 * (*round & 1 ? warps - 1 - k : k), end = from + block_threads,
          last = first + 32 < end ? first + 32 : end;
      do
        for (int i = first; i < last; i++) {
          if (fibers[i].state != RUNS) continue;
          run_thread(i);
          ended += fibers[i].state == ENDED;
        }
      while (release(first, last, AT_WARP));
    }
    again = 0;
    for (int i = from; i < from + block_threads; i++) {
      again |= fibers[i].state == AT_TURN;
      if (fibers[i].state == AT_TURN) fibers[i].state = RUNS;
    }
  } while (++*round, again || release(from, from + block_threads, AT_BLOCK));
  return ended;
}

/* The blocks of a cluster run one after another, each until all its threads wait for other blocks,
 * and so do the warps of a block; forwards and backwards in turn, so that what depends on their
 * order shows. */
static void run_cluster(work *w, int blocks) {
  unsigned x = w->threads.x, y = w->threads.y;
  int turns[CLUSTER] = {0}, ended[CLUSTER] = {0};
  block_threads = (int)(x * y * w->threads.z);
  int n = blocks * block_threads;
  if (!stacks) {
    stacks = mmap(NULL, (size_t)CLUSTER * THREADS * STACK, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    memory = aligned_alloc(1024, (size_t)CLUSTER * SHARED);
  }
  memset(memory, 0xFF, (size_t)blocks * SHARED);
  for (int i = 0; i < n; i++) {
    fiber *f = &fibers[i];
    unsigned t = (unsigned)(i % block_threads);
    f->state = RUNS;
    f->thread = (triple){t % x, t / x % y, t / x / y};
    f->count = f->batch = 0;
    f->exchanges = 0;
  }
  for (int left = n, round = 0; left > 0; round++) {
    for (int k = 0; k < blocks; k++) {
      int b = round & 1 ? blocks - 1 - k : k;
      int now = run_block(b * block_threads, &turns[b]);
      left -= now;
      ended[b] += now;
      /* The memory of a block that ended is another's. */
      if (now && ended[b] == block_threads) memset(memory + (size_t)b * SHARED, 0xFF, SHARED);
    }
    /* Some wait for others that wait elsewhere: a GPU would hang, or do anything at all. */
    if (left > 0 && !release(0, n, AT_CLUSTER)) __builtin_trap();
  }
}
