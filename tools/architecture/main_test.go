package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

// product loads the packages once.
var product = sync.OnceValues(func() (*tree, error) { return load(root) })

func read(t *testing.T) (*tree, string) {
	t.Helper()
	p, err := product()
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(root, "docs", "architecture.md"))
	if err != nil {
		t.Fatal(err)
	}
	return p, string(text)
}

// TestCurrent: the generated part of the document is what the command writes.
func TestCurrent(t *testing.T) {
	p, text := read(t)
	head, err := headOf(text)
	if err != nil {
		t.Fatal(err)
	}
	if head+p.document() != text {
		t.Error("docs/architecture.md is not current: make architecture")
	}
	if n := strings.Count(head, "\n"); n > 60 {
		t.Errorf("the head has %d lines: keep it within 60, so that it is read", n)
	}
}

// TestDownward: imports lead from a layer to itself and to layers below, and each package that the
// commands are built from has a layer and a sentence.
func TestDownward(t *testing.T) {
	p, _ := read(t)
	for _, up := range p.upward() {
		t.Error(up)
	}
	for _, one := range p.sorted(func(p *pkg) bool { return p.built }) {
		if p.layerOf(one) == nil {
			t.Errorf("%s is in no layer", one.path)
		}
		if one.doc == "" {
			t.Errorf("%s has no package comment", one.path)
		}
	}
}

// place is a file with a function or type in it, as the document names them.
var place = regexp.MustCompile("`([\\w/.]+\\.go)`[ |\n]+`([\\w.]+)`")

// question is a line of the table of questions.
var question = regexp.MustCompile("(?m)^\\| .*\\? \\| `[\\w/.]+\\.go` \\| `[\\w.]+` \\|$")

// TestPlaces: the files that the head names exist, and have the functions that it names beside
// them. It answers ten questions.
func TestPlaces(t *testing.T) {
	_, text := read(t)
	head, err := headOf(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range place.FindAllStringSubmatch(head, -1) {
		if ok, err := declares(filepath.Join(root, m[1]), m[2]); err != nil || !ok {
			t.Errorf("%s does not declare %s: %v", m[1], m[2], err)
		}
	}
	if n := len(question.FindAllString(head, -1)); n < 10 {
		t.Errorf("the head answers %d questions", n)
	}
	if n := len(place.FindAllString(head, -1)); n < strings.Count(head, ".go`") {
		t.Errorf("%d of %d files have a function beside them", n, strings.Count(head, ".go`"))
	}
}

// TestDeclares: a function, a method and a type are found, and others are not.
func TestDeclares(t *testing.T) {
	for name, want := range map[string]bool{
		"load": true, "tree.reach": true, "pkg": true, "reach": false, "tree.load": false, "none": false,
	} {
		if got, err := declares("main.go", name); err != nil || got != want {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// declares reports whether a file declares a function, a type or a method, such as Type.Method.
func declares(file, name string) (found bool, err error) {
	f, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
	if err != nil {
		return false, err
	}
	ast.Inspect(f, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			full := n.Name.Name
			if n.Recv != nil {
				full = receiver(n.Recv.List[0].Type) + "." + full
			}
			found = found || full == name
			return false
		case *ast.TypeSpec:
			found = found || n.Name.Name == name
		}
		return true
	})
	return found, nil
}

func receiver(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.StarExpr:
		return receiver(e.X)
	case *ast.IndexExpr:
		return receiver(e.X)
	case *ast.Ident:
		return e.Name
	}
	return ""
}
