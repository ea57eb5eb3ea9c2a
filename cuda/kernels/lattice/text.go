package lattice

import (
	"fmt"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// term is a reduction as the frame keeps it. A mean is a sum until the step sees it.
type term struct {
	Term
	at  int // of the variable
	of  kernels.Var
	own Op // Sum for a mean
}

func (t term) name() string { return string(t.own) + "_" + t.of.Name }

// float reports whether a variable is a float to a step.
func float(e kernels.Elem) bool { return e == kernels.F32 || e == kernels.BF16 }

// ctype returns the type of a term in C++: sums are wide enough for all neighbours, but for u64,
// which wraps.
func (t term) ctype() string {
	switch {
	case t.own == Weighted:
		return "float"
	case t.own == Count:
		return "unsigned"
	case t.own == Sum && t.of.Elem == kernels.U8:
		return "unsigned"
	case t.own == Sum && t.of.Elem == kernels.U32:
		return "unsigned long long"
	}
	return t.of.Elem.CType()
}

// none returns what no neighbour adds.
func (t term) none() string {
	switch {
	case t.own == Max && float(t.of.Elem):
		return "-exoswarm_frame::infinity()"
	case t.own == Min && float(t.of.Elem):
		return "exoswarm_frame::infinity()"
	case t.own == Min:
		return "(" + t.ctype() + ")~0ull"
	}
	return "0"
}

// one returns what a neighbour adds that is heard as h.
func (t term) one() string {
	if t.own == Count {
		return fmt.Sprintf("h.%s != 0", t.of.Name)
	}
	if t.own == Weighted {
		return fmt.Sprintf("exoswarm_frame::mul((float)h.%s, weight)", t.of.Name)
	}
	return "h." + t.of.Name
}

// join returns the statement that adds the reduction o.
func (t term) join() string {
	n := t.name()
	switch {
	case t.own == Max:
		return fmt.Sprintf("if (o.%s > %s) %s = o.%s;", n, n, n, n)
	case t.own == Min:
		return fmt.Sprintf("if (o.%s < %s) %s = o.%s;", n, n, n, n)
	case t.own == Weighted || t.own == Sum && float(t.of.Elem):
		return fmt.Sprintf("%s = exoswarm_frame::add(%s, o.%s);", n, n, n)
	}
	return fmt.Sprintf("%s += o.%s;", n, n)
}

// seen returns the value that the step sees, of the reduction s over n neighbours.
func (t term) seen() string {
	value := "s." + t.name()
	switch t.Op {
	case Mean:
		return fmt.Sprintf("exoswarm_frame::mean_of((float)%s, n)", value)
	case Max, Min:
		return fmt.Sprintf("n ? %s : 0", value)
	}
	return value
}

// terms returns the reductions in the order of Ops and of Hear, or an ErrHear.
func (c Cell) terms() (all []term, err error) {
	if len(c.Hear) > MaxTerms {
		return nil, fmt.Errorf("%w: %d of them: use at most %d", ErrHear, len(c.Hear), MaxTerms)
	}
	for _, t := range c.Hear {
		if !slices.Contains(Ops, t.Op) {
			return nil, fmt.Errorf("%w: %q: there are %v", ErrHear, t.Op, Ops)
		}
	}
	for _, op := range Ops {
		for _, t := range c.Hear {
			if t.Op != op {
				continue
			}
			at := slices.IndexFunc(c.Vars, func(v kernels.Var) bool { return v.Name == t.Var })
			if at < 0 {
				return nil, fmt.Errorf("%w: %s: the state has no variable %q", ErrHear, t.Op, t.Var)
			}
			one := term{Term: t, at: at, of: c.Vars[at], own: t.Op}
			if op == Mean {
				one.own = Sum
			}
			if op == Weighted && c.Dimensions > 0 {
				return nil, fmt.Errorf("%w: weighted: agents on a grid have no weights: use sum", ErrHear)
			}
			if op == Mean && one.of.Elem == kernels.U64 {
				return nil, fmt.Errorf("%w: mean: %s is a u64, whose sum wraps: use u32 or f32 for it, or sum "+
					"and around.neighbours", ErrHear, t.Var)
			}
			if slices.ContainsFunc(all, func(o term) bool { return o.Term == t }) {
				return nil, fmt.Errorf("%w: %s: %s is there twice", ErrHear, t.Op, t.Var)
			}
			all = append(all, one)
		}
	}
	return all, nil
}

// parts returns the terms that the frame keeps: each once.
func parts(terms []term) (all []term) {
	for _, t := range terms {
		if !slices.ContainsFunc(all, func(o term) bool { return o.name() == t.name() }) {
			all = append(all, t)
		}
	}
	return all
}

// heard returns the variables that neighbours hear, with their places.
func (c Cell) heard(terms []term) (all []int) {
	for i := range c.Vars {
		if slices.ContainsFunc(terms, func(t term) bool { return t.at == i }) {
			all = append(all, i)
		}
	}
	return all
}

// structs writes what the step is declared with, and what the frame asks of a Cell.
func (c Cell) structs(b *strings.Builder, terms []term) {
	b.WriteString("namespace exoswarm_cell {\n")
	for _, name := range published {
		fmt.Fprintf(b, "using exoswarm_frame::%s;\n", name)
	}
	b.WriteString("struct Agent : exoswarm_frame::Numbers {\n")
	for _, v := range c.Vars {
		fmt.Fprintf(b, "  %s %s;\n", v.Elem.CType(), v.Name)
	}
	b.WriteString("};\nstruct Params {\n")
	for _, p := range c.Params {
		fmt.Fprintf(b, "  float %s;\n", p)
	}
	b.WriteString("};\n")
	c.writeAround(b, terms)
	fmt.Fprintf(b, "%s;\n", StepSignature)
	b.WriteString("struct Heard {\n")
	heard := c.heard(terms)
	for _, i := range heard {
		fmt.Fprintf(b, "  %s %s;\n", c.Vars[i].Elem.CType(), c.Vars[i].Name)
	}
	b.WriteString("};\n")
	c.writePart(b, parts(terms))
	b.WriteString("struct exoswarm_step {\n  typedef exoswarm_cell::Agent Agent;\n" +
		"  typedef exoswarm_cell::Params Params;\n  typedef exoswarm_cell::Around Around;\n" +
		"  typedef exoswarm_cell::Heard Heard;\n  typedef exoswarm_cell::Part Part;\n" +
		"  __device__ static __forceinline__ Params params(const unsigned *words) {\n    Params p;\n")
	for i, p := range c.Params {
		fmt.Fprintf(b, "    p.%s = __uint_as_float(words[%d]);\n", p, HeadWords+i)
	}
	b.WriteString("    return p;\n  }\n")
	c.accesses(b, heard)
	b.WriteString("  __device__ static __forceinline__ void around(Around &a, const Part &s, unsigned n) {\n")
	for _, t := range terms {
		fmt.Fprintf(b, "    a.%s.%s = %s;\n", t.Op, t.of.Name, t.seen())
	}
	b.WriteString("  }\n  __device__ static __forceinline__ void step(Agent &a, const Params &p, const Around &r) " +
		"{\n    exoswarm_cell::step(a, p, r);\n  }\n" +
		"  __device__ static __forceinline__ unsigned candidate(const Agent &a) {\n")
	fmt.Fprintf(b, "    return %s;\n  }\n};\n} // namespace exoswarm_cell\n", c.candidate())
}

func (c Cell) writeAround(b *strings.Builder, terms []term) {
	place := ", x, y, z"
	if c.Dimensions == 0 {
		place = ""
	}
	b.WriteString("struct Around {\n  unsigned neighbours" + place + ";\n  unsigned long long tick;\n")
	for _, op := range Ops {
		first := true
		for _, t := range terms {
			if t.Op != op {
				continue
			}
			if first {
				b.WriteString("  struct {\n")
			}
			first = false
			of := t.ctype()
			if op == Mean {
				of = "float"
			}
			fmt.Fprintf(b, "    %s %s;\n", of, t.of.Name)
		}
		if !first {
			fmt.Fprintf(b, "  } %s;\n", op)
		}
	}
	b.WriteString("};\n")
}

func (c Cell) writePart(b *strings.Builder, all []term) {
	heard := "const Heard &h"
	if c.Dimensions == 0 {
		heard += ", float weight"
	}
	b.WriteString("struct Part {\n")
	for _, t := range all {
		fmt.Fprintf(b, "  %s %s;\n", t.ctype(), t.name())
	}
	member := func(head string, line func(t term) string, tail string) {
		b.WriteString("  __device__ " + head + " {\n")
		if tail != "" {
			b.WriteString("    Part p;\n")
		}
		for _, t := range all {
			b.WriteString("    " + line(t) + "\n")
		}
		b.WriteString(tail + "  }\n")
	}
	member("static __forceinline__ Part none()", func(t term) string {
		return fmt.Sprintf("p.%s = %s;", t.name(), t.none())
	}, "    return p;\n")
	member("static __forceinline__ Part of("+heard+")", func(t term) string {
		return fmt.Sprintf("p.%s = %s;", t.name(), t.one())
	}, "    return p;\n")
	member("__forceinline__ void join(const Part &o)", term.join, "")
	b.WriteString("};\n")
}

// accesses writes what reads and writes agents.
func (c Cell) accesses(b *strings.Builder, heard []int) {
	read := func(i int) string {
		v := c.Vars[i]
		text := fmt.Sprintf("exoswarm_frame::get<%s>(row, offsets[%d], x)", v.Elem.StoredCType(), i)
		if v.Elem == kernels.BF16 {
			text = "exoswarm_frame::of_bf16(" + text + ")"
		}
		return text
	}
	const place = "const exoswarm_frame::Row &row, const unsigned *offsets, unsigned x) {\n"
	b.WriteString("  __device__ static __forceinline__ Heard hear(" + place + "    Heard h;\n")
	for _, i := range heard {
		fmt.Fprintf(b, "    h.%s = %s;\n", c.Vars[i].Name, read(i))
	}
	b.WriteString("    return h;\n  }\n" +
		"  __device__ static __forceinline__ void load(Agent &a, const Heard &h, " + place)
	for i, v := range c.Vars {
		from := read(i)
		if slices.Contains(heard, i) {
			from = "h." + v.Name
		}
		fmt.Fprintf(b, "    a.%s = %s;\n", v.Name, from)
	}
	b.WriteString("  }\n  __device__ static __forceinline__ void store(const Agent &a, " + place)
	for i, v := range c.Vars {
		value := "a." + v.Name
		if v.Elem == kernels.BF16 {
			value = "exoswarm_frame::to_bf16(" + value + ")"
		}
		fmt.Fprintf(b, "    exoswarm_frame::put<%s>(row, offsets[%d], x, %s);\n", v.Elem.StoredCType(), i, value)
	}
	b.WriteString("  }\n")
}

func (c Cell) candidate() string {
	at := slices.IndexFunc(c.Vars, func(v kernels.Var) bool { return v.Name == c.Vote })
	if at < 0 {
		return "0"
	}
	if float(c.Vars[at].Elem) {
		return fmt.Sprintf("a.%s != 0.0f", c.Vote)
	}
	return fmt.Sprintf("a.%s < %du ? (unsigned)a.%s : %du", c.Vote, c.Candidates-1, c.Vote, c.Candidates-1)
}
