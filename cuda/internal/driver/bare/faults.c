//go:build cuda

// The driver is called through a table of its own, not through the entries of the package driver: one experiment loads
// a second copy of it.
#define _GNU_SOURCE
#include "faults.h"

#include <cuda.h>
#include <dlfcn.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

typedef struct {
    void *lib;
    CUresult (*init)(unsigned);
    CUresult (*count)(int *);
    CUresult (*create)(CUcontext *, unsigned, CUdevice);
    CUresult (*destroy)(CUcontext);
    CUresult (*set)(CUcontext);
    CUresult (*sync)(void);
    CUresult (*retain)(CUcontext *, CUdevice);
    CUresult (*release)(CUdevice);
    CUresult (*reset)(CUdevice);
    CUresult (*load)(CUmodule *, const void *);
    CUresult (*function)(CUfunction *, CUmodule, const char *);
    CUresult (*alloc)(CUdeviceptr *, size_t);
    CUresult (*launch)(CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream,
        void **, void **);
    CUresult (*read)(void *, CUdeviceptr, size_t);
} driver;

static int bind(driver *d, void *lib)
{
    const struct {
        const char *name;
        void *at;
    } entries[] = {
        {"cuInit", &d->init},
        {"cuDeviceGetCount", &d->count},
        {"cuCtxCreate_v2", &d->create},
        {"cuCtxDestroy_v2", &d->destroy},
        {"cuCtxSetCurrent", &d->set},
        {"cuCtxSynchronize", &d->sync},
        {"cuDevicePrimaryCtxRetain", &d->retain},
        {"cuDevicePrimaryCtxRelease_v2", &d->release},
        {"cuDevicePrimaryCtxReset_v2", &d->reset},
        {"cuModuleLoadData", &d->load},
        {"cuModuleGetFunction", &d->function},
        {"cuMemAlloc_v2", &d->alloc},
        {"cuLaunchKernel", &d->launch},
        {"cuMemcpyDtoH_v2", &d->read},
    };
    d->lib = lib;
    if (lib == NULL)
        return -1;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++)
        if ((*(void **)entries[i].at = dlsym(lib, entries[i].name)) == NULL)
            return -1;
    return 0;
}

// run loads the kernels into the current context, launches one and waits; value gets the first word of its buffer.
static CUresult run(const driver *d, const char *ptx, const char *kernel, unsigned long long n, int wait,
    unsigned *value)
{
    CUmodule module;
    CUfunction fn;
    CUdeviceptr p = 0;
    CUresult r = d->load(&module, ptx);
    if (r == CUDA_SUCCESS)
        r = d->function(&fn, module, kernel);
    if (r == CUDA_SUCCESS)
        r = d->alloc(&p, 4096);
    void *args[] = {&p, &n};
    if (r == CUDA_SUCCESS)
        r = d->launch(fn, 1, 1, 1, 32, 1, 1, 0, NULL, args, NULL);
    if (r == CUDA_SUCCESS && wait)
        r = d->sync();
    if (r == CUDA_SUCCESS && value != NULL)
        r = d->read(value, p, sizeof *value);
    return r;
}

// fresh runs a sound kernel in a new context of GPU i; 999 stands for a wrong value.
static CUresult fresh(const driver *d, const char *ptx, int i, CUresult *create)
{
    CUcontext c = NULL;
    unsigned value = 0;
    *create = d->create(&c, 0, i);
    if (*create != CUDA_SUCCESS)
        return *create;
    CUresult r = run(d, ptx, "sound", 4711, 1, &value);
    if (r == CUDA_SUCCESS && value != 4711)
        r = CUDA_ERROR_UNKNOWN;
    d->destroy(c);
    return r;
}

typedef struct {
    const driver *d;
    const char *ptx, *kind;
    CUresult create, fault, destroy;
} job;

static void *break_and_destroy(void *p)
{
    job *j = p;
    CUcontext c = NULL;
    j->create = j->d->create(&c, 0, 0);
    j->fault = run(j->d, j->ptx, j->kind, 1, 1, NULL);
    j->destroy = j->d->destroy(c);
    return NULL;
}

static char *line;
static int left;

static void say(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    int n = vsnprintf(line, left, format, args);
    va_end(args);
    if (n > 0 && n < left) {
        line += n;
        left -= n;
    }
}

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void again(const char *what, const driver *d, const char *ptx, int i)
{
    CUresult create, r = fresh(d, ptx, i, &create);
    say(" %s:create=%d,run=%d", what, create, r);
}

void exo_fault(const char *library, const char *ptx, const char *kind, const char *strategy, char *out, int size)
{
    driver d, e;
    CUcontext one = NULL, two = NULL;
    int gpus = 0;
    line = out;
    left = size;
    out[0] = 0;
    if (bind(&d, dlopen(library, RTLD_NOW | RTLD_GLOBAL)) != 0) {
        say(" no driver");
        return;
    }
    say(" init=%d", d.init(0));
    d.count(&gpus);

    if (strcmp(strategy, "thread") == 0) { // the broken context was never current on the thread that goes on
        job j = {&d, ptx, kind};
        pthread_t t;
        if (pthread_create(&t, NULL, break_and_destroy, &j) != 0 || pthread_join(t, NULL) != 0)
            say(" no thread");
        say(" create=%d fault=%d destroy=%d", j.create, j.fault, j.destroy);
        again("fresh", &d, ptx, 0);
        return;
    }
    if (strcmp(strategy, "primary") == 0) {
        say(" retain=%d", d.retain(&one, 0));
        d.set(one);
        say(" fault=%d", run(&d, ptx, kind, 1, 1, NULL));
        d.set(NULL);
        say(" reset=%d release=%d", d.reset(0), d.release(0));
        say(" retain=%d", d.retain(&one, 0));
        unsigned value = 0;
        CUresult r = d.set(one);
        say(" set=%d run=%d", r, run(&d, ptx, "sound", 4711, 1, &value));
        again("fresh", &d, ptx, 0);
        return;
    }
    if (strcmp(strategy, "hang") == 0) { // does destroying a context wait for a kernel of 3 s?
        CUresult r = d.create(&one, 0, 0);
        say(" create=%d launch=%d", r, run(&d, ptx, "hang", 3000000000ull, 0, NULL));
        const double start = now();
        r = d.destroy(one);
        say(" destroy=%d after %.2f s", r, now() - start);
        again("fresh", &d, ptx, 0);
        say(" after %.2f s", now() - start);
        return;
    }

    if (strcmp(strategy, "two") == 0 || strcmp(strategy, "two-late") == 0)
        say(" create2=%d", d.create(&two, 0, 0));
    if (strcmp(strategy, "gpus") == 0 && gpus > 1)
        say(" create2=%d", d.create(&two, 0, 1));
    CUresult r = d.create(&one, 0, 0);
    say(" create=%d fault=%d", r, run(&d, ptx, kind, 1, 1, NULL));
    if (strcmp(strategy, "alive") == 0) { // the broken context is left as it is
        again("fresh", &d, ptx, 0);
        return;
    }
    d.set(NULL);
    say(" destroy=%d", d.destroy(one));
    if (two != NULL) {
        r = d.set(two);
        say(" other:set=%d,sync=%d,run=%d", r, d.sync(), run(&d, ptx, "sound", 1, 1, NULL));
        d.set(NULL);
    }
    if (strcmp(strategy, "two-late") == 0)
        again("before", &d, ptx, 0);
    if (two != NULL)
        say(" destroy2=%d", d.destroy(two));
    if (strcmp(strategy, "gpus") == 0 && gpus > 1)
        again("gpu1", &d, ptx, 1);
    if (strcmp(strategy, "wait") == 0)
        sleep(3);
    if (strcmp(strategy, "reset") == 0) {
        CUcontext primary;
        say(" reset=%d", d.reset(0));
        say(" retain=%d", d.retain(&primary, 0));
        say(" reset=%d", d.reset(0));
    }
    again("fresh", &d, ptx, 0);
    if (strcmp(strategy, "reload") == 0) {
        say(" close=%d", dlclose(d.lib));
        void *still = dlopen(library, RTLD_NOW | RTLD_NOLOAD);
        say(" still=%d", still != NULL);
        if (bind(&e, dlopen(library, RTLD_NOW | RTLD_GLOBAL)) == 0) {
            say(" init=%d", e.init(0));
            again("reloaded", &e, ptx, 0);
        }
    }
    if (strcmp(strategy, "namespace") == 0) { // a second copy of the driver beside the first
        void *copy = dlmopen(LM_ID_NEWLM, library, RTLD_NOW);
        if (bind(&e, copy) != 0) {
            const char *why = dlerror();
            say(" dlmopen: %s", why != NULL ? why : "entries are missing");
            return;
        }
        say(" init=%d", e.init(0));
        again("copy", &e, ptx, 0);
        again("copy-again", &e, ptx, 0);
    }
}

int exo_sound(const char *library, const char *ptx, int *result)
{
    driver d;
    CUresult create;
    if (bind(&d, dlopen(library, RTLD_NOW | RTLD_GLOBAL)) != 0)
        return 1000;
    if ((*result = d.init(0)) != 0)
        return 1001;
    *result = fresh(&d, ptx, 0, &create);
    return *result == 0 ? 0 : 1002;
}
