// train_forward_h8 and its like step agents through the moments of a window; see trainset.go.
extern "C" __global__ void __launch_bounds__(128)
KERNEL_NAME(const unsigned *table, const short *rows, const int *numbers, unsigned embedded, const unsigned *lengths,
            float *carry, short *states, unsigned agents, unsigned moments) {}
