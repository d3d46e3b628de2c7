/* Part of driver.c: the emulated NVRTC. It prints a kernel's CUDA source for g++ and has that
 * compile it to a shared library, which stands for a cubin. */

typedef struct {
  char *source, *names[MOST], lowered[MOST][200];
  int count;
  char log[4000], *binary;
  size_t size;
} program;

API int nvrtcVersion(int *major, int *minor) { return *major = 13, *minor = 0, 0; }
API int nvrtcCreateProgram(program **p, const char *source, const char *name, int n,
                           const char *const *a, const char *const *b) {
  (void)name, (void)n, (void)a, (void)b;
  *p = calloc(1, sizeof **p);
  (*p)->source = strdup(source);
  return 0;
}
API int nvrtcAddNameExpression(program *p, const char *name) {
  return p->names[p->count++] = strdup(name), 0;
}

/* `extern __shared__ TYPE NAME[];` declares what no C++ compiler knows. */
static void print_text(FILE *f, const char *s) {
  static const char mark[] = "extern __shared__";
  for (const char *at; (at = strstr(s, mark)); s = at) {
    fwrite(s, 1, (size_t)(at - s), f);
    at += sizeof mark - 1;
    while (*at == ' ') at++;
    if (strncmp(at, "__align__(", 10) == 0) at = strchr(at, ')') + 1;
    const char *bracket = strchr(at, '['), *name = bracket;
    while (name > at && name[-1] != ' ') name--;
    fprintf(f, "static %.*s *&%.*s = (%.*s *&)emulated_here", (int)(name - at), at,
            (int)(bracket - name), name, (int)(name - at), at);
    at = strchr(bracket, ']') + 1;
  }
  fputs(s, f);
}

/* Functions and structures of Squall's own that consist of assembly stand in device.h instead. */
static void print_source(FILE *f, const char *s) {
  static const char *const heads[] = {"static __device__",      "template <int",
                                      "template <> __device__", "struct ",
                                      "#define MULTIPLY",       "#define TMA_COPY"};
  while (*s) {
    int item = 0, macro = *s == '#';
    for (size_t i = 0; i < sizeof heads / sizeof *heads; i++)
      item |= strncmp(s, heads[i], strlen(heads[i])) == 0;
    const char *end = s;
    for (int inside = 1; inside && *end;) {
      const char *line = end;
      end = strchr(line, '\n');
      end = end ? end + 1 : line + strlen(line);
      const char last = end - line > 1 ? end[-2] : 0;
      if (!item)
        inside = 0;
      else if (macro)
        inside = last == '\\';
      else
        inside = !(*line == '}' || (line == s && (last == '}' || last == ';')));
    }
    char *text = strndup(s, (size_t)(end - s));
    if (!item || (!strstr(text, "asm(") && !strstr(text, "asm volatile("))) print_text(f, text);
    free(text);
    s = end;
  }
}

static void print_entry(FILE *f, const char *name, const char *expression) {
  fprintf(f,
          "extern \"C\" __attribute__((visibility(\"default\"))) void emulated_run_%s(void **a) { "
          "emulated_run(&%s, a); }\n",
          name, expression);
  fprintf(f,
          "extern \"C\" __attribute__((visibility(\"default\"))) int emulated_sizes_%s(size_t *s) "
          "{ return emulated_sizes(&%s, s); }\n",
          name, expression);
}

API int nvrtcCompileProgram(program *p, int count, const char *const *options) {
  char folder[] = "/tmp/emulated-XXXXXX", path[100], command[4000], flags[2000] = "";
  for (int i = 0; i < count; i++)
    if (strncmp(options[i], "-D", 2) == 0 || strncmp(options[i], "-I", 2) == 0)
      snprintf(flags + strlen(flags), sizeof flags - strlen(flags), " '%s'", options[i]);
  /* A fault of the compiler's, which its optimiser makes: a macro. */
  const char *fault = getenv("EMULATED_FAULT");
  for (int i = 0; i < count && fault && !getenv("EMULATED_FAULT_STAYS"); i++)
    if (strcmp(options[i], "--ptxas-options=-O0") == 0) fault = NULL;
  if (!mkdtemp(folder)) return 1;
  snprintf(path, sizeof path, "%s/kernel.cu", folder);
  FILE *f = fopen(path, "w");
  if (!f) return 1;
  fprintf(f, "#include \"%s\"\n", getenv("EMULATED_HEADER"));
  if (fault) fprintf(f, "#define %s\n", fault);
  fprintf(f, "#line 1 \"kernel.cu\"\n");
  print_source(f, p->source);
  fprintf(f, "\n#line 1 \"emulated entries\"\n");
  for (int i = 0; i < p->count; i++)
    snprintf(p->lowered[i], sizeof p->lowered[i], "expression%d", i);
  static const char c_function[] = "extern \"C\" __global__ void ";
  for (const char *at = p->source; (at = strstr(at, c_function));) {
    char name[200] = "";
    int cluster = 1;
    at += sizeof c_function - 1;
    sscanf(at, "__cluster_dims__(%d", &cluster);
    while (strncmp(at, "__", 2) == 0) at = strchr(at, ')') + 2;
    sscanf(at, "%199[A-Za-z0-9_]", name);
    print_entry(f, name, name);
    fprintf(f,
            "extern \"C\" __attribute__((visibility(\"default\"))) int emulated_cluster_%s = %d;\n",
            name, cluster);
    /* A C function keeps its name, also where that was asked for. */
    for (int i = 0; i < p->count; i++)
      if (strcmp(p->names[i], name) == 0) strcpy(p->lowered[i], name);
  }
  for (int i = 0; i < p->count; i++)
    if (strncmp(p->lowered[i], "expression", 10) == 0)
      print_entry(f, p->lowered[i], p->names[i]);
  fclose(f);
  snprintf(command, sizeof command,
           "cd %s && g++ -x c++ -std=c++17 -O1 -w -fpermissive -fvisibility=hidden -fPIC -shared%s "
           "kernel.cu -o out 2>log",
           folder, flags);
  int code = system(command);
  snprintf(path, sizeof path, "%s/%s", folder, code == 0 ? "out" : "log");
  f = fopen(path, "r");
  if (f && code == 0) {
    p->binary = malloc(16 << 20);
    p->size = fread(p->binary, 1, 16 << 20, f);
  } else if (f) {
    size_t n = fread(p->log, 1, sizeof p->log - 1, f);
    p->log[n] = 0;
  }
  if (f) fclose(f);
  snprintf(command, sizeof command, "rm -r %s", folder);
  return code == 0 ? system(command) : (system(command), 6);
}
API int nvrtcGetProgramLogSize(program *p, size_t *n) { return *n = strlen(p->log) + 1, 0; }
API int nvrtcGetProgramLog(program *p, char *to) { return strcpy(to, p->log), 0; }
API int nvrtcGetCUBINSize(program *p, size_t *n) { return *n = p->size, 0; }
API int nvrtcGetCUBIN(program *p, char *to) { return memcpy(to, p->binary, p->size), 0; }
API int nvrtcGetLoweredName(program *p, const char *name, const char **lowered) {
  for (int i = 0; i < p->count; i++)
    if (strcmp(p->names[i], name) == 0) return *lowered = p->lowered[i], 0;
  return 1;
}
API int nvrtcDestroyProgram(program **p) {
  free((*p)->binary);
  free((*p)->source);
  free(*p);
  return 0;
}
