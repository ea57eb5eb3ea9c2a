// vector_add adds two arrays of n elements; a thread adds one.
__global__ void vector_add(const float *a, const float *b, float *c, unsigned long long n) {
	unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;
	if (i < n) c[i] = a[i] + b[i];
}
