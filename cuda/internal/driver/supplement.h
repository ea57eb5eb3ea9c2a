// What gorgonia.org/cu lacks, and the hot calls, each one C entry: it makes the context current on whatever thread it
// runs on, does its work, and returns the first CUresult that is not success.
#ifndef EXO_SUPPLEMENT_H
#define EXO_SUPPLEMENT_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

enum { EXO_MAX_ARGS = 64 };

// exo_context returns the context that is current on this thread.
CUcontext exo_context(void);

// exo_shape is the shape of a launch.
typedef struct {
    unsigned int grid_x, grid_y, grid_z, block_x, block_y, block_z, shared;
} exo_shape;

// exo_launch starts a kernel of n arguments, each the low bytes of a 64-bit value.
CUresult exo_launch(CUcontext ctx, CUfunction fn, exo_shape shape, CUstream stream, const uint64_t *values, int n);

// exo_write and exo_read copy between any host memory and the device on stream, and wait for it. Up to EXO_STAGING
// bytes go through staging, pinned memory of that size which nobody else uses meanwhile. exo_fill waits likewise.
CUresult exo_write(CUcontext ctx, CUstream stream, CUdeviceptr dst, const void *src, size_t n, void *staging);
CUresult exo_read(CUcontext ctx, CUstream stream, void *dst, CUdeviceptr src, size_t n, void *staging);
CUresult exo_fill(CUcontext ctx, CUstream stream, CUdeviceptr dst, unsigned char value, size_t n);

enum { EXO_STAGING = 128 << 10 };

// exo_pin maps n bytes of host memory, pins them for every context of the process, and finds their address on the
// device.
// n becomes what was mapped. The memory is mapped here and not by the driver, so that it stays where it is when a
// context is destroyed after a fault. exo_unpin with a NULL context only gives it back to the system.
CUresult exo_pin(CUcontext ctx, size_t *n, void **host, CUdeviceptr *mapped);
CUresult exo_unpin(CUcontext ctx, void *host, size_t n);

// The copies of streams: they return at once. exo_copy is between contexts, or inside one when both are the same.
CUresult exo_upload(CUcontext ctx, CUstream stream, CUdeviceptr dst, uint64_t src, size_t n);
CUresult exo_download(CUcontext ctx, CUstream stream, uint64_t dst, CUdeviceptr src, size_t n);
CUresult exo_copy(CUcontext ctx, CUstream stream, CUdeviceptr dst, CUcontext dst_ctx, CUdeviceptr src,
                  CUcontext src_ctx, size_t n);
// exo_befriend lets copies between two contexts of different GPUs go from memory to memory, where the machine can;
// where it cannot, they go by way of the host, and it is no error.
void exo_befriend(CUcontext ctx, CUcontext peer);
// exo_batch copies many pieces between the device (on) and pinned memory (off) by one call of the driver, in no order
// among themselves. CUDA_ERROR_NOT_SUPPORTED: this driver, or this stream, has no such call, and nothing was copied.
CUresult exo_batch(CUcontext ctx, CUstream stream, int up, uint64_t *on, uint64_t *off, uint64_t *size, int n);
// exo_move copies many pieces between the device (on) and pinned memory (off), in order with streams[0] as a whole,
// over the first lanes of the streams at once, each with an event of its own.
enum { EXO_MAX_LANES = 4 };
CUresult exo_move(CUcontext ctx, CUstream *streams, CUevent *events, int lanes, int up, const uint64_t *on,
                  const uint64_t *off, const uint64_t *size, int n);
CUresult exo_memset(CUcontext ctx, CUstream stream, CUdeviceptr dst, unsigned char value, size_t n);

// exo_stream_sync waits inside the driver.
CUresult exo_stream_sync(CUcontext ctx, CUstream stream);
CUresult exo_stream_destroy(CUcontext ctx, CUstream stream);

// exo_event_record and exo_event_wait put a mark into a stream, and a wait for one, which may be of another context.
CUresult exo_event_create(CUcontext ctx, CUevent *event);
// exo_event_create_plain makes one without timing, which costs the device less.
CUresult exo_event_create_plain(CUcontext ctx, CUevent *event);
CUresult exo_event_query(CUcontext ctx, CUevent event);
CUresult exo_event_destroy(CUcontext ctx, CUevent event);
CUresult exo_event_record(CUcontext ctx, CUevent event, CUstream stream);
CUresult exo_event_wait(CUcontext ctx, CUstream stream, CUevent event);
CUresult exo_event_time(CUcontext ctx, float *ms, CUevent from, CUevent to);
// exo_event_poll is exo_wait for an event.
CUresult exo_event_poll(CUcontext ctx, CUevent event, int64_t spin_ns, int64_t limit_ns);

// exo_capture_begin and exo_capture_end turn what goes into the stream between them into a graph that can be launched.
// exec is NULL after an error.
CUresult exo_capture_begin(CUcontext ctx, CUstream stream);
CUresult exo_capture_end(CUcontext ctx, CUstream stream, CUgraphExec *exec);
CUresult exo_graph_launch(CUcontext ctx, CUgraphExec exec, CUstream stream);
CUresult exo_graph_destroy(CUcontext ctx, CUgraphExec exec);

// exo_await polls a word of mapped memory until it is want. It queries the stream now and then: when the stream is
// done and the word is another one, *done is 1 and the result CUDA_SUCCESS. After limit_ns it gives up as exo_wait
// does.
CUresult exo_await(CUcontext ctx, CUstream stream, uint64_t word, uint32_t want, int64_t spin_ns, int64_t limit_ns,
    int *done);

// exo_wait waits for the stream: it polls for spin_ns, then every 20 us, and gives up with CUDA_ERROR_NOT_READY after
// limit_ns.
CUresult exo_wait(CUcontext ctx, CUstream stream, int64_t spin_ns, int64_t limit_ns);

// exo_module_load loads a cubin or PTX text. What the driver's compiler says goes into log, as a C string.
CUresult exo_module_load(CUcontext ctx, CUmodule *module, const void *image, char *log, size_t size);

// exo_function finds a kernel and lets it use as much dynamic shared memory as the chip has: shared_optin less what it
// takes statically. attributes gets the threads that a block of it may have, that dynamic shared memory, its registers
// and its local memory a thread in bytes.
CUresult exo_function(CUcontext ctx, CUfunction *fn, CUmodule module, const char *name, int shared_optin,
    int attributes[4]);

// exo_best_block is the size of block with which a kernel without dynamic shared memory fills the chip best, 0 where
// the driver does not say.
int exo_best_block(CUcontext ctx, CUfunction fn);
// exo_param_size is the size of a parameter of the compiled kernel: CUDA_ERROR_INVALID_VALUE behind the last one,
// another error on a driver that does not know.
CUresult exo_param_size(CUcontext ctx, CUfunction fn, int i, size_t *size);

// exo_error_name is the constant's name, never NULL.
const char *exo_error_name(CUresult r);

#endif
