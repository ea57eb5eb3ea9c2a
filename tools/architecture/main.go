// Command architecture writes the generated part of docs/architecture.md: a picture of the layers,
// and every package of the product in one line, which is the first sentence of its package comment.
// With -count it prints the size of the tree in place of this.
//
//	go run -C tools ./architecture
//	go run -C tools ./architecture -count
package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// mark is the line behind which the document is generated.
const mark = "<!-- Generated from package comments by make architecture. Edit nothing below. -->"

func main() {
	root := flag.String("root", "..", "root of the repository")
	count := flag.Bool("count", false, "print counts of packages, levels and lines, and write nothing")
	flag.Parse()
	if err := run(*root, *count, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "architecture:", err)
		os.Exit(1)
	}
}

// run writes the document, or the counts to out.
func run(root string, count bool, out io.Writer) error {
	t, err := load(root)
	if err != nil {
		return err
	}
	if count {
		return t.count(out)
	}
	file := filepath.Join(root, "docs", "architecture.md")
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	head, err := headOf(string(text))
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	return os.WriteFile(file, []byte(head+t.document()), 0o644)
}

// headOf returns what people write of the document, with the mark.
func headOf(text string) (string, error) {
	head, _, ok := strings.Cut(text, mark)
	if !ok {
		return "", fmt.Errorf("it has no line %q: put it where the generated part begins", mark)
	}
	return head + mark + "\n", nil
}

// pkg is a package of the product.
type pkg struct {
	path    string // below the module
	doc     string // the first sentence of the package comment, without its beginning
	name    string
	imports []string // packages of the product
	files   []string // without tests
	level   int      // 1 for a package that imports no other of the product
	built   bool     // the three commands are built with it
}

// tree is the product by path.
type tree struct {
	root string
	pkgs map[string]*pkg
}

const module = "github.com/exoswarm/exoswarm"

// commands are the programs of the product.
var commands = []string{"cmd/exoswarm", "cmd/cpuagent", "cmd/gpuagent"}

// library is what command worker is built from. The command has no files without cgo.
const library = "cmd/internal/worker"

// list runs go list in a folder, with cgo or without, and calls fn with the decoder of what it
// prints.
func list(dir, cgo string, fn func(*json.Decoder) error, args ...string) error {
	cmd := exec.Command("go", append([]string{"list"}, args...)...)
	cmd.Dir = dir
	// What is listed does not depend on the machine.
	cmd.Env = append(os.Environ(), "CGO_ENABLED="+cgo, "GOOS=linux", "GOARCH=amd64",
		"GOFLAGS=-buildvcs=false -tags=connectors")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list in %s: %w\n%s", dir, err, stderr.Bytes())
	}
	for d := json.NewDecoder(bytes.NewReader(text)); ; {
		if err := fn(d); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("go list in %s: %w", dir, err)
		}
	}
}

// load reads the packages of the product.
func load(root string) (*tree, error) {
	t := &tree{root, map[string]*pkg{}}
	err := list(root, "0", func(d *json.Decoder) error {
		var p struct {
			Dir, ImportPath, Name, Doc string
			GoFiles, Imports           []string
		}
		if err := d.Decode(&p); err != nil {
			return err
		}
		one := &pkg{path: below(p.ImportPath), name: p.Name, doc: sentence(p.Doc)}
		for _, f := range p.GoFiles {
			one.files = append(one.files, filepath.Join(p.Dir, f))
		}
		for _, i := range p.Imports {
			if b := below(i); b != i {
				one.imports = append(one.imports, b)
			}
		}
		t.pkgs[one.path] = one
		return nil
	}, "-json=Dir,ImportPath,Name,Doc,GoFiles,Imports", "./...")
	if err != nil {
		return nil, err
	}
	for _, p := range t.pkgs {
		t.levelOf(p)
	}
	for _, c := range append(slices.Clone(commands), library) {
		if t.pkgs[c] == nil {
			return nil, fmt.Errorf("there is no package %s", c)
		}
		t.reach(t.pkgs[c])
	}
	return t, nil
}

// below returns an import path without the path of the module. Other paths stay.
func below(path string) string { return strings.TrimPrefix(path, module+"/") }

// sentence returns what the first sentence of a package comment says of the package.
func sentence(synopsis string) string {
	words := strings.SplitN(synopsis, " ", 3)
	if len(words) == 3 && (words[0] == "Package" || words[0] == "Command") {
		synopsis = words[2]
	}
	return strings.TrimSuffix(synopsis, ".")
}

// levelOf computes the level of a package and of the packages that it imports.
func (t *tree) levelOf(p *pkg) int {
	if p.level == 0 {
		p.level = 1
		for _, i := range p.imports {
			p.level = max(p.level, 1+t.levelOf(t.pkgs[i]))
		}
	}
	return p.level
}

// reach marks a package and what it reaches as built.
func (t *tree) reach(p *pkg) {
	if p.built {
		return
	}
	p.built = true
	for _, i := range p.imports {
		t.reach(t.pkgs[i])
	}
}

// sorted returns the packages that a function selects, by path.
func (t *tree) sorted(selects func(*pkg) bool) (all []*pkg) {
	for _, p := range t.pkgs {
		if selects(p) {
			all = append(all, p)
		}
	}
	slices.SortFunc(all, func(a, b *pkg) int { return strings.Compare(a.path, b.path) })
	return all
}
