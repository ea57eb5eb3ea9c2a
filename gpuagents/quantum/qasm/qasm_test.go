package qasm_test

import (
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/quantum/circuit"
	"github.com/exoswarm/exoswarm/gpuagents/quantum/qasm"
)

var update = flag.Bool("update", false, "write the golden files anew; commit a change only if you can explain it")

// TestAccepted compares the operations of testdata/*.qasm with the listing beside each. Inputs are
// 0.5, 1.5 and so on.
func TestAccepted(t *testing.T) {
	files, err := filepath.Glob("testdata/*.qasm")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files: %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			c, err := qasm.Parse(string(text))
			if err != nil {
				t.Fatal(err)
			}
			golden(t, strings.TrimSuffix(file, ".qasm")+".golden", listing(c))
		})
	}
}

// TestRefused compares the errors of the texts of testdata/refused.txt. A text ends with a line "=>
// " and its error.
func TestRefused(t *testing.T) {
	const file = "testdata/refused.txt"
	all, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var have, text strings.Builder
	for line := range strings.Lines(string(all)) {
		if !strings.HasPrefix(line, "=>") {
			text.WriteString(line)
			have.WriteString(line)
			continue
		}
		_, err := qasm.Parse(strings.TrimSuffix(text.String(), "\n"))
		var place *qasm.Error
		if !errors.As(err, &place) || !errors.Is(err, circuit.ErrInvalid) || place.Line < 1 || place.Column < 1 {
			t.Errorf("the error is %v, for:\n%s", err, text.String())
		}
		fmt.Fprintf(&have, "=> %v\n", err)
		text.Reset()
	}
	golden(t, file, have.String())
}

func golden(t *testing.T, file, have string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(have), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	if want, err := os.ReadFile(file); err != nil || have != string(want) {
		t.Errorf("%s: %v; it is now:\n%s", file, err, have)
	}
}

// listing writes a circuit for people.
func listing(c *circuit.Circuit) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d qubits %v, %d bits %v, inputs %v\n",
		c.Qubits, c.QubitRegisters, c.Bits, c.BitRegisters, c.Inputs)
	var inputs []float64
	for i := range c.Inputs {
		inputs = append(inputs, float64(i)+0.5)
	}
	for _, op := range c.Ops {
		fmt.Fprintf(&b, "%d:%d %s", op.Line, op.Column, op.Kind)
		for _, control := range op.Controls {
			fmt.Fprintf(&b, " ctrl %d=%d", control.Qubit, map[bool]int{true: 0, false: 1}[control.Zero])
		}
		fmt.Fprintf(&b, " on %d", op.Target)
		switch op.Kind {
		case circuit.Gate:
			u := op.Unitary
			for i, a := range []circuit.Angle{u.Theta, u.Phi, u.Lambda, u.Gamma} {
				fmt.Fprintf(&b, " %s %.4g", [...]string{"theta", "phi", "lambda", "gamma"}[i], a.Eval(inputs)+0)
			}
			if u.Power != 0 && u.Power != 1 {
				fmt.Fprintf(&b, " power %.4g", u.Power)
			}
		case circuit.Swap:
			fmt.Fprintf(&b, " and %d", op.Other)
		case circuit.Measure:
			fmt.Fprintf(&b, " into %d", op.Bit)
		}
		if f := op.If; f.Count > 0 {
			is := "is"
			if f.Not {
				is = "is not"
			}
			fmt.Fprintf(&b, " if %d bits from %d %s %d", f.Count, f.First, is, f.Value)
		}
		b.WriteByte('\n')
	}
	return b.String()
}
