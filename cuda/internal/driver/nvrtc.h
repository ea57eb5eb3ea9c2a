// NVRTC, opened at run time under whatever name it is installed. Its few types are written out here, so that building
// needs no nvrtc.h.
#ifndef EXO_NVRTC_H
#define EXO_NVRTC_H

#include <stddef.h>

typedef struct exo_nvrtc exo_nvrtc;
typedef struct exo_program *exo_program;

// exo_nvrtc_open opens the library and finds its entries; NULL when that fails. It is never closed: its threads may
// outlive a program. The version is 1000*major + 10*minor, as CUDA counts.
exo_nvrtc *exo_nvrtc_open(const char *name, int *version);

// exo_nvrtc_compile compiles source to a cubin (image) and a log, both from malloc and owned by the caller, both
// possibly NULL. The result is an nvrtcResult. Calls may run at once.
int exo_nvrtc_compile(const exo_nvrtc *lib, const char *source, const char *file, int n, const char *const *options,
                      char **image, size_t *image_size, char **log);

// exo_nvrtc_error is the name of an nvrtcResult.
const char *exo_nvrtc_error(const exo_nvrtc *lib, int r);

#endif
