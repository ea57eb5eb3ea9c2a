// Command simulate runs simulations of clusters and prints tables and charts.
//
//	simulate run [-charts FOLDER] FILE.yaml...
//	simulate validate STAGES.times RUNS.times
//
// The first form simulates configurations. The second one predicts measured runs from stages that
// were measured alone on the same machine, and prints how far off it is.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

func main() {
	if err := run(os.Stdout, os.Args[1:]); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

var errUsage = errors.New("use simulate run [-charts FOLDER] FILE.yaml... or simulate validate STAGES.times RUNS.times")

func run(w io.Writer, args []string) error {
	if len(args) == 0 {
		return errUsage
	}
	flags := flag.NewFlagSet("simulate "+args[0], flag.ContinueOnError)
	charts := flags.String("charts", "", "folder for SVG charts; empty: none are drawn")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	files := flags.Args()
	switch {
	case args[0] == "run" && len(files) > 0:
		for _, name := range files {
			if err := simulate(w, name, *charts); err != nil {
				return err
			}
		}
		return nil
	case args[0] == "validate" && len(files) == 2:
		return validate(w, files[0], files[1])
	}
	return errUsage
}

func open(name string) (*times.File, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	return times.Read(filepath.Base(name), f)
}
