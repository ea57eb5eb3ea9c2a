// The functions of device memory: what they promise, what they refuse, several threads, and a child of fork.
// Usage: residency CYCLES

#include <pthread.h>
#include <stdint.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"
#include "worker_cuda.h"

static void refusals(void) {
	void *p = &p, *other;
	char data[64] = {0};
	int count = -1, code = -1;
	size_t free_bytes = 0, total = 0;

	CHECK(vram_get_device_count(&count) == CUDA_SUCCESS && count == cuda_get_device_count());
	REFUSED(vram_get_device_count(NULL), CUDA_ERROR_INVALID_PARAMETER, "vram_get_device_count: count is NULL");
	CHECK(vram_get_info(&free_bytes, &total) == CUDA_SUCCESS && free_bytes > 0 && free_bytes <= total);
	REFUSED(vram_get_info(NULL, &total), CUDA_ERROR_INVALID_PARAMETER, "free_bytes is NULL");
	REFUSED(vram_get_info(&total, NULL), CUDA_ERROR_INVALID_PARAMETER, "total_bytes is NULL");
	CHECK(vram_set_device(4711) != CUDA_SUCCESS && strstr(cuda_last_error(), "device 4711") != NULL);
	CHECK(vram_set_device(-2) != CUDA_SUCCESS);

	REFUSED(vram_malloc(NULL, 1), CUDA_ERROR_INVALID_PARAMETER, "ptr is NULL");
	REFUSED(vram_malloc(&p, 0), CUDA_ERROR_INVALID_PARAMETER, "0 bytes");
	CHECK(p == NULL);
	REFUSED(vram_malloc(&p, SIZE_MAX), CUDA_ERROR_INVALID_PARAMETER, "ask for 1 to");
	REFUSED(vram_malloc(&p, (size_t)1 << 62), CUDA_ERROR_OUT_OF_MEMORY, "vram_malloc");
	CHECK(p == NULL);

	CHECK(vram_malloc(&p, sizeof data) == CUDA_SUCCESS && p != NULL);
	memset(data, 7, sizeof data);
	CHECK(vram_memcpy_d2h(data, p, sizeof data) == CUDA_SUCCESS);
	for (size_t i = 0; i < sizeof data; i++) CHECK(data[i] == 0); // new memory is 0
	for (size_t i = 0; i < sizeof data; i++) data[i] = (char)i;
	CHECK(vram_memcpy_h2d(p, data, sizeof data) == CUDA_SUCCESS);
	CHECK(vram_memcpy_h2d((char *)p + 10, data, 3) == CUDA_SUCCESS); // a handle counts as a pointer does
	CHECK(vram_memcpy_d2h(data, (char *)p + 9, 5) == CUDA_SUCCESS);
	CHECK(memcmp(data, "\x09\x00\x01\x02\x0d", 5) == 0);

	CHECK(vram_memcpy_h2d((char *)p + sizeof data, data, 0) == CUDA_SUCCESS);
	REFUSED(vram_memcpy_h2d((char *)p + sizeof data, data, 1), CUDA_ERROR_INVALID_PARAMETER, "1 bytes at byte 64 of");
	REFUSED(vram_memcpy_d2h(data, (char *)p + 60, 5), CUDA_ERROR_INVALID_PARAMETER, "5 bytes at byte 60 of 64");
	REFUSED(vram_memcpy_d2h(data, (char *)p + 60, SIZE_MAX - 3), CUDA_ERROR_INVALID_PARAMETER, "at byte 60 of 64");
	REFUSED(vram_memcpy_d2h(data, (char *)p + sizeof data + 1, 0), CUDA_ERROR_INVALID_PARAMETER, "at byte 65 of 64");
	REFUSED(vram_memcpy_d2h(NULL, p, 1), CUDA_ERROR_INVALID_PARAMETER, "null pointer");
	REFUSED(vram_memcpy_h2d(p, NULL, 1), CUDA_ERROR_INVALID_PARAMETER, "null pointer");
	REFUSED(vram_memcpy_h2d(NULL, data, 1), CUDA_ERROR_INVALID_PARAMETER, "the handle is null");
	REFUSED(vram_memcpy_d2h(data, NULL, 1), CUDA_ERROR_INVALID_PARAMETER, "the handle is null");
	REFUSED(vram_memcpy_h2d(data, data, 1), CUDA_ERROR_INVALID_PARAMETER, "is no handle");
	REFUSED(vram_free(data), CUDA_ERROR_INVALID_PARAMETER, "is no handle");
	REFUSED(vram_free((char *)p + 1), CUDA_ERROR_INVALID_PARAMETER, "free its first byte");

	CHECK(vram_free(NULL) == CUDA_SUCCESS);
	CHECK(vram_free(p) == CUDA_SUCCESS);
	REFUSED(vram_free(p), CUDA_ERROR_INVALID_PARAMETER, "was freed before");
	REFUSED(vram_memcpy_d2h(data, p, 1), CUDA_ERROR_INVALID_PARAMETER, "was freed before");
	CHECK(vram_malloc(&other, sizeof data) == CUDA_SUCCESS && other != p);
	REFUSED(vram_memcpy_h2d(p, data, 1), CUDA_ERROR_INVALID_PARAMETER, "was freed before");

	CudaContext *ctx = cuda_init(0, &code);
	CHECK(ctx != NULL && code == CUDA_SUCCESS);
	CHECK(cuda_get_process_vram_usage(ctx) >= sizeof data);
	CHECK(cuda_check_device_health(ctx, &code) && code == CUDA_SUCCESS);
	REFUSED(vram_free(ctx), CUDA_ERROR_INVALID_PARAMETER, "is the handle of a context");
	CHECK(vram_free(other) == CUDA_SUCCESS);
	CHECK(cuda_get_process_vram_usage(ctx) == 0);
	CHECK(cuda_destroy(ctx) == CUDA_SUCCESS);
	REFUSED(cuda_context_free(ctx), CUDA_ERROR_INVALID_PARAMETER, "was freed before");
	CHECK(cuda_context_free(NULL) == CUDA_SUCCESS);
	CHECK(cuda_get_process_vram_usage(ctx) == 0);
	CHECK(!cuda_check_device_health(ctx, NULL));
	CHECK(cuda_init(4711, &code) == NULL && code != CUDA_SUCCESS);

	for (int c = -1; c < 100; c++) CHECK(strlen(cuda_error_message(c)) > 0);
}

// Each thread has its own error, and fills memory of several sizes.
static void *cycles(void *n) {
	unsigned seed = 1;
	for (int i = *(int *)n; i > 0; i--) {
		void *p;
		size_t size = 1 + (size_t)rand_r(&seed) % 100000, at = (size_t)rand_r(&seed) % size;
		unsigned char *data = malloc(size), *back = malloc(size);
		for (size_t k = 0; k < size; k++) data[k] = (unsigned char)rand_r(&seed);
		CHECK(vram_malloc(&p, size) == CUDA_SUCCESS);
		CHECK(vram_memcpy_h2d(p, data, size) == CUDA_SUCCESS);
		CHECK(vram_memcpy_d2h(back, (char *)p + at, size - at) == CUDA_SUCCESS);
		CHECK(memcmp(back, data + at, size - at) == 0);
		CHECK(vram_memcpy_d2h(back, (char *)p + at, size - at + 1) == CUDA_ERROR_INVALID_PARAMETER);
		CHECK(vram_free(p) == CUDA_SUCCESS);
		REFUSED(vram_free(p), CUDA_ERROR_INVALID_PARAMETER, "vram_free");
		free(data);
		free(back);
	}
	return NULL;
}

int main(int argc, char **argv) {
	int each = (argc > 1 ? atoi(argv[1]) : 4) / 4;
	pthread_t threads[4];

	refusals();
	for (int i = 0; i < 4; i++) CHECK(pthread_create(&threads[i], NULL, cycles, &each) == 0);
	for (int i = 0; i < 4; i++) CHECK(pthread_join(threads[i], NULL) == 0);

	CudaContext *ctx = cuda_init(0, NULL);
	CHECK(ctx != NULL && cuda_get_process_vram_usage(ctx) == 0);
	fflush(NULL);
	pid_t child = fork();
	if (child == 0) {
		void *p = NULL;
		int code = 0;
		REFUSED(vram_malloc(&p, 1), CUDA_ERROR_FORKED, "child of fork");
		CHECK(cuda_init(0, &code) == NULL && code == CUDA_ERROR_FORKED);
		CHECK(cuda_context_free(ctx) == CUDA_ERROR_FORKED && cuda_get_device_count() == 0);
		_exit(0);
	}
	int status = -1;
	CHECK(waitpid(child, &status, 0) == child && status == 0);
	CHECK(cuda_context_free(ctx) == CUDA_SUCCESS);
	puts("ok");
	return 0;
}
