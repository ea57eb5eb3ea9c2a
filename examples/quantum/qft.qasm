// The quantum Fourier transform of a state with period 4: readings are multiples of 4.
OPENQASM 3.0;
include "stdgates.inc";
qubit[4] q;
bit[4] c;
h q[2];
h q[3];
for int i in [3:-1:0] {
  h q[i];
  for int j in [i - 1:-1:0] { cp(pi / 2 ** (i - j)) q[j], q[i]; }
}
swap q[0], q[3];
swap q[1], q[2];
c = measure q;
