package qasm_test

import (
	"math"
	"math/cmplx"
	"math/rand/v2"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit/circuittest"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/qasm"
)

// TestKnown runs texts whose bits are known, whatever the measurements before the last ones give.
func TestKnown(t *testing.T) {
	for name, c := range map[string]struct {
		text       string
		mask, want uint64 // of the bits
	}{
		"Bernstein-Vazirani of 1011": {`OPENQASM 2.0; include "qelib1.inc"; qreg q[4]; qreg a[1]; creg c[4];
			x a; h a; h q; cx q[0],a[0]; cx q[1],a[0]; cx q[3],a[0]; h q; measure q -> c;`, 0b1111, 0b1011},
		"Grover of 11": {`include "stdgates.inc"; qubit[2] q; bit[2] c;
			h q; cz q[0], q[1]; h q; x q; ctrl @ z q[0], q[1]; x q; h q; c = measure q;`, 0b11, 0b11},
		"phase estimation of 5/8": {`include "stdgates.inc"; const int n = 3; qubit[n] q; qubit one; bit[n] c;
			x one; h q;
			for int i in [0:n-1] { pow(2**i) @ cp(tau * 5 / 8) q[i], one; }
			for int i in [n-1:-1:0] { for int j in [i+1:n-1] cp(-pi / 2**(j - i)) q[j], q[i]; h q[i]; }
			for int i in [0:n-1] { c[i] = measure q[n-1-i]; }`, 0b111, 5},
		// The state of q[0], cos(0.4) and sin(0.4), arrives on q[2], where its inverse makes it 0.
		"teleportation": {`OPENQASM 2.0; include "qelib1.inc"; qreg q[3]; creg a[1]; creg b[1]; creg out[1];
			ry(0.8) q[0]; h q[1]; cx q[1],q[2]; cx q[0],q[1]; h q[0];
			measure q[0] -> a[0]; measure q[1] -> b[0];
			if(b==1) x q[2]; if(a==1) z q[2];
			ry(-0.8) q[2]; measure q[2] -> out[0];`, 0b100, 0},
		"reset and reuse": {`include "stdgates.inc"; qubit[2] q; bit[2] c; h q; cx q[0], q[1]; reset q; x q[1];
			c = measure q;`, 0b11, 0b10},
		"the last condition of a measurement": {`include "stdgates.inc"; qubit[2] q; bit[2] c; x q;
			if (c == 0) c[1] = measure q[1]; if (c != 2) x q[0]; c[0] = measure q[0];`, 0b11, 0b11},
	} {
		parsed, err := qasm.Parse(c.text)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		random := rand.New(rand.NewPCG(1, 2))
		for range 20 {
			_, bits, err := circuittest.Run(parsed, nil, random.Float64)
			if err != nil {
				t.Fatal(err)
			}
			if bits&c.mask != c.want {
				t.Errorf("%s: the bits are %b, want %b", name, bits&c.mask, c.want)
			}
		}
	}
}

// TestFourier: the transform of a basis state has amplitudes of one size, whose phases turn by its
// number.
func TestFourier(t *testing.T) {
	c, err := qasm.Parse(`include "stdgates.inc"; const int n = 5; qubit[n] q; x q[0]; x q[3];
		for int i in [n-1:-1:0] { h q[i]; for int j in [i-1:-1:0] { cp(pi / 2**(i - j)) q[j], q[i]; } }
		for int i in [0:1] { swap q[i], q[n-1-i]; }`)
	if err != nil {
		t.Fatal(err)
	}
	got, _, err := circuittest.Run(c, nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i, a := range got {
		want := cmplx.Rect(1/math.Sqrt(32), 2*math.Pi*9*float64(i)/32)
		if cmplx.Abs(a-want) > 1e-14 {
			t.Errorf("amplitude %d is %v, want %v", i, a, want)
		}
	}
}
