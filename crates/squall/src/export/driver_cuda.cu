static void good(cudaError_t e, const char *what) {
  if (e == cudaSuccess) return;
  fprintf(stderr, "error: %s: %s\n", what, cudaGetErrorString(e));
  exit(1);
}

static void *device(size_t bytes) {
  void *p = NULL;
  good(cudaMalloc(&p, bytes ? bytes : 1), "device memory");
  return p;
}

struct call {
  const void *data[64], *weights[64];
  void *outputs[64], *prepared, *workspace;
};

/* Inputs and room for outputs where a kernel wants them; what nobody writes stays as it is. */
static int prepare(const struct kernel *k, const struct entry *e, void *const *inputs, int poison, struct call *c) {
  int d = 0, w = 0;
  for (int i = 0; i < k->inputs; i++) {
    size_t bytes = bytes_of(&k->input[i].is);
    void *p = inputs[i];
    if (e->run) {
      p = device(bytes);
      good(cudaMemcpy(p, inputs[i], bytes, cudaMemcpyHostToDevice), "an input");
    }
    (k->input[i].weight ? c->weights[w++] : c->data[d++]) = p;
  }
  c->prepared = e->run ? device(e->prepared_bytes) : memory(e->prepared_bytes);
  c->workspace = e->run ? device(e->workspace_bytes) : memory(e->workspace_bytes);
  for (int o = 0; o < k->outputs; o++) {
    size_t bytes = bytes_of(&k->output[o]);
    c->outputs[o] = e->run ? device(bytes) : memory(bytes);
    if (e->run) good(cudaMemset(c->outputs[o], poison, bytes), "poisoning");
    else memset(c->outputs[o], poison, bytes);
  }
  if (e->prepare) return e->prepare(c->weights, c->prepared, 0);
  return e->c_prepare ? e->c_prepare(c->weights, c->prepared) : 0;
}

static int run(const struct entry *e, const struct call *c, cudaStream_t stream) {
  return e->run ? e->run(c->data, c->outputs, c->prepared, c->workspace, stream) : e->c_run(c->data, c->outputs, c->prepared, c->workspace);
}

static void *result(const struct entry *e, const struct call *c, const tensor *t, int o) {
  void *p = memory(bytes_of(t));
  if (e->run) good(cudaMemcpy(p, c->outputs[o], bytes_of(t), cudaMemcpyDeviceToHost), "reading back");
  else memcpy(p, c->outputs[o], bytes_of(t));
  return p;
}

static void release(const struct kernel *k, const struct entry *e, struct call *c) {
  for (int o = 0; o < k->outputs; o++) e->run ? (void)cudaFree(c->outputs[o]) : free(c->outputs[o]);
  e->run ? (void)cudaFree(c->prepared) : free(c->prepared);
  e->run ? (void)cudaFree(c->workspace) : free(c->workspace);
  int d = 0, w = 0;
  for (int i = 0; i < k->inputs && e->run; i++) cudaFree((void *)(k->input[i].weight ? c->weights[w++] : c->data[d++]));
}

/* Microseconds of one call: the median of 15 replays of a graph of 20 calls, by events. */
static double microseconds(const struct entry *e, const struct call *c) {
  enum { WINDOWS = 15, CALLS = 20 };
  double sample[WINDOWS];
  cudaStream_t stream;
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  cudaEvent_t from, to;
  good(cudaStreamCreate(&stream), "a stream");
  good(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "recording");
  for (int i = 0; i < CALLS; i++) good((cudaError_t)run(e, c, stream), "the launch");
  good(cudaStreamEndCapture(stream, &graph), "recording");
  good(cudaGraphInstantiate(&replay, graph, 0), "recording");
  good(cudaEventCreate(&from), "an event");
  good(cudaEventCreate(&to), "an event");
  for (int w = -2; w < WINDOWS; w++) {
    float ms = 0;
    cudaEventRecord(from, stream);
    good(cudaGraphLaunch(replay, stream), "the launch");
    cudaEventRecord(to, stream);
    good(cudaEventSynchronize(to), "the kernel");
    good(cudaEventElapsedTime(&ms, from, to), "timing");
    if (w >= 0) sample[w] = 1e3 * ms / CALLS;
  }
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  cudaEventDestroy(from);
  cudaEventDestroy(to);
  cudaStreamDestroy(stream);
  qsort(sample, WINDOWS, sizeof *sample, ascending);
  return sample[WINDOWS / 2];
}

static int check(const struct kernel *k, int timed) {
  void *inputs[64];
  struct call ours, plain;
  uint64_t seed = 1;
  for (int i = 0; i < k->inputs; i++) {
    inputs[i] = memory(bytes_of(&k->input[i].is));
    fill_elements((unsigned char *)inputs[i], &k->input[i].is, &seed);
  }
  int code = prepare(k, &k->ours, inputs, 0xFF, &ours);
  if (!code) code = run(&k->ours, &ours, 0);
  if (!code) code = (int)cudaDeviceSynchronize();
  if (!code) code = prepare(k, &k->plain, inputs, 0xFE, &plain);
  if (!code) code = run(&k->plain, &plain, 0);
  if (!code) code = (int)cudaDeviceSynchronize();
  if (code) {
    printf("%-40s FAILED: %s (%d)\n", k->name, cudaGetErrorString((cudaError_t)code), code);
    return 0;
  }
  double error = 0;
  int right = 1;
  for (int o = 0; o < k->outputs; o++) {
    char type = k->output[o].type;
    void *got = result(&k->ours, &ours, &k->output[o], o), *want = result(&k->plain, &plain, &k->output[o], o);
    double e = difference((unsigned char *)got, (unsigned char *)want, type, k->output[o].count);
    right &= e <= tolerance_of(k, o);
    if (!(e <= error)) error = e;
    free(got);
    free(want);
  }
  printf("%-40s %s  error %.1e", k->name, right ? "right" : "WRONG", error);
  if (right && timed) {
    double us = microseconds(&k->ours, &ours);
    printf("  %10.2f us", us);
    if (k->flop > 0) printf("  %8.2f GFLOP/s", k->flop / us * 1e-3);
  }
  printf("\n");
  release(k, &k->ours, &ours);
  release(k, &k->plain, &plain);
  for (int i = 0; i < k->inputs; i++) free(inputs[i]);
  return right;
}

int main(int argc, char **argv) { return check_all(argc, argv); }
