//go:build cgo

// The functions of worker_cuda.h. They check pointers, remember errors by thread, and call exports.go.

#include "worker_cuda.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>

#include "_cgo_export.h"

#define TEXT 1024

static __thread char last[TEXT];
static __thread int device;

// The runtime of Go has one thread in a child of fork, so a call of Go would wait for ever.
static volatile int forked;

static void child(void) { forked = 1; }

__attribute__((constructor)) static void watch_fork(void) { pthread_atfork(NULL, NULL, child); }

const char *cuda_error_message(int code) {
	switch (code) {
	case CUDA_SUCCESS:
		return "success";
	case CUDA_ERROR_DEVICE_NOT_FOUND:
		return "no GPU can be used";
	case CUDA_ERROR_OUT_OF_MEMORY:
		return "out of device memory";
	case CUDA_ERROR_INVALID_DEVICE:
		return "there is no device of this number";
	case CUDA_ERROR_MODEL_LOAD_FAILED:
		return "the model cannot be loaded";
	case CUDA_ERROR_INFERENCE_FAILED:
		return "the inference has failed";
	case CUDA_ERROR_VRAM_RESIDENCY_FAILED:
		return "the weights in device memory are not the weights of the model";
	case CUDA_ERROR_KERNEL_LAUNCH_FAILED:
		return "a kernel has failed: the device must be opened again";
	case CUDA_ERROR_INVALID_PARAMETER:
		return "invalid parameter";
	case CUDA_ERROR_MEMCPY_FAILED:
		return "a copy has failed";
	case CUDA_ERROR_INITIALIZATION_FAILED:
		return "the device cannot be opened";
	case CUDA_ERROR_QUERY_FAILED:
		return "the device does not answer";
	case CUDA_ERROR_CANCELLED:
		return "the inference was cancelled";
	case CUDA_ERROR_FORKED:
		return "a child of fork cannot use the library: load it in the child, or call exec";
	case CUDA_ERROR_UNKNOWN:
		return "unknown error";
	}
	return "unknown code";
}

const char *cuda_last_error(void) { return last; }

static int refuse(int code, const char *format, ...) {
	va_list args;
	va_start(args, format);
	vsnprintf(last, TEXT, format, args);
	va_end(args);
	return code;
}

// The code of a call of Go, or of one that is refused.
static int begin(const char *call) {
	return forked ? refuse(CUDA_ERROR_FORKED, "%s: %s", call, cuda_error_message(CUDA_ERROR_FORKED)) : CUDA_SUCCESS;
}

static int null(const char *call, const char *name) {
	return refuse(CUDA_ERROR_INVALID_PARAMETER, "%s: %s is NULL", call, name);
}

static int store(int code, int *error_code) {
	if (error_code != NULL) *error_code = code;
	return code;
}

#define HANDLE(p) ((uint64_t)(uintptr_t)(p))
#define POINTER(h) ((void *)(uintptr_t)(h))

CudaContext *cuda_init(int gpu_device, int *error_code) {
	uint64_t handle = 0;
	int code = begin(__func__);
	if (code == CUDA_SUCCESS) code = workerInit(gpu_device, &handle, last);
	store(code, error_code);
	return POINTER(handle);
}

int cuda_context_free(CudaContext *ctx) {
	int code = begin(__func__);
	return code != CUDA_SUCCESS || ctx == NULL ? code : workerFreeContext(HANDLE(ctx), last);
}

int cuda_destroy(CudaContext *ctx) __attribute__((alias("cuda_context_free")));

int cuda_get_device_count(void) {
	int count = 0;
	return vram_get_device_count(&count) == CUDA_SUCCESS ? count : 0;
}

CudaModel *cuda_load_model(CudaContext *ctx, const char *model_path, uint64_t *vram_bytes_used, int *error_code) {
	uint64_t handle = 0, bytes = 0;
	int code = begin(__func__);
	if (code == CUDA_SUCCESS && model_path == NULL) code = null(__func__, "model_path");
	if (code == CUDA_SUCCESS) code = workerLoadModel(HANDLE(ctx), (char *)model_path, &handle, &bytes, last);
	if (vram_bytes_used != NULL) *vram_bytes_used = bytes;
	store(code, error_code);
	return POINTER(handle);
}

int cuda_model_free(CudaModel *model) {
	int code = begin(__func__);
	return code != CUDA_SUCCESS || model == NULL ? code : workerFreeModel(HANDLE(model), last);
}

int cuda_unload_model(CudaModel *model) __attribute__((alias("cuda_model_free")));

int cuda_model_info(CudaModel *model, CudaModelInfo *info) {
	int code = begin(__func__);
	if (code == CUDA_SUCCESS && info == NULL) code = null(__func__, "info");
	return code != CUDA_SUCCESS ? code : workerModelInfo(HANDLE(model), info, last);
}

uint64_t cuda_get_vram_usage(CudaModel *model) {
	CudaModelInfo info;
	return cuda_model_info(model, &info) == CUDA_SUCCESS ? info.vram_bytes : 0;
}

uint64_t cuda_model_get_vram_usage(CudaModel *model) __attribute__((alias("cuda_get_vram_usage")));

InferenceResult *cuda_inference_start(CudaModel *model, const char *prompt, int max_tokens, float temperature,
	uint64_t seed, int *error_code) {
	uint64_t handle = 0;
	int code = begin(__func__);
	if (code == CUDA_SUCCESS && prompt == NULL) code = null(__func__, "prompt");
	if (code == CUDA_SUCCESS) {
		code = workerStart(HANDLE(model), (char *)prompt, max_tokens, temperature, seed, &handle, last);
	}
	store(code, error_code);
	return POINTER(handle);
}

bool cuda_inference_next(InferenceResult *result, char *token_out, int token_buffer_size, int *token_index,
	int *error_code) {
	int index = 0, more = 0, code = begin(__func__);
	if (code == CUDA_SUCCESS && token_out == NULL) code = null(__func__, "token_out");
	if (code == CUDA_SUCCESS && token_buffer_size < 1) {
		code = refuse(CUDA_ERROR_INVALID_PARAMETER, "%s: token_buffer_size is %d: use 1 or more", __func__,
			token_buffer_size);
	}
	if (code == CUDA_SUCCESS) {
		*token_out = 0;
		code = workerNext(HANDLE(result), token_out, token_buffer_size, &index, &more, last);
	}
	if (more && token_index != NULL) *token_index = index;
	store(code, error_code);
	return more;
}

bool cuda_inference_next_token(InferenceResult *result, char *token_out, int token_buffer_size, int *token_index,
	int *error_code) __attribute__((alias("cuda_inference_next")));

int cuda_inference_cancel(InferenceResult *result) {
	int code = begin(__func__);
	return code != CUDA_SUCCESS ? code : workerCancel(HANDLE(result), last);
}

int cuda_inference_free(InferenceResult *result) {
	int code = begin(__func__);
	return code != CUDA_SUCCESS || result == NULL ? code : workerFreeInference(HANDLE(result), last);
}

bool cuda_check_vram_residency(CudaModel *model, int *error_code) {
	int code = begin(__func__);
	if (code == CUDA_SUCCESS) code = workerCheckResidency(HANDLE(model), last);
	return store(code, error_code) == CUDA_SUCCESS;
}

uint64_t cuda_get_process_vram_usage(CudaContext *ctx) {
	uint64_t bytes = 0;
	if (begin(__func__) == CUDA_SUCCESS) workerUsage(HANDLE(ctx), &bytes, last);
	return bytes;
}

bool cuda_check_device_health(CudaContext *ctx, int *error_code) {
	int code = begin(__func__);
	if (code == CUDA_SUCCESS) code = workerCheckHealth(HANDLE(ctx), last);
	return store(code, error_code) == CUDA_SUCCESS;
}

int vram_set_device(int number) {
	int code = begin(__func__);
	if (code == CUDA_SUCCESS) code = workerCheckDevice(number, last);
	if (code == CUDA_SUCCESS) device = number;
	return code;
}

int vram_get_device_count(int *count) {
	int code = begin(__func__);
	if (code != CUDA_SUCCESS) return code;
	if (count == NULL) return null(__func__, "count");
	*count = workerDevices();
	return CUDA_SUCCESS;
}

int vram_get_info(size_t *free_bytes, size_t *total_bytes) {
	uint64_t free = 0, total = 0;
	int code = begin(__func__);
	if (code != CUDA_SUCCESS) return code;
	if (free_bytes == NULL) return null(__func__, "free_bytes");
	if (total_bytes == NULL) return null(__func__, "total_bytes");
	code = workerInfo(device, &free, &total, last);
	*free_bytes = free;
	*total_bytes = total;
	return code;
}

int vram_malloc(void **ptr, size_t bytes) {
	uint64_t handle = 0;
	int code = begin(__func__);
	if (ptr == NULL) return code == CUDA_SUCCESS ? null(__func__, "ptr") : code;
	if (code == CUDA_SUCCESS) code = workerMalloc(device, bytes, &handle, last);
	*ptr = POINTER(handle);
	return code;
}

int vram_free(void *ptr) {
	int code = begin(__func__);
	return code != CUDA_SUCCESS || ptr == NULL ? code : workerFree(HANDLE(ptr), last);
}

int vram_memcpy_h2d(void *dst, const void *src, size_t bytes) {
	int code = begin(__func__);
	return code != CUDA_SUCCESS ? code : workerWrite(HANDLE(dst), (void *)src, bytes, last);
}

int vram_memcpy_d2h(void *dst, const void *src, size_t bytes) {
	int code = begin(__func__);
	return code != CUDA_SUCCESS ? code : workerRead(dst, HANDLE(src), bytes, last);
}
