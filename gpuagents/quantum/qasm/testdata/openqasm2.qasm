// OpenQASM 2: registers, gates of qelib1.inc, broadcasts, a defined gate, a condition.
OPENQASM 2.0;
include "qelib1.inc";
gate majority(theta) a,b,c { cx c,b; cx c,a; barrier a,b; ccx a,b,c; rz(theta^2/4) a; }
qreg q[3];
qreg for[1]; // a name in OpenQASM 2
creg c[2];
creg d[1];
U(pi/2,0,pi) q[0];
u2(0,pi) q[1];
u3(-pi/2,sin(1)*2,ln(2)) q[2];
CX q[0],q[1];
h q;
cx q[0],for;
majority(2) q[0],q[1],q[2];
swap q[0],q[2];
rccx q[0],q[1],q[2];
barrier q;
measure q[0] -> c[0];
measure for -> d;
if(c==1) x q[1];
if(d==0) measure q[1] -> d[0];
reset q;
