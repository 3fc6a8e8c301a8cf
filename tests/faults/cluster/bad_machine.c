/* Preloaded into a process, it lets calls on files fail or wait, and sets the clock, as a file says that others write:
   `bad_machine.py`. SQLite's calls are met as well as those of Python. */

#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { READS = 1, WRITES = 2, SYNCS = 4, NAMES = 8 };
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

static int has_faults(int kind) { return control && control->error && control->calls & kind; }

/* A prefix that ends with a slash means the directory, too. */
static int is_met(const char *path, int kind) {
    const char *prefix = (const char *)control->prefix;
    size_t length = strlen(prefix);
    return has_faults(kind) && (!strncmp(path, prefix, length) || (length && strlen(path) == length - 1 &&
                                prefix[length - 1] == '/' && !strncmp(path, prefix, length - 1)));
}

/* Returns whether a call with these paths fails, which may be the same. One that waits goes on when the fault ends. */
static int meets_paths(const char *path, const char *other, int kind) {
    if (!(is_met(path, kind) || is_met(other, kind)) ||
        __atomic_add_fetch(&control->count, 1, __ATOMIC_RELAXED) % control->one_in)
        return 0;
    if (control->error != HANGS) {
        errno = control->error;
        return 1;
    }
    while ((is_met(path, kind) || is_met(other, kind)) && control->error == HANGS)
        nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL);
    return 0;
}

/* Writes the path of an open file. Returns whether it has one. */
static int path_of(int fd, char *path) {
    char link[32];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, PATH_MAX - 1);
    if (length < 0)
        return 0;
    path[length] = 0;
    return 1;
}

/* Writes the path that a call means: what is relative begins at a directory. Links are not followed. Returns whether
   there is one. */
static int resolve(int directory, const char *path, char *found) {
    found[0] = 0;
    if (!path)
        return 0;
    if (path[0] != '/' && (directory == AT_FDCWD ? !getcwd(found, PATH_MAX) : !path_of(directory, found)))
        return 0;
    size_t length = strlen(found);
    while (*path) {
        size_t part = strcspn(path, "/");
        if (part == 2 && !strncmp(path, "..", 2)) {
            while (length && found[--length] != '/')
                ;
        } else if (part && !(part == 1 && *path == '.')) {
            if (length + part + 2 > PATH_MAX)
                return 0;
            found[length++] = '/';
            memcpy(found + length, path, part);
            length += part;
        }
        found[length] = 0;
        path += part + (path[part] == '/');
    }
    return 1;
}

static int meets_at(int directory, const char *path, int kind) {
    char found[PATH_MAX];
    return has_faults(kind) && resolve(directory, path, found) && meets_paths(found, found, kind);
}

static int meets_two(int directory, const char *path, int other_directory, const char *other, int kind) {
    char found[PATH_MAX], other_found[PATH_MAX];
    return has_faults(kind) && resolve(directory, path, found) && resolve(other_directory, other, other_found) &&
           meets_paths(found, other_found, kind);
}

static int meets(int fd, int kind) {
    char path[PATH_MAX];
    return has_faults(kind) && path_of(fd, path) && meets_paths(path, path, kind);
}

#define REAL(name) \
    static __typeof__(&name) real; \
    if (!real) \
        real = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define CALL_IF(is_hit, result, failed, name, parameters, ...) \
    result name parameters { \
        REAL(name); \
        return is_hit ? failed : real(__VA_ARGS__); \
    }

#define CALL(kind, result, name, parameters, ...) CALL_IF(meets(fd, kind), result, -1, name, parameters, __VA_ARGS__)

#define HAS_MODE (O_CREAT | (O_TMPFILE & ~O_DIRECTORY))
#define OPEN_IF(is_hit, name, parameters, ...) \
    int name parameters { \
        REAL(name); \
        va_list more; \
        va_start(more, flags); \
        mode_t mode = flags & HAS_MODE ? va_arg(more, mode_t) : 0; \
        va_end(more); \
        return is_hit ? -1 : real(__VA_ARGS__, flags, mode); \
    }
#define OPEN_KIND (flags & O_CREAT ? WRITES : READS)
#define OPEN(name) OPEN_IF(meets_at(AT_FDCWD, path, OPEN_KIND), name, (const char *path, int flags, ...), path)
#define OPEN_AT(name) OPEN_IF(meets_at(at, path, OPEN_KIND), name, (int at, const char *path, int flags, ...), at, path)

OPEN(open)
OPEN(open64)
OPEN_AT(openat)
OPEN_AT(openat64)
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
CALL(WRITES, int, fallocate, (int fd, int mode, off_t at, off_t size), fd, mode, at, size)
CALL(WRITES, int, fallocate64, (int fd, int mode, off64_t at, off64_t size), fd, mode, at, size)
/* They return the number of the error. */
CALL_IF(meets(fd, WRITES), int, errno, posix_fallocate, (int fd, off_t at, off_t size), fd, at, size)
CALL_IF(meets(fd, WRITES), int, errno, posix_fallocate64, (int fd, off64_t at, off64_t size), fd, at, size)
CALL(SYNCS, int, fsync, (int fd), fd)
CALL(SYNCS, int, fdatasync, (int fd), fd)

#define PATH(kind, at, result, failed, name, parameters, ...) \
    CALL_IF(meets_at(at, path, kind), result, failed, name, parameters, __VA_ARGS__)
#define PATHS(at, to, name, parameters, ...) \
    CALL_IF(meets_two(at, path, to, other, NAMES), int, -1, name, parameters, __VA_ARGS__)

PATH(WRITES, AT_FDCWD, int, -1, truncate, (const char *path, off_t size), path, size)
PATH(WRITES, AT_FDCWD, int, -1, truncate64, (const char *path, off64_t size), path, size)
PATH(READS, AT_FDCWD, int, -1, access, (const char *path, int mode), path, mode)
PATH(READS, AT_FDCWD, int, -1, stat, (const char *path, struct stat *found), path, found)
PATH(READS, AT_FDCWD, int, -1, stat64, (const char *path, struct stat64 *found), path, found)
PATH(READS, AT_FDCWD, int, -1, lstat, (const char *path, struct stat *found), path, found)
PATH(READS, AT_FDCWD, int, -1, lstat64, (const char *path, struct stat64 *found), path, found)
PATH(READS, at, int, -1, fstatat, (int at, const char *path, struct stat *found, int flags), at, path, found, flags)
PATH(READS, at, int, -1, fstatat64, (int at, const char *path, struct stat64 *found, int flags), at, path, found, flags)
PATH(READS, AT_FDCWD, int, -1, statvfs, (const char *path, struct statvfs *found), path, found)
PATH(READS, AT_FDCWD, int, -1, statvfs64, (const char *path, struct statvfs64 *found), path, found)
PATH(READS, AT_FDCWD, DIR *, NULL, opendir, (const char *path), path)
CALL_IF(meets(fd, READS), DIR *, NULL, fdopendir, (int fd), fd)
PATHS(AT_FDCWD, AT_FDCWD, rename, (const char *path, const char *other), path, other)
PATHS(at, to, renameat, (int at, const char *path, int to, const char *other), at, path, to, other)
PATHS(at, to, renameat2, (int at, const char *path, int to, const char *other, unsigned flags), at, path, to, other,
      flags)
PATHS(AT_FDCWD, AT_FDCWD, link, (const char *path, const char *other), path, other)
PATHS(at, to, linkat, (int at, const char *path, int to, const char *other, int flags), at, path, to, other, flags)
/* What a symbolic link says may be no path. */
PATH(NAMES, AT_FDCWD, int, -1, symlink, (const char *says, const char *path), says, path)
PATH(NAMES, at, int, -1, symlinkat, (const char *says, int at, const char *path), says, at, path)
PATH(NAMES, AT_FDCWD, int, -1, unlink, (const char *path), path)
PATH(NAMES, at, int, -1, unlinkat, (int at, const char *path, int flags), at, path, flags)
PATH(NAMES, AT_FDCWD, int, -1, remove, (const char *path), path)
PATH(NAMES, AT_FDCWD, int, -1, rmdir, (const char *path), path)
PATH(NAMES, AT_FDCWD, int, -1, mkdir, (const char *path, mode_t mode), path, mode)
PATH(NAMES, at, int, -1, mkdirat, (int at, const char *path, mode_t mode), at, path, mode)

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
