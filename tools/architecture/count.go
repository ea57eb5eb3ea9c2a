package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// generated is the line by which Go tells generated files.
var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

func linesOf(file string) (int, error) {
	text, err := os.ReadFile(file)
	if err != nil || generated.Match(text) {
		return 0, err
	}
	return bytes.Count(text, []byte("\n")), nil
}

// count prints the size of the product and of all modules. Lines are of Go files, without tests and
// generated files.
func (t *tree) count(out io.Writer) error {
	levels, built, lines := 0, 0, 0
	for _, p := range t.pkgs {
		levels = max(levels, p.level)
		if !p.built {
			continue
		}
		built++
		for _, f := range p.files {
			n, err := linesOf(f)
			if err != nil {
				return err
			}
			lines += n
		}
	}
	cuda, err := t.cuda()
	if err != nil {
		return err
	}
	all, tests := 0, 0
	err = filepath.WalkDir(t.root, func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && file != t.root && strings.HasPrefix(d.Name(), "."):
			return filepath.SkipDir
		case d.IsDir() || filepath.Ext(file) != ".go":
			return nil
		}
		n, err := linesOf(file)
		if strings.HasSuffix(file, "_test.go") {
			tests += n
		} else {
			all += n
		}
		return err
	})
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "packages of the product's module: %d\n", len(t.pkgs))
	fmt.Fprintf(out, "packages that the commands are built from: %d\n", built)
	fmt.Fprintf(out, "levels of imports: %d\n", levels)
	fmt.Fprintf(out, "lines that the commands are built from: %d, and %d with CUDA\n", lines, cuda)
	fmt.Fprintf(out, "lines in all modules: %d, and %d of tests\n", all, tests)
	return nil
}

// cuda counts the lines that the commands are built from with the tag cuda alone.
func (t *tree) cuda() (lines int, err error) {
	have := map[string]bool{}
	for _, p := range t.pkgs {
		for _, f := range p.files {
			have[f] = true
		}
	}
	args := []string{"-deps", "-tags=cuda,connectors", "-json=Dir,ImportPath,GoFiles,CgoFiles"}
	for _, c := range commands {
		args = append(args, "./"+c)
	}
	err = list(t.root, "1", func(d *json.Decoder) error {
		var p struct {
			Dir, ImportPath   string
			GoFiles, CgoFiles []string
		}
		if err := d.Decode(&p); err != nil || below(p.ImportPath) == p.ImportPath {
			return err
		}
		for _, f := range append(p.GoFiles, p.CgoFiles...) {
			if f = filepath.Join(p.Dir, f); !have[f] {
				n, err := linesOf(f)
				if err != nil {
					return err
				}
				lines += n
			}
		}
		return nil
	}, args...)
	return lines, err
}
