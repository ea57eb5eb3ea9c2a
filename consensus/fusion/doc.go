// Package fusion is the meaning of knowledge fusion, and its form on a device: agents' embeddings
// are accumulated into shared nodes, whose weighted means are what the agents know together. Nodes
// and Total define it in plain Go, without a device; a Fuser holds nodes in the memory of a device
// and is compared with them.
//
// # Embeddings, members, weights
//
// n agents have an embedding each: D values, a multiple of 8 from 8 to 512, row behind row, of
// float32 or of bf16, which is widened to float32 and loses nothing. Agent i belongs to node
// members[i] of 0..M-1. None belongs to nobody; any other value is an invalid id. Both are counted,
// and change no node.
//
// An agent weighs 1, or weights[i] in units of 1/65536 (consensus.Fixed makes one of a fraction); 0
// is a weight. A node has for each of the D columns the sum of weight times value in float32, and
// as integers, which are exact, the sum of the weights and the number of agents. Its mean is the
// quotient of the sums, and 0 where the weight is.
//
// An embedding with a NaN or an infinity is refused as a whole and counted: it is in no sum, and
// nor are its weight and its agent. Finite values whose sum leaves the range of float32 make it
// infinite, as everywhere.
//
// # Order of additions
//
// Sums of floats depend on their order. There are two modes.
//
// Static: the order is fixed. The agents of a node stand in a row by their number. The row is cut
// into runs of RunRows; each run is summed one by one from +0, every product rounded and every sum
// rounded, refused agents left out. The sums of the runs are a row again, which is cut and summed
// in the same way until one sum is left. That sum is added to the node. Every device and every
// launch shape gives the bits of Nodes.Accumulate. With u = 2^-24 and n agents, n up to RunRows^k,
// the error is at most (1 + k*RunRows)*u*S for the sum S of the absolute products: pairwise
// summation (N. J. Higham, The Accuracy of Floating Point Summation, SIAM J. Sci. Comput. 14, 1993)
// with a wider tree.
//
// Unsorted: the device adds in any order, which differs from call to call. The error is at most
// (n+1)*u*S for the n agents of a node in any order (ibid.), and grows like the square root of n
// where rounding errors are independent. A GPU's atomics take subnormal operands and sums as 0,
// which adds at most n*2^-126. Counts, weights and the report are exact in both modes.
//
// # Shards
//
// A Total adds up the nodes of all shards in float64, in the order of the shards, and rounds each
// mean once.
package fusion
