// train_adam steps weights against their gradient; see trainset.go.
extern "C" __global__ void __launch_bounds__(256)
train_adam(float *weights, float *mean, float *square, const float *gradient, const unsigned *control, float decay,
           float fresh_mean, float beta2, float fresh_square, float rate, float root, float epsilon,
           unsigned long long count) {}
