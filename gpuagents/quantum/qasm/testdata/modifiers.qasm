include "stdgates.inc";
qubit[4] q;
gate phased(a) t { gphase(a); U(a, 0, 0) t; }
gate pair(a) s, t { cx s, t; pow(2) @ rz(a) t; inv @ phased(a) s; }
ctrl @ x q[0], q[1];
ctrl(2) @ y q[0], q[1], q[2];
negctrl @ ctrl @ z q[0], q[1], q[2];
ctrl @ gphase(pi / 2) q[1];
negctrl @ gphase(pi / 2) q[1];
ctrl(2) @ gphase(0.25) q[0], q[1];
ctrl @ phased(0.5) q[3], q[0];
inv @ pair(0.25) q[0], q[1];
ctrl @ inv @ pair(0.25) q[2], q[0], q[1];
pow(2) @ s q[0];
pow(-1) @ t q[0];
pow(0) @ x q[0];
pow(1/2) @ x q[0];
inv @ pow(1/2) @ x q[0];
ctrl @ pow(1/4) @ inv @ sx q[0], q[1];
ctrl @ swap q[0], q[1], q[2];
ctrl @ h q[0], q[1:3];
