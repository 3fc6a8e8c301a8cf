/* Preloaded into a process, it lets calls on files fail or wait, and sets the clock, as a file says that others write:
   `bad_machine.py`. SQLite's calls are met as well as those of Python. */

#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { READS = 1, WRITES = 2, SYNCS = 4 };
enum { HANGS = -1 };

static volatile struct control {
    int64_t ahead_ns;
    int32_t error; /* the error number of calls that fail, HANGS, or 0 */
    int32_t calls; /* which kinds of calls are met */
    int32_t one_in;
    int32_t count;
    char prefix[488]; /* of the paths that are met */
} *control;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("BAD_MACHINE");
    int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (fd < 0)
        return;
    void *found = mmap(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (found != MAP_FAILED)
        control = found;
    close(fd);
}

static int is_met(const char *path, int kind) {
    return control->error && control->calls & kind &&
           !strncmp(path, (const char *)control->prefix, strlen((const char *)control->prefix));
}

/* Returns whether a call fails. One that waits goes on when the fault ends. */
static int meets_path(const char *path, int kind) {
    if (!control || !is_met(path, kind) || __atomic_add_fetch(&control->count, 1, __ATOMIC_RELAXED) % control->one_in)
        return 0;
    if (control->error != HANGS) {
        errno = control->error;
        return 1;
    }
    while (is_met(path, kind) && control->error == HANGS)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return 0;
}

static int meets(int fd, int kind) {
    if (!control || !control->error || !(control->calls & kind))
        return 0;
    char link[32], path[1024];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return meets_path(path, kind);
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define CALL(kind, result, name, parameters, ...) \
    result name parameters { \
        REAL(name); \
        return meets(fd, kind) ? -1 : real(__VA_ARGS__); \
    }

#define OPEN(name) \
    int name(const char *path, int flags, ...) { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return meets_path(path, flags & O_CREAT ? WRITES : READS) ? -1 : real(path, flags, mode); \
    }

OPEN(open)
OPEN(open64)
CALL(READS, ssize_t, read, (int fd, void *data, size_t size), fd, data, size)
CALL(READS, ssize_t, pread, (int fd, void *data, size_t size, off_t at), fd, data, size, at)
CALL(READS, ssize_t, pread64, (int fd, void *data, size_t size, off64_t at), fd, data, size, at)
CALL(WRITES, ssize_t, write, (int fd, const void *data, size_t size), fd, data, size)
CALL(WRITES, ssize_t, writev, (int fd, const struct iovec *parts, int count), fd, parts, count)
CALL(WRITES, ssize_t, pwrite, (int fd, const void *data, size_t size, off_t at), fd, data, size, at)
CALL(WRITES, ssize_t, pwrite64, (int fd, const void *data, size_t size, off64_t at), fd, data, size, at)
CALL(WRITES, ssize_t, pwritev, (int fd, const struct iovec *parts, int count, off_t at), fd, parts, count, at)
CALL(WRITES, ssize_t, pwritev64, (int fd, const struct iovec *parts, int count, off64_t at), fd, parts, count, at)
/* What os.preadv and os.pwritev call, where the C library has them. */
#define V2(kind, name, offset) \
    CALL(kind, ssize_t, name, (int fd, const struct iovec *parts, int count, offset at, int flags), fd, parts, count, \
         at, flags)
V2(READS, preadv2, off_t)
V2(READS, preadv64v2, off64_t)
V2(WRITES, pwritev2, off_t)
V2(WRITES, pwritev64v2, off64_t)
CALL(WRITES, int, ftruncate, (int fd, off_t size), fd, size)
CALL(WRITES, int, ftruncate64, (int fd, off64_t size), fd, size)
CALL(SYNCS, int, fsync, (int fd), fd)
CALL(SYNCS, int, fdatasync, (int fd), fd)

#define SENDFILE(name, offset) \
    ssize_t name(int out, int fd, offset *at, size_t size) { \
        REAL(name); \
        return meets(fd, READS) ? -1 : real(out, fd, at, size); \
    }

SENDFILE(sendfile, off_t)
SENDFILE(sendfile64, off64_t)

int clock_gettime(clockid_t clock, struct timespec *now) {
    REAL(clock_gettime);
    int result = real(clock, now);
    if (!result && control && clock == CLOCK_REALTIME && control->ahead_ns) {
        int64_t ns = now->tv_sec * 1000000000LL + now->tv_nsec + control->ahead_ns;
        now->tv_sec = ns / 1000000000LL;
        now->tv_nsec = ns % 1000000000LL;
    }
    return result;
}

time_t time(time_t *place) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (place)
        *place = now.tv_sec;
    return now.tv_sec;
}

int gettimeofday(struct timeval *restrict found, void *restrict zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    found->tv_sec = now.tv_sec;
    found->tv_usec = now.tv_nsec / 1000;
    return 0;
}
