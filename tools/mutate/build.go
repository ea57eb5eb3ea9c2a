package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
)

type binary struct {
	p     *pkg
	sites []*site // by number, from 1
	path  string
	dir   string
}

// switches is the file that is added to a package. Environment variables say which mutant is on,
// and where to write the mutants that were reached.
const switches = `package %s

import (
	mutantos "os"
	mutantstrconv "strconv"
	mutantatomic "sync/atomic"
)

var (
	mutantActive, _ = mutantstrconv.Atoi(mutantos.Getenv("MUTANT"))
	mutantTrace     = mutantOpen()
	mutantReached   [%d]mutantatomic.Bool
)

func mutantOpen() *mutantos.File {
	name := mutantos.Getenv("MUTANT_TRACE")
	if name == "" {
		return nil
	}
	f, err := mutantos.OpenFile(name, mutantos.O_CREATE|mutantos.O_APPEND|mutantos.O_WRONLY, 0o600)
	if err != nil {
		panic(err)
	}
	return f
}

func mutantOn(id int) bool {
	if mutantTrace != nil && !mutantReached[id].Swap(true) {
		_, _ = mutantTrace.WriteString(mutantstrconv.Itoa(id) + "\n")
	}
	return id == mutantActive
}

func mutantError(id int, err error) error {
	if mutantOn(id) {
		return nil
	}
	return err
}

func mutantSkip(id int, f func() error) error {
	if mutantOn(id) {
		return nil
	}
	return f()
}

type mutantInteger interface {
	~int | ~int8 | ~int16 | ~int32 | ~int64 | ~uint | ~uint8 | ~uint16 | ~uint32 | ~uint64 | ~uintptr
}

func mutantPlus[T mutantInteger](id int, v, by T) T {
	if mutantOn(id) {
		return v + by
	}
	return v
}

func mutantMinus[T mutantInteger](id int, v, by T) T {
	if mutantOn(id) {
		return v - by
	}
	return v
}

var _, _, _, _, _ = mutantOn, mutantError, mutantSkip, mutantPlus[int], mutantMinus[int]
`

var compileError = regexp.MustCompile(`(?m)^(?:\./)?([^\s:]+\.go):(\d+):(?:\d+:)? (.*)$`)

// build compiles the mutants. One that does not compile is replaced by what next returns.
func build(ctx context.Context, p *pkg, sites []*site, next func() *site, dir string) (*binary, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	b := &binary{p: p, path: filepath.Join(dir, "tests"), dir: dir}
	for range 20 {
		overlay := map[string]string{}
		texts := p.rewrite(sites)
		texts[filepath.Join(p.dir, "zz_mutants.go")] = fmt.Sprintf(switches, p.name, len(sites)+1)
		for name, text := range texts {
			to := filepath.Join(dir, filepath.Base(name)+".txt")
			if err := os.WriteFile(to, []byte(text), 0o600); err != nil {
				return nil, err
			}
			from, err := filepath.Abs(name)
			if err != nil {
				return nil, err
			}
			overlay[from] = to
		}
		data, err := json.Marshal(map[string]any{"Replace": overlay})
		if err != nil {
			return nil, err
		}
		file := filepath.Join(dir, "overlay.json")
		if err := os.WriteFile(file, data, 0o600); err != nil {
			return nil, err
		}
		out, err := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-gcflags=-e", "-overlay", file, "-o",
			b.path, "./"+p.dir).CombinedOutput()
		if err == nil {
			b.sites = sites
			return b, nil
		}
		broken := map[string]bool{}
		for _, m := range compileError.FindAllStringSubmatch(string(out), -1) {
			broken[filepath.Base(m[1])+":"+m[2]] = true
		}
		var good []*site
		for _, s := range sites {
			bad := false
			for line := s.line; line <= s.line+s.lines(); line++ {
				bad = bad || broken[filepath.Base(s.file)+":"+strconv.Itoa(line)]
			}
			if !bad {
				good = append(good, s)
			}
		}
		if len(good) == len(sites) {
			return nil, fmt.Errorf("build the mutants: %w\n%s", err, out)
		}
		for range len(sites) - len(good) {
			if s := next(); s != nil {
				good = append(good, s)
			}
		}
		sites = good
	}
	return nil, errors.New("build the mutants: too many of them do not compile")
}

func (s *site) lines() int { return strings.Count(string(s.pkg.text[s.file][s.start:s.end]), "\n") }

// rewrite puts the mutants into the sources, whose lines stay where they are. The number of a
// mutant is its place in sites, from 1.
func (p *pkg) rewrite(sites []*site) map[string]string {
	type wrap struct {
		*site
		id int
	}
	byFile := map[string][]wrap{}
	for i, s := range sites {
		byFile[s.file] = append(byFile[s.file], wrap{s, i + 1})
	}
	out := map[string]string{}
	for file, wraps := range byFile {
		// The outer of two wraps comes first.
		sort.SliceStable(wraps, func(i, j int) bool {
			if wraps[i].start != wraps[j].start {
				return wraps[i].start < wraps[j].start
			}
			return wraps[i].end > wraps[j].end
		})
		text := p.text[file]
		var b strings.Builder
		var open []wrap
		at := 0
		shut := func(upto int) {
			for len(open) > 0 && open[len(open)-1].end <= upto {
				w := open[len(open)-1]
				open = open[:len(open)-1]
				b.Write(text[at:w.end])
				at = w.end
				b.WriteString(w.suffix)
			}
		}
		for _, w := range wraps {
			shut(w.start)
			b.Write(text[at:w.start])
			at = w.start
			fmt.Fprintf(&b, w.prefix, w.id)
			open = append(open, w)
		}
		shut(len(text))
		b.Write(text[at:])
		out[file] = b.String()
	}
	return out
}

func numbers(path string) (ids []int, err error) {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	for _, f := range strings.Fields(string(data)) {
		id, err := strconv.Atoi(f)
		if err != nil {
			continue // the last line of a process that was killed
		}
		if !slices.Contains(ids, id) {
			ids = append(ids, id)
		}
	}
	return ids, nil
}
