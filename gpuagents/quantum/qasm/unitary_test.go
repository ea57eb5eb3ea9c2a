package qasm_test

import (
	"fmt"
	"math"
	"math/cmplx"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit/circuittest"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/qasm"
)

type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// matrix returns the columns of the unitary of a text.
func matrix(t fataler, text string) [][]complex128 {
	t.Helper()
	c, err := qasm.Parse(text)
	if err != nil {
		t.Fatalf("%v, for:\n%s", err, text)
	}
	all := make([][]complex128, 1<<c.Qubits)
	for i := range all {
		state := make([]complex128, 1<<c.Qubits)
		state[i] = 1
		if all[i], _, err = circuittest.RunFrom(state, c, nil, nil); err != nil {
			t.Fatalf("%v, for:\n%s", err, text)
		}
	}
	return all
}

func same(a, b [][]complex128) bool {
	for i := range a {
		for k := range a[i] {
			if !(cmplx.Abs(a[i][k]-b[i][k]) < 1e-12) {
				return false
			}
		}
	}
	return len(a) == len(b)
}

// definitions are the gates of the OpenQASM 3 specification as gates of their own, by U, gphase and
// modifiers.
const definitions = `
gate my_p(l) a { ctrl @ gphase(l) a; }
gate my_x a { U(pi, 0, pi) a; gphase(-pi/2); }
gate my_y a { U(pi, pi/2, pi/2) a; gphase(-pi/2); }
gate my_z a { my_p(pi) a; }
gate my_h a { U(pi/2, 0, pi) a; gphase(-pi/4); }
gate my_s a { pow(1/2) @ my_z a; }
gate my_sdg a { inv @ pow(1/2) @ my_z a; }
gate my_t a { pow(1/2) @ my_s a; }
gate my_tdg a { inv @ pow(1/2) @ my_s a; }
gate my_sx a { pow(1/2) @ x a; }
gate my_rx(t) a { U(t, -pi/2, pi/2) a; gphase(-t/2); }
gate my_ry(t) a { U(t, 0, 0) a; gphase(-t/2); }
gate my_rz(l) a { gphase(-l/2); U(0, 0, l) a; }
gate my_cx a, b { ctrl @ my_x a, b; }
gate my_cy a, b { ctrl @ my_y a, b; }
gate my_cz a, b { ctrl @ my_z a, b; }
gate my_cp(l) a, b { ctrl @ my_p(l) a, b; }
gate my_crx(t) a, b { ctrl @ my_rx(t) a, b; }
gate my_cry(t) a, b { ctrl @ my_ry(t) a, b; }
gate my_crz(t) a, b { ctrl @ my_rz(t) a, b; }
gate my_ch a, b { ctrl @ my_h a, b; }
gate my_swap a, b { my_cx a, b; my_cx b, a; my_cx a, b; }
gate my_ccx a, b, c { ctrl @ ctrl @ my_x a, b, c; }
gate my_cswap a, b, c { ctrl @ my_swap a, b, c; }
gate my_cu(t, p, l, g) a, b { my_p(g - t/2) a; ctrl @ U(t, p, l) a, b; }
gate my_CX a, b { ctrl @ my_x a, b; }
gate my_phase(l) q { U(0, 0, l) q; }
gate my_cphase(l) a, b { ctrl @ my_phase(l) a, b; }
gate my_id a { U(0, 0, 0) a; }
gate my_u1(l) q { U(0, 0, l) q; }
gate my_u2(p, l) q { gphase(-(p + l + pi/2)/2); U(pi/2, p, l) q; }
gate my_u3(t, p, l) q { gphase(-(p + l + t)/2); U(t, p, l) q; }
`

// TestDefinitions: each gate of stdgates.inc is the gate that the specification defines, also under
// a control.
func TestDefinitions(t *testing.T) {
	n := 0
	for line := range strings.Lines(definitions) {
		name, ok := strings.CutPrefix(line, "gate my_")
		if !ok {
			continue
		}
		n++
		name = name[:strings.IndexAny(name, "( ")]
		shape, ok := circuit.ShapeOf(name)
		if !ok {
			t.Fatalf("%s is no standard gate", name)
		}
		arguments := ""
		if shape.Angles > 0 {
			arguments = "(" + strings.Join([]string{"0.7", "-1.3", "2.1", "0.4"}[:shape.Angles], ", ") + ")"
		}
		on := strings.Join([]string{"q[2]", "q[0]", "q[1]"}[:shape.Qubits], ", ")
		begin := "include \"stdgates.inc\";" + definitions + "qubit[4] q;\n"
		for _, modifier := range []string{"", "ctrl @ "} {
			operands := on
			if modifier != "" {
				operands = "q[3], " + on
			}
			text := begin + modifier + name + arguments + " " + operands + ";"
			own := begin + modifier + "my_" + name + arguments + " " + operands + ";"
			if !same(matrix(t, text), matrix(t, own)) {
				t.Errorf("%s%s is not its definition", modifier, name)
			}
		}
	}
	if n != 32 {
		t.Errorf("%d gates are compared, want 32", n)
	}
}

// TestPhases2: U, u2 and u3 of OpenQASM 2 have a real corner, and cu3 controls this form, as in
// Qiskit.
func TestPhases2(t *testing.T) {
	e := func(x float64) complex128 { return cmplx.Exp(complex(0, x)) }
	column := func(theta, phi, lambda float64) [][]complex128 {
		c, s := complex(math.Cos(theta/2), 0), complex(math.Sin(theta/2), 0)
		return [][]complex128{{c, e(phi) * s}, {-e(lambda) * s, e(phi+lambda) * c}}
	}
	const begin = "OPENQASM 2.0; include \"qelib1.inc\"; qreg q[1]; "
	for text, want := range map[string][][]complex128{
		"U(0.7,-1.3,2.1) q[0];":  column(0.7, -1.3, 2.1),
		"u(0.7,-1.3,2.1) q[0];":  column(0.7, -1.3, 2.1),
		"u3(0.7,-1.3,2.1) q[0];": column(0.7, -1.3, 2.1),
		"u2(-1.3,2.1) q[0];":     column(math.Pi/2, -1.3, 2.1),
		"u1(2.1) q[0];":          column(0, 0, 2.1),
	} {
		if !same(matrix(t, begin+text), want) {
			t.Errorf("%s is %v, want %v", text, matrix(t, begin+text), want)
		}
	}
	const two = "OPENQASM 2.0; include \"qelib1.inc\"; qreg q[2]; "
	for text, twin := range map[string]string{
		"cu3(0.7,-1.3,2.1) q[0],q[1];": "u1((2.1-1.3)/2) q[0]; u1((2.1+1.3)/2) q[1]; cx q[0],q[1]; " +
			"u3(-0.7/2,0,-(2.1-1.3)/2) q[1]; cx q[0],q[1]; u3(0.7/2,-1.3,0) q[1];",
		"cu1(0.7) q[0],q[1];": "u1(0.7/2) q[0]; cx q[0],q[1]; u1(-0.7/2) q[1]; cx q[0],q[1]; u1(0.7/2) q[1];",
		"crz(0.7) q[0],q[1];": "rz(0.7/2) q[1]; cx q[0],q[1]; rz(-0.7/2) q[1]; cx q[0],q[1];",
		"cu(0.7,-1.3,2.1,0.4) q[0],q[1];": "p(0.4) q[0]; p((2.1-1.3)/2) q[0]; p((2.1+1.3)/2) q[1]; cx q[0],q[1]; " +
			"u(-0.7/2,0,-(2.1-1.3)/2) q[1]; cx q[0],q[1]; u(0.7/2,-1.3,0) q[1];",
		"gate cu c,t { cx c,t; } cu q[0],q[1];":                 "cx q[0],q[1];",
		"gate sx a { sx a; sx a; } sx q[0];":                    "x q[0];",
		"gate my a { s a; } gate s a { x a; } my q[0]; s q[1];": "p(pi/2) q[0]; x q[1];",
		"csx q[0],q[1];": "h q[1]; cu1(pi/2) q[0],q[1]; h q[1];",
	} {
		if !same(matrix(t, two+text), matrix(t, two+twin)) {
			t.Errorf("%s is not what qelib1.inc defines", text)
		}
	}
}

// TestLibraries: an include defines its gates and no others.
func TestLibraries(t *testing.T) {
	for file, gates := range map[string][2]string{
		"stdgates.inc": {"cphase CX cu sx", "rzz c4x sxdg u0"},
		"qelib1.inc":   {"rzz c4x sxdg u0 u cu3 rxx rc3x", "cphase phase"},
	} {
		for i, names := range gates {
			for _, name := range strings.Fields(names) {
				shape, _ := circuit.ShapeOf(name)
				_, err := qasm.Parse(fmt.Sprintf("include %q; qubit[5] q; %s(%s) %s;", file, name,
					strings.Join(strings.Fields("1 2 3 4")[:shape.Angles], ","),
					strings.Join(strings.Fields("q[0] q[1] q[2] q[3] q[4]")[:shape.Qubits], ",")))
				if (err == nil) != (i == 0) {
					t.Errorf("%s: %s: %v", file, name, err)
				}
			}
		}
	}
}

// program draws gates on four qubits, with modifiers and loops.
func program(t *rapid.T, label string) string {
	angle := rapid.SampledFrom([]string{"0.7", "pi/2", "-pi", "tau/3", "2**-1", "pi - 0.1"})
	var b strings.Builder
	for range rapid.IntRange(1, 8).Draw(t, label) {
		q := rapid.Permutation([]int{0, 1, 2, 3}).Draw(t, "qubits")
		b.WriteString(rapid.SampledFrom([]string{"", "", "inv @ ", "pow(3) @ ", "pow(-2) @ "}).Draw(t, "modifier"))
		b.WriteString(strings.NewReplacer("A", angle.Draw(t, "a"), "B", angle.Draw(t, "b"),
			"q0", fmt.Sprint("a", q[0]), "q1", fmt.Sprint("a", q[1]), "q2", fmt.Sprint("a", q[2])).Replace(
			rapid.SampledFrom([]string{
				"ctrl @ U(A, B, 0.3) q0, q1;", "negctrl @ my(A) q0, q1, q2;", "my(B) q2, q0;", "h q0;", "swap q0, q1;",
				"ctrl(2) @ gphase(A) q0, q1;", "gphase(A);", "pow(0.3) @ rx(A) q0;",
				"ctrl @ pow(-0.3) @ U(A, B, 1) q0, q1;",
			}).Draw(t, "gate")))
		b.WriteByte('\n')
	}
	return b.String()
}

// TestModifiers compares the modifiers on a gate of random gates with what they mean for its
// matrix.
func TestModifiers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		begin := "include \"stdgates.inc\";\nqubit[4] q; qubit c;\n" +
			"gate my(x) a, b { gphase(x); ry(x) a; cx a, b; for int i in [1:2] p(x / i) b; }\n" +
			"gate g a0, a1, a2, a3 {\n" + program(t, "n") + "}\n"
		of := func(text string) [][]complex128 { return matrix(t, begin+text) }
		const on = "q[0], q[1], q[2], q[3];"
		once := of("g " + on)
		twice, three := of("g "+on+"g "+on), of("g "+on+"g "+on+"g "+on)
		none := of("pow(0) @ g " + on)
		for text, want := range map[string][][]complex128{
			"inv @ inv @ g " + on:                 once,
			"pow(2) @ g " + on:                    twice,
			"pow(3) @ g " + on:                    three,
			"inv @ g " + on + "g " + on:           none,
			"pow(-2) @ g " + on + "g " + on:       of("inv @ g " + on),
			"pow(-3) @ g " + on:                   of("inv @ pow(3) @ g " + on),
			"inv @ pow(-2) @ inv @ g " + on:       of("pow(-2) @ g " + on),
			"ctrl @ g c, " + on:                   under(once, 1),
			"negctrl @ g c, " + on:                under(once, 0),
			"ctrl @ inv @ g c, " + on:             of("inv @ ctrl @ g c, " + on),
			"pow(2) @ negctrl @ g c, " + on:       under(twice, 0),
			"x c; ctrl @ g c, " + on + "x c;":     of("negctrl @ g c, " + on),
			"for int i in [0:2] { g " + on + " }": three,
		} {
			if !same(of(text), want) {
				t.Fatalf("%s has another matrix, with\n%s", text, begin)
			}
		}
	})
}

// under returns the matrix that applies m, on the lower qubits, where the highest qubit has a
// value.
func under(m [][]complex128, value int) [][]complex128 {
	half := len(m) / 2
	all := make([][]complex128, len(m))
	for i := range all {
		all[i] = make([]complex128, len(m))
		if all[i][i] = 1; i/half == value {
			copy(all[i][i/half*half:], m[i%half][:half])
		}
	}
	return all
}

// TestInverse: the inverse of a circuit undoes it, and its inverse is the circuit.
func TestInverse(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := "include \"stdgates.inc\"; qubit[4] q; let a = q;\n" +
			"gate my(x) a, b { gphase(x); ry(x) a; cx a, b; p(x) b; }\n" +
			"gate g a0, a1, a2, a3 {\n" + program(t, "n") + "}\ng q[0], q[1], q[2], q[3];"
		c, err := qasm.Parse(text)
		if err != nil {
			t.Fatalf("%v, for:\n%s", err, text)
		}
		inverse, err := c.Inverse()
		if err != nil {
			t.Fatal(err)
		}
		again, err := inverse.Inverse()
		if err != nil {
			t.Fatal(err)
		}
		state := make([]complex128, 16)
		for i := range state {
			state[i] = complex(float64(i+1)/math.Sqrt(1496), 0)
		}
		run := func(from []complex128, c *circuit.Circuit) []complex128 {
			a, _, err := circuittest.RunFrom(from, c, nil, nil)
			if err != nil {
				t.Fatal(err)
			}
			return a
		}
		there := run(state, c)
		if back := run(there, inverse); !same([][]complex128{back}, [][]complex128{state}) {
			t.Fatalf("the inverse does not undo:\n%s", text)
		}
		if !same([][]complex128{run(state, again)}, [][]complex128{there}) {
			t.Fatalf("the inverse of the inverse is another circuit:\n%s", text)
		}
	})
}
