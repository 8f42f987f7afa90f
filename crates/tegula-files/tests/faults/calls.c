/* Interposes file functions of the C library (LD_PRELOAD) and makes the n-th call fail. Environment:
 *
 *   FAULT_AT          n; without it no call fails
 *   FAULT_KIND        error, short (a read or write moves half of the bytes), kill (by SIGKILL, before the call)
 *   FAULT_ERRNO       the error
 *   FAULT_CALLS       the counted calls, such as "read write"; all by default
 *   FAULT_NO_TMPFILE  disables unnamed files
 *   FAULT_REPORT      file for the name of the failed call
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

static long calls, at;
static int code, no_tmpfile;
static enum { ERROR, SHORT, KILL } kind;
static const char *counted;

__attribute__((constructor)) static void configure(void) {
    const char *value = getenv("FAULT_AT");
    at = value ? atol(value) : 0;
    value = getenv("FAULT_KIND");
    kind = value && !strcmp(value, "short") ? SHORT : value && !strcmp(value, "kill") ? KILL : ERROR;
    value = getenv("FAULT_ERRNO");
    code = value ? atoi(value) : EIO;
    counted = getenv("FAULT_CALLS");
    no_tmpfile = getenv("FAULT_NO_TMPFILE") != NULL;
}

static int counts(const char *call) {
    size_t length = strlen(call);
    for (const char *found = counted; found && (found = strstr(found, call)); found += length)
        if ((found == counted || found[-1] == ' ') && (!found[length] || found[length] == ' ')) return 1;
    return !counted;
}

/* Whether this call fails. */
static int fails(const char *call) {
    if (!at || !counts(call) || __atomic_add_fetch(&calls, 1, __ATOMIC_SEQ_CST) != at) return 0;
    const char *report = getenv("FAULT_REPORT");
    FILE *(*open_file)(const char *, const char *) = dlsym(RTLD_NEXT, "fopen64");
    FILE *file = report ? open_file(report, "w") : NULL;
    if (file) {
        fputs(call, file);
        fclose(file);
    }
    if (kind == KILL) kill(getpid(), SIGKILL);
    errno = code;
    return 1;
}

#define REAL(type, name) type (*real)() = (type(*)())dlsym(RTLD_NEXT, name)
#define WRAP(type, name, failed, parameters, ...) \
    type name parameters {                        \
        REAL(type, #name);                        \
        if (fails(#name)) return failed;          \
        return real(__VA_ARGS__);                 \
    }

#define OPEN(name, parameters, ...)                                  \
    int name parameters {                                            \
        REAL(int, #name);                                            \
        va_list list;                                                \
        va_start(list, flags);                                       \
        mode_t mode = va_arg(list, mode_t);                          \
        va_end(list);                                                \
        if (no_tmpfile && (flags & O_TMPFILE) == O_TMPFILE) {        \
            errno = EOPNOTSUPP;                                      \
            return -1;                                               \
        }                                                            \
        if (fails("open")) return -1;                                \
        return real(__VA_ARGS__, flags, mode);                       \
    }
OPEN(open, (const char *path, int flags, ...), path)
OPEN(open64, (const char *path, int flags, ...), path)
OPEN(openat, (int folder, const char *path, int flags, ...), folder, path)
OPEN(openat64, (int folder, const char *path, int flags, ...), folder, path)

/* Standard output and standard error are exempt. */
#define MOVE(name, call, parameters, ...)                                \
    ssize_t name parameters {                                            \
        REAL(ssize_t, #name);                                            \
        if (file > 2 && fails(call)) {                                   \
            if (kind != SHORT) return -1;                                \
            if (bytes > 1) bytes /= 2;                                   \
        }                                                                \
        return real(__VA_ARGS__);                                        \
    }
MOVE(read, "read", (int file, void *to, size_t bytes), file, to, bytes)
MOVE(pread64, "read", (int file, void *to, size_t bytes, off_t from), file, to, bytes, from)
MOVE(write, "write", (int file, const void *from, size_t bytes), file, from, bytes)
MOVE(pwrite64, "write", (int file, const void *from, size_t bytes, off_t to), file, from, bytes, to)

WRAP(int, fsync, -1, (int file), file)
WRAP(int, fdatasync, -1, (int file), file)
WRAP(int, ftruncate64, -1, (int file, off_t size), file, size)
WRAP(off_t, lseek64, -1, (int file, off_t to, int from), file, to, from)
WRAP(int, fchmod, -1, (int file, mode_t mode), file, mode)
WRAP(int, flock, -1, (int file, int how), file, how)
WRAP(int, linkat, -1, (int from, const char *old, int to, const char *new, int flags), from, old, to, new, flags)
WRAP(int, rename, -1, (const char *old, const char *new), old, new)
WRAP(int, renameat, -1, (int from, const char *old, int to, const char *new), from, old, to, new)
WRAP(int, renameat2, -1, (int from, const char *old, int to, const char *new, unsigned flags), from, old, to, new, flags)
WRAP(int, unlink, -1, (const char *path), path)
WRAP(int, unlinkat, -1, (int folder, const char *path, int flags), folder, path, flags)
WRAP(ssize_t, readlink, -1, (const char *path, char *to, size_t size), path, to, size)
WRAP(int, statvfs64, -1, (const char *path, struct statvfs64 *to), path, to)
WRAP(int, statx, -1, (int folder, const char *path, int flags, unsigned mask, struct statx *to), folder, path, flags, mask, to)
WRAP(DIR *, opendir, NULL, (const char *path), path)

void *mmap64(void *address, size_t bytes, int protection, int flags, int file, off_t from) {
    REAL(void *, "mmap64");
    if (file >= 0 && fails("mmap")) return MAP_FAILED;
    return real(address, bytes, protection, flags, file, from);
}
void *mmap(void *address, size_t bytes, int protection, int flags, int file, off_t from) {
    return mmap64(address, bytes, protection, flags, file, from);
}
