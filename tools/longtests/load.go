package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// longTest is a test that differs in a long run.
type longTest struct {
	dir  string // of its package, below the root of the repository
	name string
	only bool // a plain run skips it
}

func (t longTest) key() string { return filepath.ToSlash(t.dir) + "." + t.name }

type listed struct {
	ImportPath, Dir                              string
	Module                                       struct{ Path, Dir string }
	GoFiles, CgoFiles, TestGoFiles, XTestGoFiles []string
}

// node is a declaration of a package: a function, a method, a variable or a type. Methods of one
// name are one node, as the types of expressions are not known.
type node struct{ pkg, name string }

type sources struct {
	edges map[node][]node
	found []longTest // every test, long or not, in the order of packages and files
	pkgs  map[string]string
}

// longPackage is the package whose callers differ in a long run.
const longPackage = "github.com/exoswarm/exoswarm/internal/base/testkit"

func load(modules ...string) (*sources, error) {
	s := &sources{edges: map[node][]node{}, pkgs: map[string]string{}}
	for _, dir := range modules {
		below, err := filepath.Rel(modules[0], dir)
		if err == nil {
			err = s.module(dir, below)
		}
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// module adds the packages of the module in dir, whose root is below the root of the repository.
func (s *sources) module(dir, below string) error {
	cmd := exec.Command("go", "list", "-json=ImportPath,Dir,Module,GoFiles,CgoFiles,TestGoFiles,XTestGoFiles", "./...")
	cmd.Dir = dir
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("go list: %w", err)
	}
	for d := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			return nil
		} else if err != nil {
			return fmt.Errorf("go list: %w", err)
		}
		rel, err := filepath.Rel(p.Module.Dir, p.Dir)
		if err != nil {
			return err
		}
		at := filepath.Join(below, rel)
		for _, f := range slices.Concat(p.GoFiles, p.CgoFiles, p.TestGoFiles) {
			if err := s.file(p.ImportPath, at, filepath.Join(p.Dir, f)); err != nil {
				return err
			}
		}
		for _, f := range p.XTestGoFiles {
			if err := s.file(p.ImportPath+"_test", at, filepath.Join(p.Dir, f)); err != nil {
				return err
			}
		}
	}
}

func (s *sources) file(pkg, dir, path string) error {
	f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	imports := map[string]string{}
	for _, i := range f.Imports {
		from, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return err
		}
		short := from[strings.LastIndex(from, "/")+1:]
		if i.Name != nil {
			short = i.Name.Name
		}
		imports[short] = from
	}
	for _, d := range f.Decls {
		switch d := d.(type) {
		case *ast.FuncDecl:
			s.add(node{pkg, d.Name.Name}, d, imports)
			if d.Recv == nil && strings.HasPrefix(d.Name.Name, "Test") && d.Name.Name != "TestMain" &&
				strings.HasSuffix(path, "_test.go") {
				s.found = append(s.found, longTest{dir: dir, name: d.Name.Name})
				s.pkgs[dir+"."+d.Name.Name] = pkg
			}
		case *ast.GenDecl:
			for _, spec := range d.Specs {
				if v, ok := spec.(*ast.ValueSpec); ok {
					for _, name := range v.Names {
						s.add(node{pkg, name.Name}, v, imports)
					}
				}
			}
		}
	}
	return nil
}

func (s *sources) add(of node, decl ast.Node, imports map[string]string) {
	ast.Inspect(decl, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && imports[x.Name] != "" {
				s.edges[of] = append(s.edges[of], node{imports[x.Name], n.Sel.Name})
				return false
			}
		case *ast.Ident:
			s.edges[of] = append(s.edges[of], node{of.pkg, n.Name})
		}
		return true
	})
}

func (s *sources) tests() (long []longTest) {
	only := s.reaching(func(function string) bool { return function == "OnlyLong" })
	sample := s.reaching(func(function string) bool {
		return slices.Contains([]string{"Long", "Of", "Few", "Checks"}, function)
	})
	for _, t := range s.found {
		of := node{s.pkgs[t.dir+"."+t.name], t.name}
		if t.only = only[of]; t.only || sample[of] {
			long = append(long, t)
		}
	}
	slices.SortStableFunc(long, func(a, b longTest) int { return strings.Compare(a.dir, b.dir) })
	return long
}

// reaching returns the declarations that refer to some functions of testkit, themselves or through
// others.
func (s *sources) reaching(function func(name string) bool) map[node]bool {
	users := map[node][]node{}
	var todo []node
	for user, all := range s.edges {
		for _, used := range all {
			users[used] = append(users[used], user)
			if used.pkg == longPackage && user.pkg != longPackage && function(used.name) {
				todo = append(todo, user)
			}
		}
	}
	seen := map[node]bool{}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		if !seen[n] {
			seen[n] = true
			todo = append(todo, users[n]...)
		}
	}
	return seen
}
