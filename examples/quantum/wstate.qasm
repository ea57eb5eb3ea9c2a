// Three qubits: one is 1, each as often, in OpenQASM 2.
OPENQASM 2.0;
include "qelib1.inc";
qreg q[3];
creg c[3];
ry(1.9106332362490186) q[0];
ch q[0], q[1];
cx q[1], q[2];
cx q[0], q[1];
x q[0];
measure q -> c;
