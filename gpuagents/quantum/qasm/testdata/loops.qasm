OPENQASM 3;
include "stdgates.inc";
const uint n = 3;
qubit[n] q;
bit[n] c;
for int i in [0:n-1] {
  h q[i];
  for uint[8] j in [i+1:n-1] { cp(pi / 2**(j - i)) q[j], q[i]; }
}
for i in [n-1:-1:0] x q[i];
for int i in {2, 0} { const float a = i * 0.5; ry(a) q[i]; }
for int i in [5:2] x q[i];
c = measure q;
if (c == 5) { x q[0]; h q[1]; } else { z q[0]; }
if (c[1]) x q;
if (!c[0]) y q[1];
if (c[2] == false) z q[2];
if (c != 0) c[0] = measure q[0];
