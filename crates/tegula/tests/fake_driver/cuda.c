/* A fake of libcuda.so.1 for tests. Device memory is host memory, work completes when it is queued,
 * and kernels do nothing. It fails at its n-th call and counts allocations. It aborts on misuse of
 * the real driver: released or invalid memory, streams, events and other objects, copies beyond the
 * end of an allocation, and work without a current context.
 *
 * A call that releases an object does so even if it fails, as the real driver does when it reports
 * an earlier error.
 *
 * Signatures are those of the CUDA driver API, version 12.0. */

#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef int CUresult;
typedef unsigned long long Address;

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, ILLEGAL_STATE = 401, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901 };

enum Kind { MEMORY, PINNED, STREAM, EVENT, GRAPH, EXEC, MODULE, CONTEXT, KINDS };
static const char *const KIND_NAMES[KINDS] = {"device memory", "page-locked memory", "stream", "event", "graph",
                                              "executable graph", "module", "context"};

/* An object. It is kept after its release, so that a later use is detected. */
typedef struct Object {
    enum Kind kind;
    int live;
    int capturing;
    int mode;
    char *memory;
    size_t bytes;
    struct Object *next;
} Object;

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Object *objects;
static long live[KINDS];
static long calls, fail_at;
static int fail_code, fail_forever, compute = 90, pools = 1;
static char failed[64];
static Object *primary;
static int primary_users;
static __thread Object *current;

/* Stream captures in progress: those in global mode, those of this thread that are not relaxed, and
 * whether a call that they forbid has invalidated them. */
enum { GLOBAL = 0, THREAD_LOCAL = 1, RELAXED = 2 };
static int global_captures, invalidated;
static __thread int own_captures, capture_mode = GLOBAL;

static void misuse(const char *call, const char *what, ...) {
    va_list list;
    va_start(list, what);
    fprintf(stderr, "fake driver: %s: ", call);
    vfprintf(stderr, what, list);
    fprintf(stderr, "\n");
    va_end(list);
    abort();
}

/* Counts a call. Returns its injected error. */
static CUresult step(const char *call) {
    pthread_mutex_lock(&lock);
    calls++;
    int fails = fail_at > 0 && (calls == fail_at || (fail_forever && calls > fail_at));
    if (fails && calls == fail_at) snprintf(failed, sizeof failed, "%s", call);
    int code = fail_code;
    pthread_mutex_unlock(&lock);
    return fails ? code : SUCCESS;
}

#define ENTER                                  \
    do {                                       \
        CUresult code = step(__func__);        \
        if (code != SUCCESS) return code;      \
    } while (0)

#define ENTER_WITH_CONTEXT                     \
    ENTER;                                     \
    if (!current) return INVALID_CONTEXT

static Object *make(enum Kind kind, size_t bytes) {
    Object *object = calloc(1, sizeof *object);
    object->kind = kind;
    object->live = 1;
    object->bytes = bytes;
    if (bytes) object->memory = aligned_alloc(256, (bytes + 255) / 256 * 256);
    pthread_mutex_lock(&lock);
    object->next = objects;
    objects = object;
    live[kind]++;
    pthread_mutex_unlock(&lock);
    return object;
}

static Object *known(const char *call, void *handle, enum Kind kind) {
    pthread_mutex_lock(&lock);
    Object *object = objects;
    while (object && object != handle) object = object->next;
    pthread_mutex_unlock(&lock);
    if (!object || object->kind != kind) misuse(call, "%p is no %s", handle, KIND_NAMES[kind]);
    if (!object->live) misuse(call, "%p is a %s that was released", handle, KIND_NAMES[kind]);
    return object;
}

static Object *holding(const char *call, const void *address, size_t bytes, enum Kind kind) {
    pthread_mutex_lock(&lock);
    Object *object = objects;
    const char *at = address;
    /* The variables of a module are in device memory too. */
    while (object && !((object->kind == kind || (kind == MEMORY && object->kind == MODULE)) && object->memory && object->live && at >= object->memory &&
                       at + bytes <= object->memory + object->bytes))
        object = object->next;
    pthread_mutex_unlock(&lock);
    if (!object) misuse(call, "%zu bytes at %p are not in live %s", bytes, address, KIND_NAMES[kind]);
    return object;
}

static void release(Object *object) {
    pthread_mutex_lock(&lock);
    object->live = 0;
    live[object->kind]--;
    free(object->memory);
    object->memory = NULL;
    pthread_mutex_unlock(&lock);
}

/* The null stream always exists. */
static Object *stream_of(const char *call, void *stream) { return stream ? known(call, stream, STREAM) : NULL; }

/* --- Interface for tests --- */

/* Resets the device. The n-th call fails with this code, and with `persistent` all later calls; none
 * fails for n = 0. */
void fake_cuda_start(long n, int code, int persistent, int capability, int memory_pools) {
    calls = 0;
    fail_at = n;
    fail_code = code;
    fail_forever = persistent;
    failed[0] = 0;
    compute = capability;
    pools = memory_pools;
    primary = NULL;
    primary_users = 0;
    current = NULL;
    global_captures = own_captures = invalidated = 0;
    capture_mode = GLOBAL;
    /* Released objects are no longer used. */
    for (Object **at = &objects; *at;) {
        Object *object = *at;
        if (object->live) {
            at = &object->next;
        } else {
            *at = object->next;
            free(object);
        }
    }
}

void fake_cuda_stop(void) { fail_at = 0; }
long fake_cuda_calls(void) { return calls; }
const char *fake_cuda_failed(void) { return failed; }
long fake_cuda_live(int kind) { return live[kind]; }

static void report(void) {
    const char *path = getenv("FAKE_CUDA_REPORT");
    FILE *file = path ? fopen(path, "w") : NULL;
    if (!file) return;
    fprintf(file, "%ld %ld %s\n", calls, live[MEMORY], failed[0] ? failed : "-");
    fclose(file);
}

__attribute__((constructor)) static void configure(void) {
    const char *n = getenv("FAKE_CUDA_FAIL_AT"), *code = getenv("FAKE_CUDA_FAIL_CODE");
    fail_at = n ? atol(n) : 0;
    fail_code = code ? atoi(code) : 999;
    atexit(report);
}

/* --- Functions of the driver --- */

CUresult cuInit(unsigned flags) { (void)flags; ENTER; return SUCCESS; }
CUresult cuDriverGetVersion(int *version) { ENTER; *version = 12080; return SUCCESS; }
CUresult cuDeviceGetCount(int *count) { ENTER; *count = 1; return SUCCESS; }
CUresult cuDeviceGet(int *device, int ordinal) { ENTER; if (ordinal) return INVALID_VALUE; *device = 0; return SUCCESS; }
CUresult cuDeviceGetName(char *name, int length, int device) { (void)device; ENTER; snprintf(name, length, "Fake GPU"); return SUCCESS; }
CUresult cuDeviceTotalMem_v2(size_t *bytes, int device) { (void)device; ENTER; *bytes = (size_t)1 << 30; return SUCCESS; }

CUresult cuDeviceGetAttribute(int *value, int which, int device) {
    (void)device;
    ENTER;
    switch (which) {
    case 1: *value = 1024; break;              /* threads per block */
    case 13: *value = 1000000; break;          /* kHz */
    case 16: *value = 8; break;                /* SMs */
    case 38: *value = 1 << 16; break;          /* L2: a search fills memory of several times its size */
    case 39: *value = 2048; break;             /* threads per SM */
    case 75: *value = compute / 10; break;
    case 76: *value = compute % 10; break;
    case 81: *value = 233472; break;           /* shared memory per SM */
    case 82: *value = 65536; break;            /* registers per SM */
    case 97: *value = 232448; break;           /* shared memory per block */
    case 115: *value = pools; break;
    default: *value = 0;
    }
    return SUCCESS;
}

CUresult cuGetErrorName(int code, const char **text) {
    ENTER;
    *text = code == OUT_OF_MEMORY ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_INJECTED";
    return SUCCESS;
}
CUresult cuGetErrorString(int code, const char **text) { (void)code; ENTER; *text = "injected by the fake driver"; return SUCCESS; }

CUresult cuDevicePrimaryCtxRetain(void **context, int device) {
    (void)device;
    ENTER;
    if (!primary) primary = make(CONTEXT, 0);
    primary_users++;
    *context = primary;
    return SUCCESS;
}
CUresult cuDevicePrimaryCtxRelease_v2(int device) { (void)device; CUresult code = step(__func__); primary_users--; return code; }
CUresult cuCtxGetCurrent(void **context) { ENTER; *context = current; return SUCCESS; }
CUresult cuCtxSetCurrent(void *context) { ENTER; current = context ? known(__func__, context, CONTEXT) : NULL; return SUCCESS; }
CUresult cuCtxSynchronize(void) { ENTER_WITH_CONTEXT; return SUCCESS; }

CUresult cuStreamCreate(void **stream, unsigned flags) { (void)flags; ENTER_WITH_CONTEXT; *stream = make(STREAM, 0); return SUCCESS; }
CUresult cuStreamDestroy_v2(void *stream) { CUresult code = step(__func__); release(known(__func__, stream, STREAM)); return code; }
CUresult cuStreamGetId(void *stream, unsigned long long *id) {
    ENTER;
    stream_of(__func__, stream);
    *id = (unsigned long long)(uintptr_t)stream;
    return SUCCESS;
}
CUresult cuStreamSynchronize(void *stream) {
    ENTER;
    Object *object = stream_of(__func__, stream);
    return object && object->capturing ? CAPTURE_UNSUPPORTED : SUCCESS;
}
CUresult cuStreamWaitEvent(void *stream, void *event, unsigned flags) {
    (void)flags;
    ENTER;
    stream_of(__func__, stream);
    known(__func__, event, EVENT);
    return SUCCESS;
}
CUresult cuStreamIsCapturing(void *stream, int *status) {
    ENTER;
    Object *object = stream_of(__func__, stream);
    *status = object ? object->capturing : 0;
    return SUCCESS;
}
CUresult cuStreamBeginCapture_v2(void *stream, int mode) {
    ENTER;
    Object *object = known(__func__, stream, STREAM);
    if (object->capturing) return ILLEGAL_STATE;
    object->capturing = 1;
    object->mode = mode;
    global_captures += mode == GLOBAL;
    own_captures += mode != RELAXED;
    return SUCCESS;
}
CUresult cuStreamEndCapture(void *stream, void **graph) {
    CUresult code = step(__func__);
    Object *object = known(__func__, stream, STREAM);
    if (!object->capturing) return ILLEGAL_STATE;
    object->capturing = 0;
    global_captures -= object->mode == GLOBAL;
    own_captures -= object->mode != RELAXED;
    *graph = NULL;
    if (object->mode != RELAXED && invalidated) {
        invalidated = 0;
        return CAPTURE_INVALIDATED;
    }
    if (code == SUCCESS) *graph = make(GRAPH, 0);
    return code;
}
CUresult cuThreadExchangeStreamCaptureMode(int *mode) {
    ENTER;
    int before = capture_mode;
    capture_mode = *mode;
    *mode = before;
    return SUCCESS;
}

CUresult cuGraphInstantiateWithFlags(void **exec, void *graph, unsigned long long flags) {
    (void)flags;
    ENTER;
    known(__func__, graph, GRAPH);
    *exec = make(EXEC, 0);
    return SUCCESS;
}
CUresult cuGraphLaunch(void *exec, void *stream) { ENTER; known(__func__, exec, EXEC); stream_of(__func__, stream); return SUCCESS; }
CUresult cuGraphDestroy(void *graph) { CUresult code = step(__func__); release(known(__func__, graph, GRAPH)); return code; }
CUresult cuGraphExecDestroy(void *exec) { CUresult code = step(__func__); release(known(__func__, exec, EXEC)); return code; }

CUresult cuEventCreate(void **event, unsigned flags) { (void)flags; ENTER_WITH_CONTEXT; *event = make(EVENT, 0); return SUCCESS; }
CUresult cuEventDestroy_v2(void *event) { CUresult code = step(__func__); release(known(__func__, event, EVENT)); return code; }
CUresult cuEventRecord(void *event, void *stream) { ENTER; known(__func__, event, EVENT); stream_of(__func__, stream); return SUCCESS; }
CUresult cuEventSynchronize(void *event) { ENTER; known(__func__, event, EVENT); return SUCCESS; }
CUresult cuEventElapsedTime(float *milliseconds, void *start, void *end) {
    ENTER;
    known(__func__, start, EVENT);
    known(__func__, end, EVENT);
    *milliseconds = 1;
    return SUCCESS;
}

static CUresult allocate(Address *address, size_t bytes) {
    if (!bytes) return INVALID_VALUE;
    Object *object = make(MEMORY, bytes);
    if (!object->memory) return OUT_OF_MEMORY;
    memset(object->memory, 0x5a, bytes);
    *address = (Address)(uintptr_t)object->memory;
    return SUCCESS;
}
static void free_memory(const char *call, Address address) {
    Object *object = holding(call, (void *)(uintptr_t)address, 1, MEMORY);
    if (object->memory != (char *)(uintptr_t)address) misuse(call, "%llx is within an allocation", address);
    release(object);
}
/* A call that may wait for other work: stream captures forbid it, and it invalidates them. */
#define ENTER_UNLESS_CAPTURED                                                                              \
    ENTER_WITH_CONTEXT;                                                                                    \
    if (capture_mode != RELAXED && (own_captures || (capture_mode == GLOBAL && global_captures))) {        \
        invalidated = 1;                                                                                   \
        return CAPTURE_UNSUPPORTED;                                                                        \
    }

CUresult cuMemAlloc_v2(Address *address, size_t bytes) { ENTER_UNLESS_CAPTURED; return allocate(address, bytes); }
CUresult cuMemAllocAsync(Address *address, size_t bytes, void *stream) {
    ENTER_WITH_CONTEXT;
    stream_of(__func__, stream);
    return allocate(address, bytes);
}
CUresult cuMemFree_v2(Address address) { CUresult code = step(__func__); free_memory(__func__, address); return code; }
CUresult cuMemFreeAsync(Address address, void *stream) {
    CUresult code = step(__func__);
    stream_of(__func__, stream);
    free_memory(__func__, address);
    return code;
}
CUresult cuMemGetInfo_v2(size_t *free_bytes, size_t *total) {
    ENTER_WITH_CONTEXT;
    *free_bytes = *total = (size_t)1 << 30;
    return SUCCESS;
}
CUresult cuMemHostAlloc(void **memory, size_t bytes, unsigned flags) {
    (void)flags;
    ENTER_UNLESS_CAPTURED;
    *memory = make(PINNED, bytes)->memory;
    return *memory ? SUCCESS : OUT_OF_MEMORY;
}
CUresult cuMemFreeHost(void *memory) { CUresult code = step(__func__); release(holding(__func__, memory, 1, PINNED)); return code; }

CUresult cuMemcpyHtoDAsync_v2(Address to, const void *from, size_t bytes, void *stream) {
    ENTER_WITH_CONTEXT;
    stream_of(__func__, stream);
    holding(__func__, (void *)(uintptr_t)to, bytes, MEMORY);
    memcpy((void *)(uintptr_t)to, from, bytes);
    return SUCCESS;
}
CUresult cuMemcpyDtoHAsync_v2(void *to, Address from, size_t bytes, void *stream) {
    ENTER_WITH_CONTEXT;
    stream_of(__func__, stream);
    holding(__func__, (void *)(uintptr_t)from, bytes, MEMORY);
    memcpy(to, (void *)(uintptr_t)from, bytes);
    return SUCCESS;
}
CUresult cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void *stream) {
    ENTER_WITH_CONTEXT;
    stream_of(__func__, stream);
    holding(__func__, (void *)(uintptr_t)to, bytes, MEMORY);
    holding(__func__, (void *)(uintptr_t)from, bytes, MEMORY);
    memmove((void *)(uintptr_t)to, (void *)(uintptr_t)from, bytes);
    return SUCCESS;
}

static CUresult set(const char *call, Address to, const void *value, size_t size, size_t count, void *stream) {
    stream_of(call, stream);
    holding(call, (void *)(uintptr_t)to, size * count, MEMORY);
    for (size_t i = 0; i < count; i++) memcpy((char *)(uintptr_t)to + i * size, value, size);
    return SUCCESS;
}
CUresult cuMemsetD8Async(Address to, uint8_t value, size_t count, void *stream) { ENTER_WITH_CONTEXT; return set(__func__, to, &value, 1, count, stream); }
CUresult cuMemsetD16Async(Address to, uint16_t value, size_t count, void *stream) { ENTER_WITH_CONTEXT; return set(__func__, to, &value, 2, count, stream); }
CUresult cuMemsetD32Async(Address to, uint32_t value, size_t count, void *stream) { ENTER_WITH_CONTEXT; return set(__func__, to, &value, 4, count, stream); }

CUresult cuModuleLoadDataEx(void **module, const void *text, unsigned count, int *options, void **values) {
    (void)count, (void)options, (void)values;
    ENTER_UNLESS_CAPTURED;
    if (!strstr(text, ".visible .entry")) misuse(__func__, "no entry in the text");
    *module = make(MODULE, 256);
    return SUCCESS;
}
CUresult cuModuleUnload(void *module) { CUresult code = step(__func__); release(known(__func__, module, MODULE)); return code; }
CUresult cuModuleGetFunction(void **function, void *module, const char *name) {
    ENTER;
    known(__func__, module, MODULE);
    if (!*name) misuse(__func__, "no name");
    /* The function handle is that of its module. */
    *function = module;
    return SUCCESS;
}
/* A module has one variable, under any name. */
CUresult cuModuleGetGlobal_v2(Address *address, size_t *bytes, void *module, const char *name) {
    ENTER;
    Object *object = known(__func__, module, MODULE);
    if (!*name) misuse(__func__, "no name");
    *address = (Address)(uintptr_t)object->memory;
    *bytes = object->bytes;
    return SUCCESS;
}
CUresult cuFuncGetAttribute(int *value, int which, void *function) {
    ENTER;
    known(__func__, function, MODULE);
    *value = which == 0 ? 1024 : which == 4 ? 32 : 0;
    return SUCCESS;
}
CUresult cuFuncSetAttribute(void *function, int which, int value) {
    (void)which, (void)value;
    ENTER;
    known(__func__, function, MODULE);
    return SUCCESS;
}
CUresult cuOccupancyMaxActiveBlocksPerMultiprocessor(int *blocks, void *function, int threads, size_t shared) {
    (void)threads, (void)shared;
    ENTER;
    known(__func__, function, MODULE);
    *blocks = 2;
    return SUCCESS;
}
/* Called at each launch, if set by a test. */
void (*fake_cuda_at_launch)(void);
static CUresult launched(int any) {
    if (fake_cuda_at_launch) fake_cuda_at_launch();
    return any ? SUCCESS : INVALID_VALUE;
}
CUresult cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                        void *stream, void **params, void **extra) {
    (void)bx, (void)by, (void)bz, (void)shared, (void)params, (void)extra;
    ENTER_WITH_CONTEXT;
    known(__func__, function, MODULE);
    stream_of(__func__, stream);
    return launched(gx && gy && gz);
}
/* The configuration starts with grid and block, shared memory and the stream. */
struct Config { unsigned grid[3], block[3], shared; void *stream; };
CUresult cuLaunchKernelEx(const struct Config *config, void *function, void **params, void **extra) {
    (void)params, (void)extra;
    ENTER_WITH_CONTEXT;
    known(__func__, function, MODULE);
    stream_of(__func__, config->stream);
    return launched(config->grid[0] && config->grid[1] && config->grid[2]);
}
CUresult cuTensorMapEncodeTiled(void *map, int type, unsigned rank, void *address, const uint64_t *extents, const uint64_t *strides,
                                const uint32_t *box, const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
    (void)type, (void)rank, (void)address, (void)extents, (void)strides, (void)box, (void)steps, (void)interleave, (void)swizzle,
        (void)promotion, (void)fill;
    ENTER;
    memset(map, 0, 128);
    return SUCCESS;
}
