/* Part of runner.c: what kernels write, and whether it is right. */

/* What kernels write, and what they should write for both input sets. */
static struct {
  buffer at, expected[2];
  char type;
  double largest[2];
} outputs[TENSORS];
static int output_count, mixed; /* some outputs hold whole numbers and some do not */

static int outputs_untouched(void) {
  for (int o = 0; o < output_count; o++)
    if (!untouched(&outputs[o].at)) return 0;
  return 1;
}

static void clear_outputs(int byte) {
  for (int o = 0; o < output_count; o++) memset(outputs[o].at.at, byte, outputs[o].at.size);
}

/* Compares an output with the reference. */
static int right_in(int which, int set, int o, double tolerance) {
  const unsigned char *got = outputs[o].at.at, *want = outputs[o].expected[set].at;
  char type = outputs[o].type, name[40] = "output";
  size_t each = size_of(type), n = outputs[o].at.size / each, wrong = 0, first = 0;
  double largest = outputs[o].largest[set], worst = 0;
  /* What rounding explains in one output excuses no wrong count in another. */
  if (mixed && is_whole(type)) tolerance = 0;
  double place = last_place(type);
  for (size_t i = 0; i < n; i++) {
    double d = apart(got, want, type, i), allowed = tolerance * largest;
    if (place > 0) allowed += place * fabs(element(want, type, i));
    if (d <= allowed) {
      if (d > worst) worst = d;
    } else if (!same(element(got, type, i), element(want, type, i))) {
      if (wrong++ == 0) first = i;
    }
  }
  double error = worst / largest;
  if (error > kernels[which].error) kernels[which].error = error;
  if (wrong == 0) return 1;
  if (output_count > 1) snprintf(name, sizeof name, "output %d", o);
  int unwritten = all_bytes(got + first * each, each, poison);
  return fail("wrong", "%s[%zu] is %.7g%s, expected %.7g; %zu of %zu elements differ by more than %.2g of the largest value %.4g%s", name, first,
              element(got, type, first), unwritten ? " (never written)" : "", element(want, type, first), wrong, n, tolerance, largest,
              set == 1 ? "; the first input set was right: does it keep results between calls?" : "");
}

/* Compares all outputs with the reference and looks for writes beside the buffers. */
static int right(int which, int set, double tolerance) {
  if (kernels[which].gpu && !gpu_fetch(which)) return 0;
  if (!outputs_untouched() || (!kernels[which].gpu && !untouched(&workspace[which]))) return 0;
  for (int o = 0; o < output_count; o++)
    if (!right_in(which, set, o, tolerance)) return 0;
  return 1;
}

static int transfer(int fd, int writing, buffer *b) {
  for (size_t i = 0; i < b->size;) {
    ssize_t n = writing ? write(fd, b->at + i, b->size - i) : read(fd, b->at + i, b->size - i);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return 0;
    i += (size_t)n;
  }
  return 1;
}

/* Writes what is expected of the outputs to a file, or reads it from there. */
static int keep(const char *path, int writing) {
  char name[600];
  snprintf(name, sizeof name, "%s%s", path, writing ? ".part" : "");
  int fd = writing ? open(name, O_WRONLY | O_CREAT | O_TRUNC, 0600) : open(name, O_RDONLY);
  errno = fd < 0 ? errno : 0;
  int good = fd >= 0;
  for (int set = 0; set < 2; set++)
    for (int o = 0; o < output_count; o++) good = good && transfer(fd, writing, &outputs[o].expected[set]);
  int why = errno;
  if (fd >= 0 && close(fd) != 0) good = 0;
  if (good && writing) good = rename(name, path) == 0;
  return good ? 1 : fail("file", "%s: %s", name, why ? strerror(why) : "it is too short");
}
