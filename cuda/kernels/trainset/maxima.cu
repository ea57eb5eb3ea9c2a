// train_maxima finds the largest weights; see trainset.go.
extern "C" __global__ void __launch_bounds__(256)
train_maxima(const float *weights, unsigned *control, unsigned units, unsigned readout_rows) {}
