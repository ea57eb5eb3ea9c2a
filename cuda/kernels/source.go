package kernels

import (
	"embed"
	"fmt"
	"regexp"
)

//go:embed *.cu *.cuh
var files embed.FS

var includeLine = regexp.MustCompile(`(?m)^#include "([a-z0-9_]+\.cuh)"[^\n]*\n`)

// code is a file of this package with every include replaced by the included file, each once. The
// result needs no file system, which the run-time compiler has none of. A missing file is a fault
// of this package and panics at start.
func code(file string) string {
	seen := map[string]bool{}
	var resolve func(name string) string
	resolve = func(name string) string {
		if seen[name] {
			return ""
		}
		seen[name] = true
		text, err := files.ReadFile(name)
		if err != nil {
			panic(fmt.Sprintf("kernels: %v", err))
		}
		return includeLine.ReplaceAllStringFunc(string(text), func(line string) string {
			return resolve(includeLine.FindStringSubmatch(line)[1])
		})
	}
	return pragmaOnce.ReplaceAllString(resolve(file), "")
}

// Common returns a file that kernels share, as philox.cuh, with all that it includes. A file that
// is not there panics.
func Common(file string) string { return code(file) }

// pragmaOnce causes a warning in the file that includes all others.
var pragmaOnce = regexp.MustCompile(`(?m)^#pragma once\n`)

func init() {
	for _, cell := range []string{"gru", "leaky", "lif", "predictor", "region"} {
		register(Source{Name: cell + "_observe", File: cell + ".cu"})
	}
}
