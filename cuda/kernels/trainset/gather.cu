// train_gather makes the gradient of sums, and its norm; see trainset.go.
extern "C" __global__ void __launch_bounds__(256)
train_gather(const unsigned long long *gate_sums, const unsigned long long *readout_sums,
             const unsigned long long *embed_sums, const int *exponents, unsigned *control, float *gradient,
             float *partials, float keep, float inverse, float clip, unsigned units, unsigned runs,
             unsigned readout_rows, unsigned embed_rows) {}
