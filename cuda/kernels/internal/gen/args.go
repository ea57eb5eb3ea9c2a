package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
)

type param struct {
	device.Param
	elem string // the Go type of the elements of a buffer
}

// group is a struct: the parameters of a signature, or some that signatures share.
type group struct {
	name    string
	params  []param
	kernels []string // of a signature
	doc     string   // of the package; "": none
	names   []string // of shared parameters
}

// elems has the Go types of the elements of buffers by their C types. Others are bytes.
var elems = map[string]string{
	"unsigned": "uint32", "unsigned int": "uint32", "uint2": "uint32", "uint4": "uint32", "int": "int32",
	"int4": "int32", "unsigned long long": "uint64", "ulonglong2": "uint64", "long long": "int64", "float": "float32",
	"float4": "float32", "double": "float64", "unsigned short": "uint16",
}

// kinds has how Go writes each kind: the constant, the type of a field of a scalar, the argument of
// a launch from a field, and a field from a value.
var kinds = map[device.Kind]struct{ name, typ, arg, bind string }{
	device.KindBuffer:  {"KindBuffer", "", "%s", "%s.Mem"},
	device.KindUint32:  {"KindUint32", "uint32", "device.Uint32(%s)", "uint32(%s.Bits)"},
	device.KindInt32:   {"KindInt32", "int32", "device.Int32(%s)", "int32(uint32(%s.Bits))"},
	device.KindUint64:  {"KindUint64", "uint64", "device.Uint64(%s)", "%s.Bits"},
	device.KindFloat32: {"KindFloat32", "float32", "device.Float32(%s)", "math.Float32frombits(uint32(%s.Bits))"},
}

// generateArgs returns the text of args.go of the package in dir.
func generateArgs(dir, folder string, options []string) ([]byte, error) {
	families, types, aliases, shared := map[string]string{}, maps.Clone(elems), map[string]string{}, []*group(nil)
	docs, err := comments(dir)
	if err != nil {
		return nil, err
	}
	for _, o := range options {
		if of, to, ok := strings.Cut(o, "~"); ok {
			aliases[of] = to
			continue
		}
		if of, elem, ok := strings.Cut(o, ":"); ok {
			types[of] = elem
			continue
		}
		name, list, _ := strings.Cut(o, "=")
		names := strings.Split(list, ",")
		if !strings.ContainsAny(list, ".*") {
			shared = append(shared, &group{name: name, names: names, doc: docs[name]})
			continue
		}
		for _, pattern := range names {
			families[pattern] = name
		}
	}
	slices.SortFunc(shared, func(a, b *group) int { return cmp.Compare(len(b.names), len(a.names)) })
	signatures := map[string]*group{}
	for _, kernel := range kernels.Names() {
		source, _ := kernels.Lookup(kernel)
		file := path.Base(source.File)
		if path.Dir(source.File) != folder {
			continue
		}
		params, err := parse(source, types)
		if err != nil {
			return nil, err
		}
		for of, to := range aliases {
			pattern, from, _ := strings.Cut(of, ".")
			if ok, _ := path.Match(pattern, kernel); !ok { //nolint:errcheck // of our own
				continue
			}
			for i := range params {
				if params[i].Name == from {
					params[i].Name, params[i].elem, _ = strings.Cut(to, ":")
				}
			}
		}
		name := goName(strings.TrimSuffix(file, ".cu"))
		for pattern, family := range families {
			if ok, _ := path.Match(pattern, kernel); ok || pattern == file { //nolint:errcheck // of our own
				name = family
			}
		}
		s := signatures[name]
		if s == nil {
			s = &group{name: name, params: params, doc: docs[name]}
			signatures[name] = s
		}
		for i, p := range params {
			if i >= len(s.params) || s.params[i].Param != p.Param || len(params) != len(s.params) {
				return nil, fmt.Errorf("%s has another signature than %s: give it another name", kernel, s.kernels[0])
			}
			if s.params[i].elem != p.elem { // kernels of several types
				s.params[i].elem = "byte"
			}
		}
		s.kernels = append(s.kernels, kernel)
		for _, g := range shared {
			if at := g.in(params); at >= 0 && g.params == nil {
				g.params = params[at:][:len(g.names)]
			}
		}
	}
	all := make([]*group, 0, len(signatures))
	for _, name := range slices.Sorted(maps.Keys(signatures)) {
		all = append(all, signatures[name])
	}
	var w writer
	w.head(path.Base(path.Join("kernels", folder)), all)
	for _, g := range append(shared, all...) {
		if g.params == nil {
			return nil, fmt.Errorf("no kernel has the parameters %s in a row", strings.Join(g.names, ", "))
		}
		w.group(g, shared)
	}
	text := w.Bytes()
	if !bytes.Contains(text, []byte("slices.Concat")) {
		text = bytes.Replace(text, []byte("\"slices\"\n"), nil, 1)
	}
	return format.Source(text)
}

// comments returns the comments of a package that are about arguments, by the name of their struct.
func comments(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	docs := map[string]string{}
	for _, file := range files {
		if filepath.Base(file) == argsFile {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		for _, c := range tree.Comments {
			first, _, _ := strings.Cut(c.Text(), " ")
			if name, ok := strings.CutSuffix(first, "Args"); ok {
				for _, line := range c.List {
					docs[name] += line.Text + "\n"
				}
			}
		}
	}
	return docs, nil
}

// in returns the index of the first parameter of a shared group in a signature, -1 if the signature
// does not have them.
func (g *group) in(params []param) int {
	for at := range params {
		if g.at(params[at:]) {
			return at
		}
	}
	return -1
}

// at reports whether a list begins with the parameters of a shared group.
func (g *group) at(params []param) bool {
	if len(params) < len(g.names) {
		return false
	}
	for i, name := range g.names {
		if params[i].Name != name || g.params != nil && params[i] != g.params[i] {
			return false
		}
	}
	return true
}

var macro = regexp.MustCompile(`#define (\w+_PARAMS)\((\w+), (\w+)\)((?:.*\\\n)*.*)`)

func parse(source kernels.Source, types map[string]string) ([]param, error) {
	code := source.Code
	if m := macro.FindStringSubmatch(code); m != nil {
		code = regexp.MustCompile(m[1]+`\((unsigned short|float), (unsigned short|float)\)`).ReplaceAllStringFunc(code,
			func(call string) string {
				args := strings.Split(call[len(m[1])+1:len(call)-1], ", ")
				return strings.NewReplacer(m[2]+" *", args[0]+" *", m[3]+" *", args[1]+" *", "\\\n", "").Replace(m[4])
			})
	}
	declared, _, err := device.ParseKernel(source.Name, code)
	if err != nil {
		return nil, err
	}
	list := regexp.MustCompile(`\b` + source.Name + `\(([^()]*)\)`).FindStringSubmatch(code)
	texts := strings.Split(list[1], ",")
	params := make([]param, len(declared))
	for i, p := range declared {
		params[i].Param = p
		if p.Kind == device.KindBuffer {
			of, _, _ := strings.Cut(strings.TrimPrefix(strings.TrimSpace(texts[i]), "const "), "*")
			params[i].elem = cmp.Or(types[strings.TrimSpace(of)], "byte")
		}
	}
	return params, nil
}

// goName returns the name of a parameter or a file as one of Go.
func goName(name string) string {
	var b strings.Builder
	for _, part := range strings.Split(name, "_") {
		switch part {
		case "id", "bf16", "lif", "sir":
			part = strings.ToUpper(part)
		case "ids":
			part = "IDs"
		}
		b.WriteString(strings.ToUpper(part[:1]) + part[1:])
	}
	return b.String()
}

type writer struct {
	bytes.Buffer
	value string // the Go type of an argument that a twin sees
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

// wrap writes items between the text before and the text after, with sep between them, in lines of
// at most 100 columns.
func (w *writer) wrap(before string, items []string, sep, after string) {
	line := before
	for i, item := range items {
		if i < len(items)-1 {
			item += sep
		}
		if len(line)+len(item) > 100 && line != "" {
			w.line("%s", strings.TrimRight(line, " "))
			line = ""
		}
		line += item
	}
	w.line("%s%s", line, after)
}

// comment writes a comment that wraps at 100 columns.
func (w *writer) comment(format string, args ...any) {
	line := "//"
	for _, word := range strings.Fields(fmt.Sprintf(format, args...)) {
		if len(line)+1+len(word) > 100 {
			w.line("%s", line)
			line = "//"
		}
		line += " " + word
	}
	w.line("%s", line)
}

// head writes the imports and the function from kernels to signatures.
func (w *writer) head(pkg string, all []*group) {
	w.line("// Code generated by gen from the .cu files. DO NOT EDIT.\n\npackage %s\n\nimport (", pkg)
	if slices.ContainsFunc(all, func(g *group) bool {
		return slices.ContainsFunc(g.params, func(p param) bool { return p.Kind == device.KindFloat32 })
	}) {
		w.line("%q", "math")
	}
	w.line("%q\n\n%q", "slices", "github.com/exoswarm/exoswarm/cuda/device")
	if w.value = "Value"; pkg != "kernels" {
		w.line("%q", "github.com/exoswarm/exoswarm/cuda/kernels")
		w.value = "kernels.Value"
	}
	w.line(")\n\n// paramsOf returns the signature of a kernel; nil if this package has no such kernel.")
	w.line("func paramsOf(kernel string) []device.Param {\nswitch kernel {")
	for _, g := range all {
		names := make([]string, len(g.kernels))
		for i, k := range g.kernels {
			names[i] = fmt.Sprintf("%q", k)
		}
		w.wrap("case ", names, ", ", ":")
		w.line("return params%s", g.name)
	}
	w.line("}\nreturn nil\n}\n")
}

// part is a run of parameters of a group: a nested group, or parameters without one.
type part struct {
	nested *group
	params []param
	from   int // of the first one in the group
}

// parts divides the parameters of a group at the groups that it has.
func (g *group) parts(nested []*group) (all []part) {
	for at := 0; at < len(g.params); {
		i := slices.IndexFunc(nested, func(n *group) bool { return n != g && n.at(g.params[at:]) })
		switch {
		case i >= 0:
			all = append(all, part{nested[i], g.params[at:][:len(nested[i].names)], at})
			at += len(nested[i].names)
			continue
		case len(all) == 0 || all[len(all)-1].nested != nil:
			all = append(all, part{nil, g.params[at:at:len(g.params)], at})
		}
		p := &all[len(all)-1]
		p.params = append(p.params, g.params[at])
		at++
	}
	return all
}

// group writes the structs of a group and their methods. nested are the groups that it may have.
func (w *writer) group(g *group, nested []*group) {
	shared := len(g.kernels) == 0
	parts := g.parts(nested)
	w.params(g, parts)
	used := "Several kernels share them."
	if !shared {
		used = "Kernels: " + strings.Join(g.kernels, ", ") + "."
	}
	if g.doc != "" {
		w.line("%s//", g.doc)
		w.comment("%s", used)
	} else {
		w.comment("%sArgs are arguments of a launch. %s", g.name, used)
	}
	w.fields(g, parts, "Args", func(param) string { return "device.Arg" })
	appendTo := "appendTo"
	if !shared {
		appendTo = "AppendTo"
		w.line("// Args returns the arguments in the order of the kernel.")
		w.line("func (a %sArgs) Args() []device.Arg { return a.AppendTo(nil) }\n", g.name)
		w.line("// AppendTo appends the arguments in the order of the kernel.")
	}
	w.line("func (a *%sArgs) %s(to []device.Arg) []device.Arg {", g.name, appendTo)
	for i, p := range parts {
		result := "to ="
		if i == len(parts)-1 {
			result = "return"
		}
		if p.nested != nil {
			w.line("%s a.%sArgs.appendTo(to)", result, p.nested.name)
			continue
		}
		args := make([]string, len(p.params))
		for k, one := range p.params {
			args[k] = fmt.Sprintf(kinds[one.Kind].arg, "a."+goName(one.Name))
		}
		w.wrap(result+" append(to, ", args, ", ", ")")
	}
	w.line("}\n")
	w.comment("%sBound are arguments that a twin sees. %s", g.name, used)
	w.fields(g, parts, "Bound", func(p param) string { return "[]" + p.elem })
	bind := "bind"
	if !shared {
		bind = "Bind"
		w.line("// Signature implements kernels.Bound.")
		w.line("func (*%sBound) Signature() []device.Param { return params%s }\n", g.name, g.name)
		w.line("// Bind implements kernels.Bound.")
	}
	w.line("func (b *%sBound) %s(v []%s) {", g.name, bind, w.value)
	for _, p := range parts {
		if p.nested != nil {
			w.line("b.%sBound.bind(v[%d:%d])", p.nested.name, p.from, p.from+len(p.params))
			continue
		}
		for i, one := range p.params {
			from := kinds[one.Kind].bind
			if one.elem != "" && one.elem != "byte" {
				from = "device.Of[" + one.elem + "](%s.Mem)"
			}
			w.line("b.%s = "+from, goName(one.Name), fmt.Sprintf("v[%d]", p.from+i))
		}
	}
	w.line("}\n")
}

func (w *writer) params(g *group, parts []part) {
	literal := func(before string, p part, after string) {
		items := make([]string, len(p.params))
		for i, one := range p.params {
			items[i] = fmt.Sprintf("{Name: %q, Kind: device.%s}", one.Name, kinds[one.Kind].name)
		}
		w.line("%s[]device.Param{", before)
		w.wrap("", items, ", ", ",")
		w.line("}%s", after)
	}
	switch {
	case len(parts) == 1 && parts[0].nested == nil:
		literal("var params"+g.name+" = ", parts[0], "\n")
	case len(parts) == 1:
		w.line("var params%s = params%s\n", g.name, parts[0].nested.name)
	default:
		w.line("var params%s = slices.Concat(", g.name)
		for _, p := range parts {
			if p.nested != nil {
				w.line("params%s,", p.nested.name)
			} else {
				literal("", p, ",")
			}
		}
		w.line(")\n")
	}
}

// fields writes a struct; memory returns the type of the field of a buffer.
func (w *writer) fields(g *group, parts []part, kind string, memory func(param) string) {
	w.line("type %s%s struct {", g.name, kind)
	for _, p := range parts {
		if p.nested != nil {
			w.line("%s%s", p.nested.name, kind)
			continue
		}
		// Fields of one type in a row share a line.
		for rest := p.params; len(rest) > 0; {
			typ := func(p param) string { return cmp.Or(kinds[p.Kind].typ, memory(p)) }
			of, n := typ(rest[0]), 1
			for n < len(rest) && typ(rest[n]) == of {
				n++
			}
			names := make([]string, n)
			for i := range names {
				names[i] = goName(rest[i].Name)
			}
			w.wrap("", names, ", ", " "+of)
			rest = rest[n:]
		}
	}
	w.line("}\n")
}
