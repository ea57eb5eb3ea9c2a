// Cycles that load a model, generate and free, and what these functions refuse.
// Usage: generate MODEL CYCLES

#include <math.h>
#include <pthread.h>
#include <stdint.h>

#include "check.h"
#include "worker_cuda.h"

#define PROMPT "func main() {\n"

static const char *path;

// Returns the text of n tokens at most. The caller frees it.
static char *generate(CudaModel *model, int n, float temperature, uint64_t seed) {
	int code = -1, index = -1, count = 0;
	char token[4096];
	size_t length = 0;
	char *text = calloc(1, 1 + (size_t)n * sizeof token);
	InferenceResult *r = cuda_inference_start(model, PROMPT, n, temperature, seed, &code);
	CHECK(r != NULL && code == CUDA_SUCCESS);
	while (cuda_inference_next(r, token, sizeof token, &index, &code)) {
		CHECK(code == CUDA_SUCCESS && index == count++);
		memcpy(text + length, token, strlen(token));
		length += strlen(token);
	}
	CHECK(code == CUDA_SUCCESS && count > 0 && count <= n);
	CHECK(!cuda_inference_next(r, token, sizeof token, NULL, &code) && code == CUDA_SUCCESS);
	CHECK(cuda_inference_free(r) == CUDA_SUCCESS);
	REFUSED(cuda_inference_free(r), CUDA_ERROR_INVALID_PARAMETER, "was freed before");
	return text;
}

static void cycle(uint64_t i) {
	int code = -1;
	uint64_t bytes = 0;
	CudaContext *ctx = cuda_init(0, NULL);
	CudaModel *model = cuda_load_model(ctx, path, &bytes, &code);
	CHECK(model != NULL && code == CUDA_SUCCESS && bytes > 0);
	char *a = generate(model, 3, 0.8f, i), *b = generate(model, 3, 0.8f, i);
	CHECK(strcmp(a, b) == 0);
	free(a);
	free(b);
	CHECK(cuda_model_free(model) == CUDA_SUCCESS);
	CHECK(cuda_context_free(ctx) == CUDA_SUCCESS);
}

static void *cancel(void *result) {
	CHECK(cuda_inference_cancel(result) == CUDA_SUCCESS);
	return NULL;
}

static void refusals(void) {
	int code = -1, index = -1;
	uint64_t bytes = 1;
	char token[4096], small[1] = {1};
	CudaModelInfo info;
	pthread_t thread;
	CudaContext *ctx = cuda_init(0, NULL);

	CHECK(cuda_load_model(ctx, NULL, &bytes, &code) == NULL && code == CUDA_ERROR_INVALID_PARAMETER && bytes == 0);
	CHECK(cuda_load_model(NULL, path, &bytes, &code) == NULL && code == CUDA_ERROR_INVALID_PARAMETER);
	CHECK(cuda_load_model(ctx, "nonexistent.gguf", &bytes, &code) == NULL && code == CUDA_ERROR_MODEL_LOAD_FAILED);
	CHECK(strstr(cuda_last_error(), "nonexistent.gguf") != NULL);
	CHECK(cuda_load_model(ctx, "testdata/generate.c", &bytes, &code) == NULL && code == CUDA_ERROR_MODEL_LOAD_FAILED);
	CHECK(cuda_load_model(ctx, "/dev/null", NULL, &code) == NULL && code == CUDA_ERROR_MODEL_LOAD_FAILED);
	CHECK(cuda_load_model(ctx, "testdata", NULL, NULL) == NULL && strstr(cuda_last_error(), "config.json") != NULL);

	CudaModel *model = cuda_load_model(ctx, path, &bytes, &code);
	CHECK(model != NULL && cuda_get_vram_usage(model) == bytes && bytes > 0);
	CHECK(cuda_get_process_vram_usage(ctx) >= bytes);
	CHECK(cuda_check_vram_residency(model, &code) && code == CUDA_SUCCESS);
	CHECK(cuda_model_info(model, &info) == CUDA_SUCCESS && info.num_layers > 0 && info.vram_bytes == bytes);
	CHECK(strcmp(info.architecture, "llama") == 0 && strlen(info.name) > 0);
	REFUSED(cuda_model_info(model, NULL), CUDA_ERROR_INVALID_PARAMETER, "info is NULL");
	REFUSED(cuda_model_info((CudaModel *)ctx, &info), CUDA_ERROR_INVALID_PARAMETER, "is the handle of a context");

	CHECK(cuda_inference_start(model, NULL, 1, 0, 0, &code) == NULL && code == CUDA_ERROR_INVALID_PARAMETER);
	CHECK(cuda_inference_start(NULL, PROMPT, 1, 0, 0, &code) == NULL && code == CUDA_ERROR_INVALID_PARAMETER);
	CHECK(cuda_inference_start(model, PROMPT, 0, 0, 0, &code) == NULL && code == CUDA_ERROR_INVALID_PARAMETER);
	CHECK(cuda_inference_start(model, PROMPT, INT32_MAX, 0, 0, &code) == NULL && code == CUDA_ERROR_INVALID_PARAMETER);
	CHECK(cuda_inference_start(model, PROMPT, 1, -1, 0, &code) == NULL && code == CUDA_ERROR_INVALID_PARAMETER);
	CHECK(cuda_inference_start(model, PROMPT, 1, NAN, 0, &code) == NULL && code == CUDA_ERROR_INVALID_PARAMETER);

	// A buffer that is too small loses no token.
	InferenceResult *r = cuda_inference_start(model, PROMPT, 20, 0, 0, &code);
	CHECK(!cuda_inference_next(r, NULL, 10, &index, &code) && code == CUDA_ERROR_INVALID_PARAMETER);
	CHECK(!cuda_inference_next(r, token, 0, &index, &code) && code == CUDA_ERROR_INVALID_PARAMETER);
	CHECK(!cuda_inference_next(r, token, -5, &index, &code) && code == CUDA_ERROR_INVALID_PARAMETER);
	for (int want = 0; want < 20;) { // an empty text fits
		if (cuda_inference_next(r, small, 1, &index, &code)) {
			CHECK(index == want++ && *small == 0);
			continue;
		}
		CHECK(code == CUDA_ERROR_INVALID_PARAMETER && *small == 0 && strstr(cuda_last_error(), "there is room for 0"));
		CHECK(cuda_inference_next_token(r, token, sizeof token, &index, &code) && index == want && strlen(token) > 0);
		break;
	}

	// Another thread cancels.
	CHECK(pthread_create(&thread, NULL, cancel, r) == 0);
	while (cuda_inference_next(r, token, sizeof token, &index, &code)) CHECK(index < 20);
	CHECK(pthread_join(thread, NULL) == 0);
	CHECK(!cuda_inference_next(r, token, sizeof token, &index, &code) && code == CUDA_ERROR_CANCELLED);
	CHECK(cuda_inference_cancel(NULL) == CUDA_ERROR_INVALID_PARAMETER);

	// The model takes its inferences with it, and the context its models.
	CHECK(cuda_unload_model(model) == CUDA_SUCCESS);
	CHECK(!cuda_inference_next(r, token, sizeof token, &index, &code) && code == CUDA_ERROR_INVALID_PARAMETER);
	REFUSED(cuda_inference_free(r), CUDA_ERROR_INVALID_PARAMETER, "was freed before");
	CHECK(cuda_inference_start(model, PROMPT, 1, 0, 0, &code) == NULL && code == CUDA_ERROR_INVALID_PARAMETER);
	CHECK(!cuda_check_vram_residency(model, &code) && code == CUDA_ERROR_INVALID_PARAMETER);
	CHECK(cuda_get_vram_usage(model) == 0 && cuda_get_process_vram_usage(ctx) == 0);
	model = cuda_load_model(ctx, path, &bytes, &code);
	r = cuda_inference_start(model, PROMPT, 20, 0, 0, &code);
	CHECK(r != NULL && cuda_context_free(ctx) == CUDA_SUCCESS);
	REFUSED(cuda_model_free(model), CUDA_ERROR_INVALID_PARAMETER, "was freed before");
	REFUSED(cuda_inference_cancel(r), CUDA_ERROR_INVALID_PARAMETER, "was freed before");
	CHECK(cuda_model_free(NULL) == CUDA_SUCCESS && cuda_inference_free(NULL) == CUDA_SUCCESS);
}

int main(int argc, char **argv) {
	if (argc != 3) return 2;
	path = argv[1];
	refusals();
	for (int i = atoi(argv[2]); i > 0; i--) cycle((uint64_t)i);
	puts("ok");
	return 0;
}
