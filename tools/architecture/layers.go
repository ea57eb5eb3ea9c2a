package main

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// layer is a named group of packages. A package imports packages of its own layer and of layers
// below.
type layer struct {
	name string
	// doc is a sentence about the layer.
	doc string
	// row numbers the row of the picture, from the top. Layers of one row do not import each other.
	row int
	// folders are the folders of the layer; the first layer with a folder of a package has it.
	folders []string
}

// base and application are the layers of internal/, which imports tell apart.
const (
	base        = "base"
	application = "application"
)

var layers = []layer{
	{"commands", "The programs. They alone wire parts together.", 0, []string{"cmd"}},
	{
		application, "What the commands do: runs, detectors, evaluation, the dashboard, and answers to operators.", 1,
		[]string{"internal"},
	},
	{
		"CPU agents", "Rows come in, and decisions go out. They hold no GPU code, and talk to GPU agents by logs.", 2,
		[]string{"cpuagents"},
	},
	{
		"GPU agents", "The shards of swarms on devices. They do no I/O of their own: queue and stores are given.", 2,
		[]string{"gpuagents"},
	},
	{"queue", "Jobs, logs and leases over NATS JetStream.", 2, []string{"jobs/natsq"}},
	{"page store", "Pages over GPU, memory and disks, with checkpoints.", 3, []string{"tiers"}},
	{
		"devices", "One contract for CUDA and the host, the kernels, and votes and fusion on devices.", 4,
		[]string{"cuda", "consensus/round", "consensus/fusion"},
	},
	{"contracts", "The protocols, and the meaning of a vote. They know no server and no device.", 5, []string{
		"jobs", "consensus",
	}},
	{base, "Helpers that import nothing of ours outside this layer.", 6, nil},
}

func (t *tree) layerOf(p *pkg) *layer {
	for i := range layers {
		l := &layers[i]
		if l.name == application && t.helper(p) {
			return &layers[len(layers)-1]
		}
		if slices.ContainsFunc(l.folders, func(f string) bool { return within(f, p.path) }) && !t.deeper(l, p) {
			return l
		}
	}
	return nil
}

func within(folder, of string) bool { return of == folder || strings.HasPrefix(of, folder+"/") }

// deeper reports whether another layer has a longer folder of a package.
func (t *tree) deeper(l *layer, p *pkg) bool {
	longest := func(l *layer) (n int) {
		for _, f := range l.folders {
			if within(f, p.path) {
				n = max(n, len(f))
			}
		}
		return n
	}
	return slices.ContainsFunc(layers, func(o layer) bool { return longest(&o) > longest(l) })
}

// helper reports whether a package is of internal/ and imports nothing of ours but such packages.
func (t *tree) helper(p *pkg) bool {
	if !within("internal", p.path) {
		return false
	}
	return !slices.ContainsFunc(p.imports, func(i string) bool { return !t.helper(t.pkgs[i]) })
}

func (t *tree) upward() (all []string) {
	for _, p := range t.sorted(func(p *pkg) bool { return p.built }) {
		from := t.layerOf(p)
		for _, i := range p.imports {
			to := t.layerOf(t.pkgs[i])
			if from != nil && to != nil && from != to && from.row >= to.row {
				all = append(all, fmt.Sprintf("%s (%s) imports %s (%s)", p.path, from.name, i, to.name))
			}
		}
	}
	return all
}

func (t *tree) document() string {
	const header = "\n| package | is or does |\n|---|---|\n"
	var b strings.Builder
	b.WriteString("\n## Layers\nImports lead downward. Layers side by side do not import each other.\n\n")
	b.WriteString("```text\n" + t.picture() + "```\n")
	for i := range layers {
		l := &layers[i]
		all := t.sorted(func(p *pkg) bool { return p.built && t.layerOf(p) == l })
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n%s\n%s", capital(l.name), l.doc, header)
		t.table(&b, all)
	}
	b.WriteString("\n### Not in the commands\nThe suites, fixtures and fakes of tests.\n" + header)
	t.table(&b, t.sorted(func(p *pkg) bool { return (!p.built || t.layerOf(p) == nil) && p.doc != "" }))
	return b.String()
}

func (t *tree) table(b *strings.Builder, all []*pkg) {
	for _, p := range all {
		fmt.Fprintf(b, "| `%s` | %s |\n", p.path, strings.ReplaceAll(p.doc, "|", "\\|"))
	}
}

func capital(s string) string { return strings.ToUpper(s[:1]) + s[1:] }

const width = 96

// picture draws a box for each layer, the layers of a row side by side.
func (t *tree) picture() string {
	var b strings.Builder
	for row := 0; ; row++ {
		var boxes [][]string
		n := 0
		for i := range layers {
			if layers[i].row == row {
				n++
			}
		}
		if n == 0 {
			return b.String()
		}
		for i := range layers {
			if layers[i].row == row {
				boxes = append(boxes, t.box(&layers[i], (width-2*(n-1))/n))
			}
		}
		lines := 0
		for _, x := range boxes {
			lines = max(lines, len(x))
		}
		for i := range lines {
			line := ""
			for k, x := range boxes {
				if k > 0 {
					line += "  "
				}
				w := len([]rune(x[0]))
				switch {
				case i < len(x)-1:
					line += x[i]
				case i == lines-1:
					line += x[len(x)-1]
				default:
					line += "│" + strings.Repeat(" ", w-2) + "│"
				}
			}
			b.WriteString(line + "\n")
		}
	}
}

// box draws a layer: its name, the numbers of its packages and levels, and the names of packages.
func (t *tree) box(l *layer, width int) []string {
	all := t.sorted(func(p *pkg) bool { return p.built && t.layerOf(p) == l })
	low, high := 0, 0
	var names []string
	for _, p := range all {
		if low == 0 || p.level < low {
			low = p.level
		}
		high = max(high, p.level)
		short := p.path
		for _, f := range append([]string{"cmd/internal", "internal/app", "internal/base", "internal"}, l.folders...) {
			if short = strings.TrimPrefix(short, f+"/"); short == f {
				short = path.Base(f)
			}
		}
		if top, _, _ := strings.Cut(short, "/"); !slices.Contains(names, top) {
			names = append(names, top)
		}
	}
	inner := width - 4
	row := func(s string) string { return "│ " + s + strings.Repeat(" ", max(0, inner-len([]rune(s)))) + " │" }
	out := []string{
		"┌" + strings.Repeat("─", width-2) + "┐",
		row(strings.ToUpper(l.name)), row(fmt.Sprintf("%d packages, levels %d-%d", len(all), low, high)),
	}
	line := ""
	for _, n := range names {
		if len(line)+len(n)+1 > inner {
			out, line = append(out, row(line)), ""
		}
		line = strings.TrimPrefix(line+" "+n, " ")
	}
	return append(out, row(line), "└"+strings.Repeat("─", width-2)+"┘")
}
