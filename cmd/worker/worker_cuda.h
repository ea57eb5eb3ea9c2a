/*
 * The library libexoswarm_worker.so: memory of a device, models, and tokens of a model. docs/worker.md describes it.
 *
 * A handle has the form of a pointer and is a number: no memory is there. NULL is no handle. A freed handle stays
 * invalid, and every call refuses it. Handles have one kind each, and the functions tell them apart.
 *
 * All functions may be called from several threads at once, and from no signal handler. A function that frees waits
 * for calls that use the handle. After fork, a child may call nothing but exec: every call of it is refused.
 *
 * A call that fails returns a code, or stores it where error_code is not NULL. cuda_error_message has the text of the
 * code, and cuda_last_error one sentence about the last call of the thread that failed.
 */
#ifndef EXOSWARM_WORKER_CUDA_H
#define EXOSWARM_WORKER_CUDA_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#pragma GCC visibility push(default)
#ifdef __cplusplus
extern "C" {
#endif

enum CudaErrorCode {
	CUDA_SUCCESS = 0,
	CUDA_ERROR_DEVICE_NOT_FOUND = 1,
	CUDA_ERROR_OUT_OF_MEMORY = 2,
	CUDA_ERROR_INVALID_DEVICE = 3,
	CUDA_ERROR_MODEL_LOAD_FAILED = 4,
	CUDA_ERROR_INFERENCE_FAILED = 5,
	CUDA_ERROR_VRAM_RESIDENCY_FAILED = 6,
	CUDA_ERROR_KERNEL_LAUNCH_FAILED = 7,
	CUDA_ERROR_INVALID_PARAMETER = 8,
	CUDA_ERROR_MEMCPY_FAILED = 9,
	CUDA_ERROR_INITIALIZATION_FAILED = 10,
	CUDA_ERROR_QUERY_FAILED = 11,
	CUDA_ERROR_CANCELLED = 12,
	CUDA_ERROR_FORKED = 13,
	CUDA_ERROR_UNKNOWN = 99
};

/* The host device. In a library without CUDA, device 0 is the host device too. */
#define CUDA_HOST_DEVICE (-1)

/* The text of a code. It is never NULL and never freed. */
const char *cuda_error_message(int code);
/* What the last call of this thread that failed says. It is valid until the next call of this thread that fails. */
const char *cuda_last_error(void);

/* Context. */

typedef struct CudaContext CudaContext;

/* Opens a device. Contexts of one device share it, and the last one that is freed closes it. */
CudaContext *cuda_init(int gpu_device, int *error_code);
/* Frees a context with its models and inferences. NULL is no error. cuda_destroy is the same. */
int cuda_context_free(CudaContext *ctx);
int cuda_destroy(CudaContext *ctx);
/* The number of GPUs; 1 in a library without CUDA, for the host device. */
int cuda_get_device_count(void);

/* Model. */

typedef struct CudaModel CudaModel;

typedef struct CudaModelInfo {
	char name[256];        /* the last part of the path */
	char architecture[32]; /* llama, mistral, qwen2 or qwen3 */
	uint32_t context_length;
	uint32_t vocab_size;
	uint32_t embedding_length;
	uint32_t num_layers;
	uint32_t num_heads;
	uint32_t num_kv_heads;
	uint64_t vram_bytes; /* of the weights */
} CudaModelInfo;

/*
 * Loads a GGUF file, or a folder with config.json, safetensors and tokenizer.json. All weights must fit into the memory
 * of the device. vram_bytes_used may be NULL.
 */
CudaModel *cuda_load_model(CudaContext *ctx, const char *model_path, uint64_t *vram_bytes_used, int *error_code);
/* Frees a model with its inferences. NULL is no error. cuda_unload_model is the same. */
int cuda_model_free(CudaModel *model);
int cuda_unload_model(CudaModel *model);
int cuda_model_info(CudaModel *model, CudaModelInfo *info);
/* The bytes of the weights in device memory; 0 if the handle is invalid. */
uint64_t cuda_get_vram_usage(CudaModel *model);
uint64_t cuda_model_get_vram_usage(CudaModel *model);

/* Inference. */

typedef struct InferenceResult InferenceResult;

/*
 * Begins to continue a prompt (UTF-8) by max_tokens tokens at most. Memory for all of them is allocated at once.
 * temperature 0 takes the likeliest token. The same model, prompt, temperature and seed give the same tokens. Texts of
 * special tokens in the prompt are these tokens.
 */
InferenceResult *cuda_inference_start(CudaModel *model, const char *prompt, int max_tokens, float temperature,
	uint64_t seed, int *error_code);
/*
 * Returns true and the text of the next token, or false at the end and after an error. The text ends with 0 and has
 * whole characters alone, so it may be empty. token_index counts from 0 and may be NULL. A buffer that is too small is
 * CUDA_ERROR_INVALID_PARAMETER, and the next call has the same token. cuda_inference_next_token is the same.
 */
bool cuda_inference_next(InferenceResult *result, char *token_out, int token_buffer_size, int *token_index,
	int *error_code);
bool cuda_inference_next_token(InferenceResult *result, char *token_out, int token_buffer_size, int *token_index,
	int *error_code);
/* Ends an inference: a call of cuda_inference_next in progress and later ones fail with CUDA_ERROR_CANCELLED. */
int cuda_inference_cancel(InferenceResult *result);
/* Cancels an inference and frees it. NULL is no error. */
int cuda_inference_free(InferenceResult *result);

/* Health. */

/*
 * Compares the checksums of all weights in device memory with the checksums at their load. If they differ, it returns
 * false with CUDA_ERROR_VRAM_RESIDENCY_FAILED, and so does each later cuda_inference_next: free and load the model.
 */
bool cuda_check_vram_residency(CudaModel *model, int *error_code);
/* The bytes of memory that this process has allocated on the device of a context; 0 if the handle is invalid. */
uint64_t cuda_get_process_vram_usage(CudaContext *ctx);
/* Reports whether the device of a context works. If it does not, cuda_last_error has the reasons. */
bool cuda_check_device_health(CudaContext *ctx, int *error_code);

/*
 * Device memory. vram_malloc gives a handle; handle + k names byte k of the memory. Bounds are checked before each
 * copy. A copy of 0 bytes within the bounds does nothing. New memory is set to 0.
 */

/* Chooses the device of vram_malloc and vram_get_info of this thread, which is 0 at first. */
int vram_set_device(int device);
int vram_get_device_count(int *count);
int vram_get_info(size_t *free_bytes, size_t *total_bytes);
/* Allocates bytes, at least 1. After an error *ptr is NULL. */
int vram_malloc(void **ptr, size_t bytes);
/* Frees memory. NULL is no error; memory that was freed before is one, and changes nothing. */
int vram_free(void *ptr);
int vram_memcpy_h2d(void *dst, const void *src, size_t bytes);
int vram_memcpy_d2h(void *dst, const void *src, size_t bytes);

#ifdef __cplusplus
}
#endif
#pragma GCC visibility pop

#endif
