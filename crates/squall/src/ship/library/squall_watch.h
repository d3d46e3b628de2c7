/* A header for applications that hot-swap a network's library. `squall export --network NAME
 * --watch` keeps a link that names the newest version of the library; these functions open that
 * version with dlopen and say when the link names another. C and C++, POSIX; link with -ldl
 * where dlopen is not in the C library.
 *
 *   squall_watch w;
 *   if (squall_watch_open(&w, "out/current", "libnet.so", 1000)) fail(w.error);
 *   for (;;) {
 *     if (squall_watch_poll(&w) > 0) { .. squall_watch_symbol(&w, "net_run") ..
 *                                      .. squall_watch_file(&w, "net.weights", path, sizeof path) }
 *     ..
 *   }
 *
 * A library is never closed: calls into the earlier version may still run. Kernels of another
 * version may round differently, so an application decides by its polls when it takes a new
 * version. */
#ifndef SQUALL_WATCH_H
#define SQUALL_WATCH_H
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef struct {
  char link[2048];      /* the link that names the newest version */
  char folder[4096];    /* the version that is open */
  char file[256];       /* the library in its folder */
  char error[4608];     /* what went wrong last */
  void *library;        /* of dlopen */
  unsigned every, calls; /* how many polls pass between two looks at the link */
} squall_watch;

/* Looks at the link: 1 where another version was opened, 0 where it is the same, -1 where it cannot
 * be opened; then the one before stays in use. */
static inline int squall_watch_look(squall_watch *w) {
  char target[2048], folder[4096], path[4608];
  const char *slash = strrchr(w->link, '/');
  ssize_t n = readlink(w->link, target, sizeof target - 1);
  if (n <= 0) {
    snprintf(w->error, sizeof w->error, "%s is no link", w->link);
    return -1;
  }
  target[n] = 0;
  if (target[0] == '/' || !slash) snprintf(folder, sizeof folder, "%s", target);
  else snprintf(folder, sizeof folder, "%.*s/%s", (int)(slash - w->link), w->link, target);
  if (w->library && strcmp(folder, w->folder) == 0) return 0;
  snprintf(path, sizeof path, "%s%s/%s", strchr(folder, '/') ? "" : "./", folder, w->file);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char *why = dlerror();
    snprintf(w->error, sizeof w->error, "%s", why ? why : path);
    return -1;
  }
  w->library = library;
  memcpy(w->folder, folder, sizeof folder);
  return 1;
}

/* Opens the newest version; 0 where that succeeds. */
static inline int squall_watch_open(squall_watch *w, const char *link, const char *file,
                                    unsigned every) {
  memset(w, 0, sizeof *w);
  if (strlen(link) >= sizeof w->link || strlen(file) >= sizeof w->file) {
    snprintf(w->error, sizeof w->error, "a path is too long");
    return -1;
  }
  strcpy(w->link, link), strcpy(w->file, file);
  w->every = every ? every : 1;
  return squall_watch_look(w) < 0 ? -1 : 0;
}

/* Costs nothing but a count, except every so many calls; else as squall_watch_look. */
static inline int squall_watch_poll(squall_watch *w) {
  if (++w->calls < w->every) return 0;
  w->calls = 0;
  return squall_watch_look(w);
}

/* A function of the version that is open; NULL where it has none. */
static inline void *squall_watch_symbol(squall_watch *w, const char *name) {
  return w->library ? dlsym(w->library, name) : NULL;
}

/* The path of a file beside the library, such as its weights. */
static inline const char *squall_watch_file(squall_watch *w, const char *name, char *path,
                                            size_t room) {
  int n = snprintf(path, room, "%s/%s", w->folder, name);
  return n > 0 && (size_t)n < room ? path : NULL;
}

#endif
