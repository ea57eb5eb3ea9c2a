// Command argsgen writes args.go of one package of kernels: the signatures of its kernels, and for
// each signature a struct of the arguments of a launch and one of the arguments that a twin sees.
// All are read from the .cu files, so the names and the order of the parameters are written there
// alone. Run it through go generate ./cuda/kernels/... after a signature has changed; a test fails
// until that is done.
//
// The first argument is the folder of the package below cuda/kernels, or "." for cuda/kernels itself.
// The kernels of a file have a signature, which is named after the file. Another argument
// NAME=a.cu,b_* gives the signature that the kernels of some files or names share a name. NAME=p,q,...
// gives parameters that follow one another in several signatures a struct of their own. TYPE:byte says
// that a twin sees memory of a C type as bytes. KERNELS.p~q:TYPE says that parameter p of some kernels
// is the one that others call q, memory of a type. A comment of the package that begins with NAMEArgs
// becomes that of the struct.
package main

import (
	"bytes"
	"cmp"
	"fmt"
	"go/format"
	"go/parser"
	"go/token"
	"log"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	_ "github.com/exoswarm/exoswarm/cuda/kernels/arrayset" // its kernels are in the set
	_ "github.com/exoswarm/exoswarm/cuda/kernels/graphset" // so are these
	_ "github.com/exoswarm/exoswarm/cuda/kernels/gridset"  // and these
	_ "github.com/exoswarm/exoswarm/cuda/kernels/spaceset" // and these
	_ "github.com/exoswarm/exoswarm/cuda/kernels/swarmset" // and so are these
)

// output is the file that the command writes.
const output = "args.go"

func main() {
	log.SetFlags(0)
	text, err := generate(".", os.Args[1], os.Args[2:])
	if err == nil {
		err = os.WriteFile(output, text, 0o644)
	}
	if err != nil {
		log.Fatal("argsgen: ", err)
	}
}

// param is a parameter of a kernel.
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

// kinds has how Go writes each kind: the constant, the type of a field of a scalar, the argument of a
// launch from a field, and a field from a value.
var kinds = map[device.Kind]struct{ name, typ, arg, bind string }{
	device.KindBuffer:  {"KindBuffer", "", "%s", "%s.Mem"},
	device.KindUint32:  {"KindUint32", "uint32", "device.Uint32(%s)", "uint32(%s.Bits)"},
	device.KindInt32:   {"KindInt32", "int32", "device.Int32(%s)", "int32(uint32(%s.Bits))"},
	device.KindUint64:  {"KindUint64", "uint64", "device.Uint64(%s)", "%s.Bits"},
	device.KindFloat32: {"KindFloat32", "float32", "device.Float32(%s)", "math.Float32frombits(uint32(%s.Bits))"},
}

// generate returns the text of the file of a package, whose sources are in dir.
func generate(dir, folder string, options []string) ([]byte, error) {
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
	return format.Source(w.Bytes())
}

// comments returns the comments of a package that are about arguments, by the name of their struct.
func comments(dir string) (map[string]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return nil, err
	}
	docs := map[string]string{}
	for _, file := range files {
		if filepath.Base(file) == output {
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

// in returns where the parameters of a shared group begin in a signature, and -1 if it has them not.
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

// macro matches the definition of a macro that makes a list of parameters.
var macro = regexp.MustCompile(`#define (\w+_PARAMS)\((\w+), (\w+)\)((?:.*\\\n)*.*)`)

// parse reads the signature of a kernel.
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

// writer is the text of a file.
type writer struct {
	bytes.Buffer
	value string // the Go type of an argument that a twin sees
}

func (w *writer) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

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

// head writes what comes before the structs: the function from kernels to signatures.
func (w *writer) head(pkg string, all []*group) {
	w.line("// Code generated by argsgen from the .cu files. DO NOT EDIT.\n\npackage %s\n\nimport (", pkg)
	if slices.ContainsFunc(all, func(g *group) bool {
		return slices.ContainsFunc(g.params, func(p param) bool { return p.Kind == device.KindFloat32 })
	}) {
		w.line("%q\n", "math")
	}
	w.line("%q", "github.com/exoswarm/exoswarm/cuda/device")
	if w.value = "Value"; pkg != "kernels" {
		w.line("%q", "github.com/exoswarm/exoswarm/cuda/kernels")
		w.value = "kernels.Value"
	}
	w.line(")\n\n// paramsOf returns the signature of a kernel; nil: it has none here.")
	w.line("func paramsOf(kernel string) []device.Param {\nswitch kernel {")
	for _, g := range all {
		w.line("case %s:\nreturn params%s", `"`+strings.Join(g.kernels, "\",\n\"")+`"`, g.name)
	}
	w.line("}\nreturn nil\n}\n")
}

// group writes the structs of a group. nested are the shared groups that it may have.
func (w *writer) group(g *group, nested []*group) {
	doc := "those that share these parameters"
	if len(g.kernels) > 0 {
		doc = strings.Join(g.kernels, ", ")
		w.line("var params%s = []device.Param{", g.name)
		for _, p := range g.params {
			w.line("{Name: %q, Kind: device.%s},", p.Name, kinds[p.Kind].name)
		}
		w.line("}\n")
	}
	if g.doc != "" {
		w.line("%s//", g.doc)
		w.comment("Kernels: %s.", doc)
	} else {
		w.comment("%sArgs are the arguments of a launch. Kernels: %s.", g.name, doc)
	}
	w.fields(g, nested, "Args", func(param) string { return "device.Arg" })
	if len(g.kernels) > 0 {
		w.line("// Args returns the arguments in the order of the kernel.")
		w.line("func (a %sArgs) Args() []device.Arg { return a.AppendTo(nil) }\n", g.name)
		w.line("// AppendTo appends the arguments in the order of the kernel.")
		w.line("func (a *%sArgs) AppendTo(to []device.Arg) []device.Arg {\nreturn append(to,", g.name)
		for _, p := range g.params {
			w.line(kinds[p.Kind].arg+",", "a."+goName(p.Name))
		}
		w.line(")\n}\n")
	}
	w.comment("%sBound are the arguments that a twin sees. Kernels: %s.", g.name, doc)
	w.fields(g, nested, "Bound", func(p param) string { return "[]" + p.elem })
	if len(g.kernels) == 0 {
		return
	}
	w.line("// Signature implements kernels.Bound.")
	w.line("func (*%sBound) Signature() []device.Param { return params%s }\n", g.name, g.name)
	w.line("// Bind implements kernels.Bound.\nfunc (b *%sBound) Bind(v []%s) {", g.name, w.value)
	for i, p := range g.params {
		bind := kinds[p.Kind].bind
		if p.elem != "" && p.elem != "byte" {
			bind = "device.Of[" + p.elem + "](%s.Mem)"
		}
		w.line("b.%s = "+bind, goName(p.Name), fmt.Sprintf("v[%d]", i))
	}
	w.line("}\n")
}

// fields writes a struct; memory returns the type of the field of a buffer.
func (w *writer) fields(g *group, nested []*group, kind string, memory func(param) string) {
	w.line("type %s%s struct {", g.name, kind)
	for rest := g.params; len(rest) > 0; {
		at := slices.IndexFunc(nested, func(n *group) bool { return n != g && n.at(rest) })
		if at >= 0 {
			w.line("%s%s", nested[at].name, kind)
			rest = rest[len(nested[at].names):]
			continue
		}
		typ := kinds[rest[0].Kind].typ
		if typ == "" {
			typ = memory(rest[0])
		}
		w.line("%s %s", goName(rest[0].Name), typ)
		rest = rest[1:]
	}
	w.line("}\n")
}
