OPENQASM 3.0;
include "stdgates.inc";
/* Inputs, constants
   and aliases. */
input float theta;
input angle[32] φ;
const int n = 2 ** 2;
const float[64] quarter = pi / n;
qubit[n] q;
qubit one;
bit[2] c;
bit first = measure q[0];
let low = q[0:1] ++ q[3:-1:2];
h low;
rx(theta * 2 - φ / quarter) q[-1];
U(quarter, -φ, τ % 2) one;
gphase(theta);
c = measure q[0:1];
c[1] = measure one;
measure q[2] -> first;
reset low;
barrier;
barrier q, one;
