//go:build cuda

// gorgonia.org/cu links libcuda.so.1 and calls cuInit before main, and where that fails it exits the process: a binary
// that contains it could neither fall back to the host device nor say what is missing. So the entries of the driver
// that it and the supplement use are defined here, each as a jump through a pointer, and win over the library's at link
// time; with --as-needed the binary does not even name the library. Before exo_driver_init has found the driver, the
// pointers lead to a function that answers CUDA_ERROR_NOT_INITIALIZED. cuInit itself always answers success: the real
// one is called by exo_driver_init, when a device is opened.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdlib.h>

#include "libcuda.h"

#if !defined(__linux__) || !defined(__x86_64__)
#error "the CUDA device is made for Linux on amd64: build without the tag cuda on other platforms"
#endif

enum { NOT_INITIALIZED = 3 };

static int missing(void) { return NOT_INITIALIZED; }

// A tail jump keeps registers and stack, so one form serves every signature.
#define EXO_ENTRY(name)                                                      \
    __attribute__((visibility("hidden"))) void *exo_at_##name = (void *)missing; \
    __asm__(".text\n.p2align 4\n.globl " #name "\n.type " #name ",@function\n" \
            #name ":\n\tendbr64\n\tjmp *exo_at_" #name "(%rip)\n.size " #name ", .-" #name "\n");
#include "entries.h"
#undef EXO_ENTRY

#define EXO_ENTRY(name) {#name, &exo_at_##name},
static const struct {
    const char *name;
    void **at;
} entries[] = {
#include "entries.h"
};
#undef EXO_ENTRY

static int succeed(unsigned int flags)
{
    (void)flags;
    return 0;
}

// cuInit is called by the init function of the Go package before anything else runs.
__attribute__((constructor)) static void before_init(void) { exo_at_cuInit = (void *)succeed; }

static int result = -1;

static void init(void)
{
    const char *name = getenv("EXOSWARM_LIBCUDA");
    void *lib = dlopen(name != NULL && name[0] != 0 ? name : "libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
    if (lib == NULL)
        return;
    int (*start)(unsigned int) = (int (*)(unsigned int))dlsym(lib, "cuInit");
    if (start == NULL)
        return;
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *at = dlsym(lib, entries[i].name);
        if (at != NULL && *entries[i].at != (void *)succeed)
            *entries[i].at = at;
    }
    result = start(0);
}

int exo_driver_init(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, init);
    return result;
}
