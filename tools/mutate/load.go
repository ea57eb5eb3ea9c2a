package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
)

type pkg struct {
	dir   string // relative to the module
	name  string
	fset  *token.FileSet
	info  *types.Info
	types *types.Package
	text  map[string][]byte // by file, relative to the module
	sites []*site
}

type listed struct {
	ImportPath, Name, Export string
	GoFiles                  []string
}

func load(ctx context.Context, dir string) (*pkg, error) {
	cmd := exec.CommandContext(ctx, "go", "list", "-export", "-deps", "-json=ImportPath,Name,Export,GoFiles", "./"+dir)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w\n%s", err, stderr.String())
	}
	exports := map[string]string{}
	var last listed
	for d := json.NewDecoder(bytes.NewReader(out)); ; {
		var one listed
		if err := d.Decode(&one); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return nil, fmt.Errorf("go list: %w", err)
		}
		exports[one.ImportPath], last = one.Export, one // the package itself comes behind what it imports
	}
	p := &pkg{dir: dir, name: last.Name, fset: token.NewFileSet(), text: map[string][]byte{}}
	var parsed []*ast.File
	for _, name := range last.GoFiles {
		path := filepath.Join(dir, name)
		if p.text[path], err = os.ReadFile(path); err != nil {
			return nil, err
		}
		f, err := parser.ParseFile(p.fset, path, p.text[path], parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	p.info = &types.Info{Types: map[ast.Expr]types.TypeAndValue{}, Uses: map[*ast.Ident]types.Object{}}
	conf := types.Config{Importer: importer.ForCompiler(p.fset, "gc",
		func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	if p.types, err = conf.Check(last.ImportPath, p.fset, parsed, p.info); err != nil {
		return nil, err
	}
	for _, f := range parsed {
		path := p.fset.Position(f.Package).Filename
		if only := files[dir]; only == nil || slices.Contains(only, filepath.Base(path)) {
			p.find(f, path)
		}
	}
	return p, nil
}

func shuffle(all []*site, seed uint64) {
	rand.New(rand.NewPCG(seed, 1)).Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
}
