// train_score_h8 and its like make predictions, losses and the gradients of the readout; see trainset.go.
extern "C" __global__ void __launch_bounds__(128)
KERNEL_NAME(const unsigned *readout, const short *states, const int *items, const int *targets,
            const unsigned *lengths, unsigned candidates, unsigned readout_rows, unsigned train, unsigned drop, float keep,
            unsigned long long seed, unsigned step, unsigned first, const unsigned *control, short *gradients,
            unsigned *masks, float *predictions, unsigned long long *sums, unsigned long long *totals,
            unsigned agents, unsigned moments) {}
