package qasm_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/qasm"
)

// levels defines gates that call each other, n levels deep.
func levels(n int) string {
	var b strings.Builder
	b.WriteString("gate g0 a { U(1, 2, 3) a; } ")
	for i := 1; i < n; i++ {
		fmt.Fprintf(&b, "gate g%d a { g%d a; } ", i, i-1)
	}
	fmt.Fprintf(&b, "g%d q[0];", n-1)
	return b.String()
}

// TestLimits: the largest texts are taken, and what is beyond a limit is refused after a bounded
// time.
func TestLimits(t *testing.T) {
	const begin = "include \"stdgates.inc\"; input float x; qubit[34] q; bit[64] c;\n"
	sum := strings.Repeat("x+", qasm.MaxDepth*64-1) + "x"
	for _, c := range []struct {
		name, text string
		ops        int
		refused    string
	}{
		{name: "Fourier transforms", ops: 924 * 561 * 2, text: begin + "for int k in {1, 2} for int l in [1:924] " +
			"for int i in [0:33] for int j in [i+1:33] cp(pi / 2**(j - i)) q[j], q[i];"},
		{name: "too many operations", text: begin + "for int i in [0:50000] x q;", refused: "than 1048576 operations"},
		{name: "text", text: begin + strings.Repeat(" ", qasm.MaxText-len(begin))},
		{name: "too long a text", text: begin + strings.Repeat(" ", qasm.MaxText), refused: "give at most 1048576"},
		{name: "depth of calls", text: begin + levels(qasm.MaxDepth), ops: 1},
		{name: "too deep calls", text: begin + levels(qasm.MaxDepth+1), refused: "17 levels deep"},
		{name: "expression", text: begin + "rx(" + sum + ") q[0];", ops: 1},
		{name: "too long an expression", text: begin + "rx(" + sum + "+1+x) q[0];", refused: "than 1024 operators"},
		{
			name: "angles", text: begin + "gate a(t) b { rx(" + strings.ReplaceAll(sum, "x", "t") + ") b; }" +
				"gate g(t) b { a(" + strings.ReplaceAll(sum, "x", "t") + ") b; }" + "g(x) q[0]; g(x) q[1];",
			refused: "4194304 operations on inputs",
		},
		{name: "idle loop", text: begin + "for int i in [0:1e9] {" + strings.Repeat(";", 1000) + "}", refused: "steps"},
		{name: "empty gate", text: begin + "gate a b { } for int i in [0:1e9] a q;", refused: "steps"},
		{
			name: "modifiers", text: begin + "gate a b { pow(1000000) @ x b; } " +
				strings.Repeat("inv @ ", 100) + "a q[0];",
			refused: "steps",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			got, err := qasm.Parse(c.text)
			switch {
			case c.refused != "":
				if !errors.Is(err, circuit.ErrInvalid) || !strings.Contains(err.Error(), c.refused) {
					t.Errorf("the error is %v", err)
				}
			case err != nil:
				t.Error(err)
			case len(got.Ops) != c.ops:
				t.Errorf("%d operations, want %d", len(got.Ops), c.ops)
			}
		})
	}
}
