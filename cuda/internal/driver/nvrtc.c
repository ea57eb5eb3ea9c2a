//go:build cuda

#define _GNU_SOURCE
#include "nvrtc.h"

#include <dlfcn.h>
#include <stdlib.h>

struct exo_nvrtc {
    int (*version)(int *major, int *minor);
    int (*create)(exo_program *, const char *source, const char *name, int n, const char *const *headers,
        const char *const *names);
    int (*compile)(exo_program, int n, const char *const *options);
    int (*cubin_size)(exo_program, size_t *);
    int (*cubin)(exo_program, char *);
    int (*log_size)(exo_program, size_t *);
    int (*log)(exo_program, char *);
    int (*destroy)(exo_program *);
    const char *(*error)(int);
};

enum { OUT_OF_MEMORY = 1 };

exo_nvrtc *exo_nvrtc_open(const char *name, int *version)
{
    void *lib = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    if (lib == NULL)
        return NULL;
    exo_nvrtc *n = malloc(sizeof *n);
    if (n == NULL)
        return NULL;
    const struct {
        const char *name;
        void *at;
    } entries[] = {
        {"nvrtcVersion", &n->version},        {"nvrtcCreateProgram", &n->create}, {"nvrtcCompileProgram", &n->compile},
        {"nvrtcGetCUBINSize", &n->cubin_size}, {"nvrtcGetCUBIN", &n->cubin},
            {"nvrtcGetProgramLogSize", &n->log_size},
        {"nvrtcGetProgramLog", &n->log},      {"nvrtcDestroyProgram", &n->destroy}, {"nvrtcGetErrorString", &n->error},
    };
    for (size_t i = 0; i < sizeof entries / sizeof entries[0]; i++) {
        void *at = dlsym(lib, entries[i].name);
        if (at == NULL) { // older than 11.2, where cubins came
            free(n);
            dlclose(lib);
            return NULL;
        }
        *(void **)entries[i].at = at;
    }
    int major = 0, minor = 0;
    if (n->version(&major, &minor) != 0) {
        free(n);
        return NULL;
    }
    *version = 1000 * major + 10 * minor;
    return n;
}

static int take(const exo_nvrtc *lib, exo_program p, int (*size_of)(exo_program, size_t *),
                int (*get)(exo_program, char *), char **data, size_t *size)
{
    (void)lib;
    int r = size_of(p, size);
    if (r != 0 || *size == 0)
        return r;
    *data = calloc(1, *size + 1);
    return *data == NULL ? OUT_OF_MEMORY : get(p, *data);
}

int exo_nvrtc_compile(const exo_nvrtc *lib, const char *source, const char *file, int n, const char *const *options,
                      char **image, size_t *image_size, char **log)
{
    exo_program p = NULL;
    size_t log_size = 0;
    *image = NULL;
    *image_size = 0;
    *log = NULL;
    int r = lib->create(&p, source, file, 0, NULL, NULL);
    if (r != 0)
        return r;
    r = lib->compile(p, n, options);
    take(lib, p, lib->log_size, lib->log, log, &log_size);
    if (r == 0)
        r = take(lib, p, lib->cubin_size, lib->cubin, image, image_size);
    lib->destroy(&p);
    return r;
}

const char *exo_nvrtc_error(const exo_nvrtc *lib, int r) { return lib->error(r); }
