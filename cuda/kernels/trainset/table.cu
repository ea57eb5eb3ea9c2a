// train_table makes numbers of weights; see trainset.go.
extern "C" __global__ void __launch_bounds__(256)
train_table(const float *weights, unsigned *control, unsigned *table, unsigned *readout, short *embed_numbers,
            int *exponents, unsigned *maxima, unsigned units, unsigned runs, unsigned readout_rows,
            unsigned embed_rows) {}
