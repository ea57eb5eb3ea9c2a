// A layer of QAOA for the largest cut of a ring of 12 nodes with chords to the opposite nodes. A reading is a cut.
OPENQASM 3.0;
include "stdgates.inc";
input float gamma;
input float beta;
gate edge(angle) a, b { cx a, b; rz(angle) b; cx a, b; }
qubit[12] q;
bit[12] c;
h q;
for int i in [0:11] { edge(gamma) q[i], q[(i + 1) % 12]; }
for int i in [0:5] { edge(gamma) q[i], q[i + 6]; }
rx(beta) q;
c = measure q;
