// The numbers of the tally kernels with sums of 64 bits, from the Go constants of this package that say what each is.
// Written by: go test ./cuda/kernels -run TestWeightedWordsAreCurrent -update
#define TALLY_WEIGHT 259
#define TALLY_BAD 260
#define RESULT_BAD 7
#define WEIGHT_U8 1
#define WEIGHT_U32 2
#define WEIGHT_F32 3
