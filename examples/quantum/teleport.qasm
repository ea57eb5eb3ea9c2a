// The state of qubit 0 moves to qubit 2 by two bits and a Bell pair. Bit 2 is 1 in sin(theta/2)^2 of the shots.
OPENQASM 3.0;
include "stdgates.inc";
input float theta;
qubit[3] q;
bit[3] c;
ry(theta) q[0];
h q[1];
cx q[1], q[2];
cx q[0], q[1];
h q[0];
c[0] = measure q[0];
c[1] = measure q[1];
if (c[1]) x q[2];
if (c[0]) z q[2];
c[2] = measure q[2];
