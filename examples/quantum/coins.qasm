// Two fair coins. The reset gives each tick the same state; without it a second tick would undo the first.
OPENQASM 3.0;
include "stdgates.inc";
qubit[2] q;
bit[2] c;
reset q;
h q;
c = measure q;
