// train_outer_h8 and its like add up the gradients of the weights of gates; see trainset.go.
extern "C" __global__ void __launch_bounds__(128)
KERNEL_NAME(const short *gates, const short *rows, const int *numbers, unsigned embedded, const unsigned *lengths,
            const short *states, unsigned long long *sums, unsigned agents, unsigned moments) {}
