// NCCL for tests without a GPU, over the driver of fakecuda.c: the calls that a collective makes, done when their group
// ends. It is strict: memory and streams belong to a GPU's primary context, which is the current one, all ranks of a
// group make the same call, and a communicator is used by nobody after its end. The environment variable FAKE_NCCL has
// it fail: "start", "call", "end", or "async", behind a call.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OK = 0, UNHANDLED = 1, SYSTEM = 2, ARGUMENT = 4, USAGE = 5, REMOTE = 6 };
enum { U8 = 1, U32 = 3, U64 = 5 };
enum { MOST = 16 };

struct comm { int gpu, rank, alive, calls; struct world *of; };
struct world { int n; struct comm comms[MOST]; };
struct op { struct comm *c; const char *from; char *to; size_t n; int type, gather; };

static __thread struct op ops[MOST];
static __thread int count, depth;
static int (*primary)(int, void *, unsigned long long, size_t);

static int fails(const char *how)
{
    const char *v = getenv("FAKE_NCCL");
    return v != NULL && strcmp(v, how) == 0;
}

static int is(const char *name, const char *value)
{
    const char *v = getenv(name);
    return v != NULL && strcmp(v, value) == 0;
}

int ncclGetVersion(int *v) { *v = 22803; return OK; }
const char *ncclGetErrorString(int r) { return r == OK ? "no error" : "an error of the fake"; }

int ncclCommInitAll(struct comm **out, int n, const int *gpus)
{
    void *driver = dlopen(getenv("EXOSWARM_LIBCUDA"), RTLD_NOW);
    primary = (int (*)(int, void *, unsigned long long, size_t))dlsym(driver, "fake_primary");
    if (fails("start"))
        return SYSTEM;
    if (primary == NULL || n < 1 || n > MOST || !is("NCCL_NVLS_ENABLE", "0") || !is("NCCL_SOCKET_IFNAME", "=lo"))
        return USAGE;
    struct world *w = calloc(1, sizeof *w);
    w->n = n;
    for (int i = 0; i < n; i++) {
        for (int j = 0; j < i; j++)
            if (gpus[i] == gpus[j])
                return USAGE;
        w->comms[i] = (struct comm){gpus[i], i, 1, 0, w};
        out[i] = &w->comms[i];
    }
    return OK;
}

// The end of a communicator leaves its memory, so that a late use is seen.
int ncclCommDestroy(struct comm *c)
{
    if (c == NULL || !c->alive)
        return ARGUMENT;
    c->alive = 0;
    return OK;
}

int ncclCommAbort(struct comm *c) { return ncclCommDestroy(c); }

int ncclCommGetAsyncError(struct comm *c, int *state)
{
    if (c == NULL || !c->alive)
        return ARGUMENT;
    *state = fails("async") && c->calls > 0 && c->rank == c->of->n - 1 ? REMOTE : OK;
    return OK;
}

int ncclGroupStart(void) { depth++; return OK; }

static int put(struct op o, void *stream, size_t reach)
{
    if (fails("call"))
        return UNHANDLED;
    if (o.c == NULL || !o.c->alive || depth != 1 || count == MOST)
        return USAGE;
    if (!primary(o.c->gpu, stream, (uintptr_t)o.from, o.n) || !primary(o.c->gpu, stream, (uintptr_t)o.to, reach))
        return ARGUMENT;
    ops[count++] = o;
    return OK;
}

int ncclAllReduce(const void *from, void *to, size_t n, int type, int op, struct comm *c, void *stream)
{
    if (op != 0 || (type != U32 && type != U64))
        return ARGUMENT;
    n *= type == U32 ? 4 : 8;
    return put((struct op){c, from, to, n, type, 0}, stream, n);
}

int ncclAllGather(const void *from, void *to, size_t n, int type, struct comm *c, void *stream)
{
    if (type != U8 || c == NULL)
        return ARGUMENT;
    return put((struct op){c, from, to, n, type, 1}, stream, n * c->of->n);
}

int ncclGroupEnd(void)
{
    const int n = count;
    if (--depth != 0)
        return USAGE;
    count = 0;
    if (fails("end"))
        return UNHANDLED;
    if (n == 0)
        return OK;
    if (n != ops[0].c->of->n)
        return USAGE;
    for (int i = 0; i < n; i++)
        if (ops[i].c->of != ops[0].c->of || ops[i].c->rank != i || ops[i].n != ops[0].n || ops[i].type != ops[0].type ||
            ops[i].gather != ops[0].gather)
            return USAGE;
    const size_t bytes = ops[0].n;
    char *all = malloc(bytes * n + 1);
    for (int i = 0; i < n; i++)
        memcpy(all + bytes * i, ops[i].from, bytes);
    for (int i = 0; !ops[0].gather && i + 1 < n; i++) // into the first
        for (size_t k = 0; k < bytes; k += ops[0].type == U32 ? 4 : 8)
            if (ops[0].type == U32)
                *(uint32_t *)(all + k) += *(uint32_t *)(all + bytes * (i + 1) + k);
            else
                *(uint64_t *)(all + k) += *(uint64_t *)(all + bytes * (i + 1) + k);
    for (int i = 0; i < n; i++) {
        memcpy(ops[i].to, all, ops[0].gather ? bytes * n : bytes);
        ops[i].c->calls++;
    }
    free(all);
    return OK;
}
