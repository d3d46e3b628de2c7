/* Part of gpu.h: NVRTC, a life of compiling. `compile SOURCE CUBIN [OPTIONS]`, where the file OPTIONS holds lines
 * `option FLAG` and `name EXPRESSION` (a function as C++ names it)
 *   -> CPU built BYTES NAME ..     the functions' names in the cubin
 *   -> CPU failed build MESSAGE */

enum { FLAGS = 100 };
static char architecture[40];

static char *read_text(const char *path) {
  FILE *f = fopen(path, "r");
  char *text = NULL;
  long length = 0;
  if (f && fseek(f, 0, SEEK_END) == 0 && (length = ftell(f)) >= 0) {
    rewind(f);
    text = calloc(1, (size_t)length + 1);
    if (text && fread(text, 1, (size_t)length, f) != (size_t)length) {
      free(text);
      text = NULL;
    }
  }
  if (f) fclose(f);
  if (!text) fail("file", "%s cannot be read", path);
  return text;
}

/* A log from its first line that tells of an error. */
static void first_complaint(char *log) {
  char *start = strstr(log, "error");
  while (start && start > log && start[-1] != '\n') start--;
  fail("build", "%.600s", start ? start : log);
}

static int write_cubin(cu_handle program, const char *to) {
  size_t size = 0;
  char *cubin = NULL;
  if (nvrtcGetCUBINSize(program, &size) != 0 || !(cubin = malloc(size + 1)) || nvrtcGetCUBIN(program, cubin) != 0) {
    free(cubin);
    return fail("build", "NVRTC gives no cubin");
  }
  FILE *f = fopen(to, "w");
  int fine = f && fwrite(cubin, 1, size, f) == size;
  if (f && fclose(f) != 0) fine = 0;
  free(cubin);
  if (!fine) return fail("file", "%s: %s", to, strerror(errno));
  say("built %zu", size);
  return 1;
}

static int compile(const char *from, const char *to, const char *with) {
  const char *options[FLAGS] = {architecture, "-w"}, *names[LAUNCHES];
  int flags = 2, count = 0, fine = 1;
  char *text = read_text(from), *settings = text && with ? read_text(with) : NULL;
  if (!text || (with && !settings)) return free(text), 0;
  /* A source of ours leaves out what says that functions are the device's. */
  if (!with) options[flags++] = "-default-device";
  for (char *next, *line = settings; line && *line; line = next) {
    next = strchr(line, '\n');
    if (next) *next++ = 0;
    if (strncmp(line, "option ", 7) == 0 && flags < FLAGS) options[flags++] = line + 7;
    if (strncmp(line, "name ", 5) == 0 && count < LAUNCHES) names[count++] = line + 5;
  }
  cu_handle program = NULL;
  cu_result code = nvrtcCreateProgram(&program, text, "kernel.cu", 0, NULL, NULL);
  for (int i = 0; i < count && code == 0; i++) code = nvrtcAddNameExpression(program, names[i]);
  if (code != 0) fine = fail("build", "NVRTC error %d", code);
  if (fine && nvrtcCompileProgram(program, flags, options) != 0) {
    size_t size = 0;
    char *log = nvrtcGetProgramLogSize(program, &size) == 0 ? calloc(1, size + 1) : NULL;
    if (log) nvrtcGetProgramLog(program, log);
    if (log && *log) first_complaint(log);
    else fail("build", "NVRTC fails");
    free(log);
    fine = 0;
  }
  fine = fine && write_cubin(program, to);
  for (int i = 0; i < count && fine; i++) {
    const char *lowered = NULL;
    if (nvrtcGetLoweredName(program, names[i], &lowered) != 0) fine = fail("build", "there is no function %s", names[i]);
    else say(" %s", lowered);
  }
  nvrtcDestroyProgram(&program);
  free(text);
  free(settings);
  return fine;
}
