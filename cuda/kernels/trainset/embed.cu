// train_embed_h8 and its like add up the gradients of rows of the embedding; see trainset.go.
extern "C" __global__ void __launch_bounds__(128)
KERNEL_NAME(const unsigned *table, const short *gates, const int *numbers, const unsigned *lengths,
            const unsigned *control, const int *exponents, unsigned long long *sums, unsigned long long *totals,
            unsigned agents, unsigned moments) {}
