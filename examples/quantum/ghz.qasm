// Four qubits: all are 0, or all are 1.
OPENQASM 3.0;
include "stdgates.inc";
qubit[4] q;
bit[4] c;
h q[0];
for int i in [0:2] { cx q[i], q[i + 1]; }
c = measure q;
