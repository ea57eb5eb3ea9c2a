// NCCL, opened at run time under whatever name it is installed. Its few types are written out here, so that building
// needs no nccl.h.
#ifndef EXO_NCCL_H
#define EXO_NCCL_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

typedef struct exo_nccl exo_nccl;

// exo_nccl_open opens the library and finds its entries; NULL when that fails. It is never closed: its threads may
// outlive a communicator. Environment variables that it reads are set first, unless they are there: see nccl.go. The
// version is 10000*major + 100*minor + patch.
exo_nccl *exo_nccl_open(const char *name, int *version);

// exo_nccl_error_name is the library's text for a result, never NULL.
const char *exo_nccl_error_name(const exo_nccl *lib, int result);

// exo_nccl_init makes a communicator for each of n GPUs, by the driver's numbers. It may take seconds. A result of this
// call and of the calls below is an ncclResult_t, where 0 is success, or the negative of a CUresult.
int exo_nccl_init(const exo_nccl *lib, void **comms, int n, const int *gpus);
int exo_nccl_destroy(const exo_nccl *lib, void *comm);
// exo_nccl_abort ends the work under way too.
int exo_nccl_abort(const exo_nccl *lib, void *comm);
// exo_nccl_state is what has gone wrong behind the calls.
int exo_nccl_state(const exo_nccl *lib, void *comm);

// exo_rank is the part of one GPU: memory and stream of the device's own context, and of the primary context, which is
// the library's.
typedef struct {
    CUcontext own, primary;
    CUstream stream, inner;
    CUevent begin, end; // of own, of primary
    CUdeviceptr staging, at; // of primary, of own
    void *comm;
} exo_rank;

// exo_rank_open makes what a rank holds in the primary context of a GPU, and its events. staging is in bytes. On an
// error, what was made is there for exo_rank_close, which releases it. A NULL own context is not entered any more.
CUresult exo_rank_open(exo_rank *r, int gpu, size_t staging);
CUresult exo_rank_close(exo_rank *r, int gpu);

// exo_nccl_sum and exo_nccl_gather put a call into the streams of n ranks: it begins behind what they hold, and they go
// on behind it. Memory passes through the staging memory, staging bytes at a time. A rank of a sum has count elements
// of 4 or 8 bytes, a rank of a gather has count bytes of its own.
int exo_nccl_sum(const exo_nccl *lib, exo_rank *ranks, int n, size_t count, int element, size_t staging);
int exo_nccl_gather(const exo_nccl *lib, exo_rank *ranks, int n, size_t count, size_t staging);

#endif
