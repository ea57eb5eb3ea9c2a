// train_back_h8 and its like make the gradients of gates from the last moment to the first; see trainset.go.
extern "C" __global__ void __launch_bounds__(128)
KERNEL_NAME(const unsigned *table, const short *rows, const int *numbers, unsigned embedded, const unsigned *lengths,
            const short *states, const unsigned *readout, unsigned readout_rows, const int *items, unsigned candidates,
            const short *gradients, const unsigned *masks, float keep, const unsigned *control, const int *exponents,
            unsigned *maxima, short *gates, unsigned long long *totals, unsigned agents, unsigned moments) {}
