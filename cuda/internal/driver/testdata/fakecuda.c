// A driver for tests without a GPU: the calls that the CUDA device makes, over host memory, on the calling thread. It
// has as many devices as FAKE_DEVICES says, one without it, and knows the kernels fill_u32, vector_add_f32 and checksum
// by name. It is strict: a call without a live current context, an access outside an allocation, or a free of something
// else fails as the real driver does, and an illegal access breaks its context for good; with FAKE_POISON=1 it breaks
// every present and future context of the process, which is what real drivers do.
//
// It shows that the code above calls the driver rightly. It shows nothing about timing, asynchrony or compiled code.
#include <pthread.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

typedef int result;
typedef unsigned long long ptr;
enum { OK = 0, INVALID = 1, OOM = 2, NO_CONTEXT = 201, NOT_FOUND = 500, BAD_HANDLE = 400, ILLEGAL = 700 };

#define MEMORY (64ull << 20)
#define MAX 4096

struct context {
    int alive, broken, device;
    int streams;
    struct { ptr at; size_t n; } *blocks; // [MAX]
    size_t used;
};
struct stream { struct context *ctx; struct graph *capture; int priority; };
struct event { struct context *ctx; int recorded; int64_t ns; };
struct op { int kind; ptr dst, src; size_t n; unsigned char v; struct function *f; uint64_t args[16]; };
struct graph { struct context *ctx; int n; struct op ops[256]; };
struct function { char name[32]; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static __thread struct context *current;

// ENTER takes the lock and fails without a context that can work.
#define ENTER                                     \
    pthread_mutex_lock(&lock);                    \
    struct context *c = current;                  \
    if (c == NULL || !c->alive) return leave(NO_CONTEXT); \
    if (c->broken || poisoned) return leave(ILLEGAL);

static int poisoned;

static result leave(result r)
{
    pthread_mutex_unlock(&lock);
    return r;
}

// Pinned memory, which every context sees.
static struct { ptr at; size_t n; } pinned[MAX];

static int is_pinned(ptr at, size_t n)
{
    for (int i = 0; i < MAX; i++)
        if (pinned[i].at != 0 && at >= pinned[i].at && at + n <= pinned[i].at + pinned[i].n)
            return 1;
    return 0;
}

static int inside(struct context *c, ptr at, size_t n)
{
    if (n > 0 && is_pinned(at, n))
        return 1;
    for (int i = 0; i < MAX; i++)
        if (c->blocks[i].at != 0 && at >= c->blocks[i].at && at + n <= c->blocks[i].at + c->blocks[i].n)
            return 1;
    if (n == 0)
        return 1;
    c->broken = 1;
    poisoned = getenv("FAKE_POISON") != NULL;
    return 0;
}

result cuInit(unsigned flags) { (void)flags; return OK; }
result cuDriverGetVersion(int *v) { *v = 13000; return OK; }
static int devices(void)
{
    const char *n = getenv("FAKE_DEVICES");
    return n != NULL ? atoi(n) : 1;
}

result cuDeviceGetCount(int *n) { *n = devices(); return OK; }
result cuDeviceGet(int *d, int i) { *d = i; return i >= 0 && i < devices() ? OK : 101; }
result cuDeviceCanAccessPeer(int *v, int d, int other) { *v = d != other; return OK; }
result cuDeviceGetP2PAttribute(int *v, int attribute, int d, int other) {
    (void)attribute, (void)d, (void)other;
    *v = 0;
    return OK;
}
result cuDeviceGetName(char *name, int n, int d) { (void)d; snprintf(name, n, "fake"); return OK; }
result cuDeviceTotalMem_v2(size_t *n, int d) { (void)d; *n = MEMORY; return OK; }
result cuDeviceGetUuid(unsigned char id[16], int d) { memset(id, 7 + d, 16); return OK; }
result cuDeviceGetPCIBusId(char *bus, int n, int d) { (void)d; snprintf(bus, n, "0000:00:00.0"); return OK; }

result cuDeviceGetAttribute(int *v, int attribute, int d)
{
    (void)d;
    switch (attribute) {
    case 1: *v = 1024; break;    // threads a block
    case 16: *v = 4; break;      // multiprocessors
    case 38: *v = 1 << 20; break; // L2
    case 75: *v = 9; break;      // compute capability
    case 76: *v = 0; break;
    case 97: *v = 227 << 10; break; // shared memory a block, at most
    default: *v = 0;
    }
    return OK;
}

result cuCtxCreate_v2(struct context **out, unsigned flags, int d)
{
    (void)flags;
    if (poisoned)
        return ILLEGAL;
    struct context *c = calloc(1, sizeof *c);
    c->blocks = calloc(MAX, sizeof *c->blocks);
    c->alive = 1;
    c->device = d;
    *out = current = c;
    return OK;
}

// Primary contexts, which live while someone holds them.
static struct { struct context *ctx; int held; } primary[16];

result cuCtxDestroy_v2(struct context *c);

result cuDevicePrimaryCtxRetain(struct context **out, int d)
{
    struct context *before = current;
    pthread_mutex_lock(&lock);
    result r = OK;
    if (primary[d].held++ == 0) {
        r = cuCtxCreate_v2(&primary[d].ctx, 0, d);
        current = before;
    }
    *out = primary[d].ctx;
    return leave(r);
}

result cuDevicePrimaryCtxRelease_v2(int d)
{
    pthread_mutex_lock(&lock);
    if (primary[d].held == 0)
        return leave(NO_CONTEXT);
    struct context *last = --primary[d].held == 0 ? primary[d].ctx : NULL;
    pthread_mutex_unlock(&lock);
    return last != NULL ? cuCtxDestroy_v2(last) : OK;
}

result cuCtxPopCurrent_v2(struct context **out)
{
    *out = current;
    current = NULL;
    return OK;
}

result cuCtxSetCurrent(struct context *c)
{
    current = c;
    return OK;
}

result cuCtxGetCurrent(struct context **out)
{
    *out = current;
    return OK;
}

// A destroyed context stays allocated, without its table, so that a late use of it is seen.
result cuCtxDestroy_v2(struct context *c)
{
    pthread_mutex_lock(&lock);
    if (!c->alive)
        return leave(NO_CONTEXT);
    for (int i = 0; i < MAX; i++)
        free((void *)(uintptr_t)c->blocks[i].at);
    free(c->blocks);
    c->blocks = NULL;
    int broken = c->broken;
    c->alive = 0;
    return leave(broken ? ILLEGAL : OK);
}

result cuCtxSynchronize(void) { ENTER return leave(OK); }

result cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    ENTER
    *total = MEMORY;
    *free_bytes = MEMORY - c->used;
    return leave(OK);
}

result cuMemAlloc_v2(ptr *at, size_t n)
{
    ENTER
    if (n == 0)
        return leave(INVALID);
    if (n > MEMORY - c->used)
        return leave(OOM);
    for (int i = 0; i < MAX; i++)
        if (c->blocks[i].at == 0) {
            *at = c->blocks[i].at = (ptr)(uintptr_t)aligned_alloc(512, (n + 511) / 512 * 512);
            c->blocks[i].n = n;
            c->used += n;
            return leave(OK);
        }
    return leave(OOM);
}

result cuMemFree_v2(ptr at)
{
    ENTER
    for (int i = 0; i < MAX; i++)
        if (at != 0 && c->blocks[i].at == at) {
            memset((void *)(uintptr_t)at, 0xEE, c->blocks[i].n);
            free((void *)(uintptr_t)at);
            c->used -= c->blocks[i].n;
            c->blocks[i].at = 0;
            return leave(OK);
        }
    return leave(INVALID);
}

// check_stream refuses a stream of another context.
#define STREAM(s) \
    if (s == NULL || s->ctx != c) return leave(BAD_HANDLE);

result cuStreamCreate(struct stream **out, unsigned flags)
{
    ENTER
    if (flags != 1) // the device's streams do not wait for the default stream
        return leave(INVALID);
    *out = calloc(1, sizeof **out);
    (*out)->ctx = c;
    c->streams++;
    return leave(OK);
}

result cuStreamCreateWithPriority(struct stream **out, unsigned flags, int priority)
{
    result r = cuStreamCreate(out, flags);
    if (r == OK)
        (*out)->priority = priority < -5 ? -5 : priority > 0 ? 0 : priority; // as a GPU of five priorities
    return r;
}

result cuStreamGetPriority(struct stream *s, int *priority)
{
    ENTER STREAM(s)
    *priority = s->priority;
    return leave(OK);
}

result cuStreamDestroy_v2(struct stream *s)
{
    ENTER STREAM(s)
    s->ctx = NULL; // not freed, so that a late use of it is seen
    c->streams--;
    return leave(OK);
}

result cuStreamQuery(struct stream *s) { ENTER STREAM(s) return leave(s->capture != NULL ? 900 : OK); }
result cuStreamSynchronize(struct stream *s) { ENTER STREAM(s) return leave(s->capture != NULL ? 900 : OK); }

// fake_primary is for fakenccl.c: whether a stream is of a GPU's primary context, and memory in it.
int fake_primary(int d, struct stream *s, ptr at, size_t n)
{
    pthread_mutex_lock(&lock);
    int yes = s != NULL && s->ctx != NULL && s->ctx == primary[d].ctx && s->ctx->alive && current == s->ctx &&
        !is_pinned(at, n) && inside(s->ctx, at, n);
    pthread_mutex_unlock(&lock);
    return yes;
}

result cuMemHostRegister_v2(void *at, size_t n, unsigned flags)
{
    ENTER
    if (flags != 3 || (uintptr_t)at % 4096 != 0 || n == 0)
        return leave(INVALID);
    for (int i = 0; i < MAX; i++)
        if (pinned[i].at == 0) {
            pinned[i].at = (ptr)(uintptr_t)at;
            pinned[i].n = n;
            return leave(OK);
        }
    return leave(OOM);
}

result cuMemHostUnregister(void *at)
{
    ENTER
    for (int i = 0; i < MAX; i++)
        if (pinned[i].at != 0 && pinned[i].at == (ptr)(uintptr_t)at) {
            pinned[i].at = 0;
            return leave(OK);
        }
    return leave(713);
}

result cuMemHostGetDevicePointer_v2(ptr *out, void *at, unsigned flags)
{
    *out = (ptr)(uintptr_t)at;
    return flags == 0 ? OK : INVALID;
}

static int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000ll + t.tv_nsec;
}

result cuEventCreate(struct event **out, unsigned flags)
{
    ENTER
    *out = calloc(1, sizeof **out);
    (*out)->ctx = c;
    return leave(flags == 0 || flags == 2 ? OK : INVALID);
}

#define EVENT(e) if (e == NULL || e->ctx != c) return leave(BAD_HANDLE);

result cuEventDestroy_v2(struct event *e) { ENTER EVENT(e) e->ctx = NULL; return leave(OK); }
result cuEventQuery(struct event *e) { ENTER EVENT(e) return leave(OK); }

result cuEventRecord(struct event *e, struct stream *s)
{
    ENTER STREAM(s) EVENT(e)
    e->recorded = 1;
    e->ns = now_ns();
    return leave(OK);
}

result cuStreamWaitEvent(struct stream *s, struct event *e, unsigned flags)
{
    ENTER STREAM(s)
    return leave(flags == 0 && e != NULL && e->ctx != NULL ? OK : BAD_HANDLE);
}

result cuEventElapsedTime(float *ms, struct event *from, struct event *to)
{
    ENTER EVENT(from) EVENT(to)
    *ms = (to->ns - from->ns) * 1e-6f;
    return leave(from->recorded && to->recorded ? OK : BAD_HANDLE);
}

static result launch(struct context *c, const struct op *o);

enum { COPY, SET, LAUNCH };

// put does an operation, or records it.
static result put(struct context *c, struct stream *s, struct op o)
{
    if (s->capture != NULL) {
        if (s->capture->n == 256)
            return OOM;
        s->capture->ops[s->capture->n++] = o;
        return OK;
    }
    if (o.kind == LAUNCH)
        return launch(c, &o);
    if (o.kind == COPY)
        memmove((void *)(uintptr_t)o.dst, (void *)(uintptr_t)o.src, o.n);
    else
        memset((void *)(uintptr_t)o.dst, o.v, o.n);
    return OK;
}

result cuStreamBeginCapture_v2(struct stream *s, int mode)
{
    ENTER STREAM(s)
    if (mode != 2 || s->capture != NULL)
        return leave(INVALID);
    s->capture = calloc(1, sizeof *s->capture);
    s->capture->ctx = c;
    return leave(OK);
}

result cuStreamEndCapture(struct stream *s, struct graph **g)
{
    ENTER STREAM(s)
    if (s->capture == NULL)
        return leave(401);
    *g = s->capture;
    s->capture = NULL;
    return leave(OK);
}

result cuGraphInstantiateWithFlags(struct graph **exec, struct graph *g, unsigned long long flags)
{
    ENTER
    if (g == NULL || g->ctx != c || flags != 0)
        return leave(INVALID);
    *exec = malloc(sizeof **exec);
    memcpy(*exec, g, sizeof *g);
    return leave(OK);
}

result cuGraphDestroy(struct graph *g) { ENTER free(g); return leave(OK); }
result cuGraphExecDestroy(struct graph *g) { ENTER (void)c; free(g); return leave(OK); }

result cuGraphLaunch(struct graph *g, struct stream *s)
{
    ENTER STREAM(s)
    if (g == NULL || g->ctx != c || s->capture != NULL)
        return leave(INVALID);
    result r = OK;
    for (int i = 0; i < g->n && r == OK; i++)
        r = put(c, s, g->ops[i]);
    return leave(r);
}

result cuMemcpyHtoDAsync_v2(ptr dst, const void *src, size_t n, struct stream *s)
{
    ENTER STREAM(s)
    if (!inside(c, dst, n))
        return leave(INVALID);
    if (s->capture != NULL && !is_pinned((ptr)(uintptr_t)src, n))
        return leave(900);
    return leave(put(c, s, (struct op){.kind = COPY, .dst = dst, .src = (ptr)(uintptr_t)src, .n = n}));
}

// Every third call answers as a driver does that has no batches, so that both ways are tested.
result cuMemcpyBatchAsync(ptr *to, ptr *from, size_t *sizes, size_t n, void *manners, size_t *first, size_t count,
    size_t *failed, struct stream *s)
{
    ENTER STREAM(s)
    static int calls;
    (void)manners;
    if (__atomic_fetch_add(&calls, 1, __ATOMIC_RELAXED) % 3 == 2)
        return leave(3);
    if (s->capture != NULL || count != 1 || *first != 0)
        return leave(INVALID);
    for (size_t i = 0; i < n; i++) {
        if (!(inside(c, to[i], sizes[i]) && is_pinned(from[i], sizes[i])) &&
            !(inside(c, from[i], sizes[i]) && is_pinned(to[i], sizes[i]))) {
            *failed = i;
            return leave(INVALID);
        }
    }
    result r = OK;
    for (size_t i = 0; i < n && r == OK; i++)
        r = put(c, s, (struct op){.kind = COPY, .dst = to[i], .src = from[i], .n = sizes[i]});
    return leave(r);
}

result cuMemcpyDtoHAsync_v2(void *dst, ptr src, size_t n, struct stream *s)
{
    ENTER STREAM(s)
    if (!inside(c, src, n))
        return leave(INVALID);
    if (s->capture != NULL && !is_pinned((ptr)(uintptr_t)dst, n))
        return leave(900);
    return leave(put(c, s, (struct op){.kind = COPY, .dst = (ptr)(uintptr_t)dst, .src = src, .n = n}));
}

result cuMemcpyDtoDAsync_v2(ptr dst, ptr src, size_t n, struct stream *s)
{
    ENTER STREAM(s)
    if (!inside(c, src, n) || !inside(c, dst, n))
        return leave(INVALID);
    return leave(put(c, s, (struct op){.kind = COPY, .dst = dst, .src = src, .n = n}));
}

result cuMemcpyPeerAsync(ptr dst, struct context *to, ptr src, struct context *from, size_t n, struct stream *s)
{
    ENTER STREAM(s)
    if (!to->alive || !from->alive || !inside(from, src, n) || !inside(to, dst, n))
        return leave(INVALID);
    return leave(put(c, s, (struct op){.kind = COPY, .dst = dst, .src = src, .n = n}));
}

result cuMemsetD8Async(ptr dst, unsigned char v, size_t n, struct stream *s)
{
    ENTER STREAM(s)
    if (!inside(c, dst, n))
        return leave(INVALID);
    return leave(put(c, s, (struct op){.kind = SET, .dst = dst, .v = v, .n = n}));
}

result cuModuleLoadDataEx(void **module, const char *image, unsigned n, int *options, void **values)
{
    ENTER
    (void)n, (void)options, (void)values;
    if (memcmp(image, "\x7f" "ELF", 4) != 0 && memcmp(image, "//", 2) != 0)
        return leave(200);
    *module = c;
    return leave(OK);
}

result cuModuleGetFunction(struct function **f, void *module, const char *name)
{
    ENTER
    if (module != c)
        return leave(BAD_HANDLE);
    *f = calloc(1, sizeof **f);
    snprintf((*f)->name, sizeof (*f)->name, "%s", name);
    return leave(OK);
}

result cuFuncGetAttribute(int *v, int attribute, struct function *f)
{
    *v = attribute == 0 ? strncmp(f->name, "gemm_", 5) == 0 ? 256 : 1024 : 0;
    return OK;
}

result cuFuncSetAttribute(struct function *f, int attribute, int v)
{
    (void)f;
    return attribute == 8 && v <= 227 << 10 ? OK : INVALID;
}

result cuFuncGetParamInfo(struct function *f, size_t i, size_t *offset, size_t *size)
{
    static const struct { const char *name, *sizes; } all[] = {{"fill_u32", "884"}, {"vector_add_f32", "8888"},
        {"checksum", "888"}, {"fused", "844"}};
    for (int k = 0; k < 4; k++)
        if (strcmp(all[k].name, f->name) == 0) {
            if (i >= strlen(all[k].sizes))
                return INVALID;
            *offset = 0;
            *size = all[k].sizes[i] - '0';
            return OK;
        }
    return 801;
}

static uint64_t mix(uint64_t word, uint64_t i)
{
    uint64_t z = word + (i + 1) * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

static float get(ptr at, uint64_t i, int narrow)
{
    uint32_t bits = narrow ? (uint32_t)((uint16_t *)(uintptr_t)at)[i] << 16 : ((uint32_t *)(uintptr_t)at)[i];
    float v;
    memcpy(&v, &bits, 4);
    return v;
}

static result launch(struct context *c, const struct op *o)
{
    const uint64_t *a = o->args;
    if (strcmp(o->f->name, "fill_u32") == 0) {
        if (inside(c, a[0], 4 * a[1]))
            for (uint64_t i = 0; i < a[1]; i++)
                ((uint32_t *)(uintptr_t)a[0])[i] = (uint32_t)a[2];
    } else if (strcmp(o->f->name, "vector_add_f32") == 0) {
        float *v[3];
        for (int i = 0; i < 3; i++) {
            if (!inside(c, a[i], 4 * a[3]))
                return OK;
            v[i] = (float *)(uintptr_t)a[i];
        }
        for (uint64_t i = 0; i < a[3]; i++)
            v[2][i] = v[0][i] + v[1][i];
    } else if (strcmp(o->f->name, "fused") == 0) {
        float of[2];
        for (int i = 0; i < 2; i++)
            memcpy(&of[i], &a[1 + i], 4);
        const volatile float square = of[0] * of[0]; /* rounded */
        if (inside(c, a[0], 4))
            *(float *)(uintptr_t)a[0] = square + of[1];
    } else if (strcmp(o->f->name, "checksum") == 0) {
        uint64_t n = a[1], acc = mix(n, ~0ull - 1);
        if (!inside(c, a[0], n) || !inside(c, a[2], 8))
            return OK;
        for (uint64_t i = 0; i < n; i += 8) {
            uint64_t word = 0;
            memcpy(&word, (char *)(uintptr_t)a[0] + i, n - i < 8 ? n - i : 8);
            acc += mix(word, i / 8);
        }
        *(uint64_t *)(uintptr_t)a[2] += acc;
    } else if (strncmp(o->f->name, "gemm_", 5) == 0) {
        const int narrow = strcmp(o->f->name, "gemm_f32") != 0, out = strcmp(o->f->name, "gemm_bf16") == 0;
        float alpha, beta;
        memcpy(&alpha, &a[11], 4);
        memcpy(&beta, &a[12], 4);
        for (uint64_t i = 0; i < (uint32_t)a[3]; i++)
            for (uint64_t j = 0; j < (uint32_t)a[4]; j++) {
                const uint64_t at = a[2] + (i * a[10] + j) * (out ? 2 : 4);
                float sum = 0, v = 0;
                for (uint64_t l = 0; l < (uint32_t)a[5]; l++)
                    sum += get(a[0], i * a[6] + l * a[7], narrow) * get(a[1], l * a[8] + j * a[9], narrow);
                if (!inside(c, at, out ? 2 : 4))
                    return OK;
                v = alpha * sum + (beta != 0 ? beta * get(at, 0, out) : 0);
                if (out) {
                    uint32_t bits;
                    memcpy(&bits, &v, 4);
                    *(uint16_t *)(uintptr_t)at = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
                } else {
                    *(float *)(uintptr_t)at = v;
                }
            }
    } else {
        return NOT_FOUND;
    }
    return OK;
}

result cuLaunchKernel(struct function *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                      unsigned shared, struct stream *s, void **args, void **extra)
{
    ENTER STREAM(s)
    (void)shared;
    if (gx == 0 || gy != 1 || gz != 1 || bx == 0 || bx > 1024 || by != 1 || bz != 1 || extra != NULL)
        return leave(INVALID);
    struct op o = {.kind = LAUNCH, .f = f};
    const int n = strcmp(f->name, "vector_add_f32") == 0 ? 4 : strncmp(f->name, "gemm_", 5) == 0 ? 13 : 3;
    for (int i = 0; i < n; i++)
        o.args[i] = *(uint64_t *)args[i];
    return leave(put(c, s, o));
}

result cuGetErrorName(result r, const char **name)
{
    static const char *const names[] = {"OK", "CUDA_ERROR_INVALID_VALUE", "CUDA_ERROR_OUT_OF_MEMORY"};
    *name = r < 3 ? names[r] : "CUDA_ERROR_OF_THE_FAKE";
    return OK;
}
