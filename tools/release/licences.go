package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// part is a module, or another work, that the programs contain.
type part struct {
	path, version string
	licence       string // its identifier of SPDX
	url           string // purl, the name of a package of a registry; empty for none
	texts         []file // its licences and notices
}

// vendored is the folder of the works that the dashboard embeds, and picture the folder of uPlot.
const (
	vendored = "internal/app/ops/dashboard/ui/vendor"
	picture  = "internal/base/picture/assets"
)

// uplotVersion matches the version in the first line of uPlot.
var uplotVersion = regexp.MustCompile(`uPlot \(v([0-9.]+)\)`)

// partsOf returns what the programs in a folder contain, by path. It fails if the licence of one is
// not known: a person then looks at it.
func partsOf(commands string, names ...string) ([]part, error) {
	env, err := exec.Command("go", "env", "GOMODCACHE", "GOROOT").Output()
	if err != nil {
		return nil, fmt.Errorf("go env: %w", err)
	}
	where := strings.Split(strings.TrimSpace(string(env)), "\n")
	if len(where) != 2 {
		return nil, fmt.Errorf("go env prints %q", env)
	}
	found := map[string]part{}
	for _, name := range names {
		info, err := buildinfo.ReadFile(filepath.Join(commands, name))
		if err != nil {
			return nil, err
		}
		found["std"] = part{
			path: "std", version: info.GoVersion, url: "pkg:golang/std@" + strings.TrimPrefix(info.GoVersion, "go"),
			texts: licencesIn(where[1], false),
		}
		for _, m := range info.Deps {
			if m.Replace != nil {
				return nil, fmt.Errorf("module %s is replaced, so its licence is not known", m.Path)
			}
			found[m.Path] = part{
				path: m.Path, version: m.Version, url: "pkg:golang/" + m.Path + "@" + m.Version,
				texts: licencesIn(filepath.Join(where[0], escaped(m.Path)+"@"+escaped(m.Version)), true),
			}
		}
	}
	var all []part
	for _, p := range found {
		all = append(all, p)
	}
	embedded, err := works()
	if err != nil {
		return nil, err
	}
	all = append(all, embedded...)
	slices.SortFunc(all, func(a, b part) int { return strings.Compare(a.path, b.path) })
	for i, p := range all {
		if len(p.texts) > 0 {
			all[i].licence = identify(p.texts[0].data)
		}
		if all[i].licence == "" {
			return nil, fmt.Errorf("%s %s has no licence that is known: add its text to tools/release", p.path,
				p.version)
		}
	}
	return all, nil
}

// works returns the works that are committed here and embedded: vendor.json lists the works of the
// dashboard.
func works() (all []part, err error) {
	text, err := os.ReadFile(filepath.Join(vendored, "vendor.json"))
	if err != nil {
		return nil, err
	}
	var list []struct{ Name, Version string }
	if err := json.Unmarshal(text, &list); err != nil {
		return nil, fmt.Errorf("%s: %w", vendored, err)
	}
	dirs := make([]string, len(list), len(list)+1)
	for i := range dirs {
		dirs[i] = vendored
	}
	plot, err := os.ReadFile(filepath.Join(picture, "uPlot.iife.min.js"))
	if err != nil {
		return nil, err
	}
	m := uplotVersion.FindSubmatch(plot)
	if m == nil {
		return nil, fmt.Errorf("%s: uPlot does not begin with its version", picture)
	}
	list, dirs = append(list, struct{ Name, Version string }{"uPlot", string(m[1])}), append(dirs, picture)
	for i, w := range list {
		name := w.Name + ".LICENSE"
		data, err := os.ReadFile(filepath.Join(dirs[i], name))
		if err != nil {
			return nil, err
		}
		all = append(all, part{
			path: w.Name, version: w.Version, url: "pkg:npm/" + strings.ToLower(w.Name) + "@" + w.Version,
			texts: []file{{name: name, data: data}},
		})
	}
	return all, nil
}

// escaped returns a path or version as the cache of modules has it.
func escaped(s string) string {
	var b strings.Builder
	for _, c := range s {
		if unicode.IsUpper(c) {
			b.WriteByte('!')
			c = unicode.ToLower(c)
		}
		b.WriteRune(c)
	}
	return b.String()
}

var licenceName = regexp.MustCompile(`(?i)^(un)?(licen[cs]e|copying|notice|patents)([-.].*)?$`)

// licencesIn returns the licences and notices of a folder, the file with the licence first. With
// deep, files of the folders below follow, since modules contain works of others.
func licencesIn(dir string, deep bool) (all []file) {
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		left := !deep || slices.Contains([]string{"testdata", "vendor", "_examples"}, e.Name())
		switch {
		case e.IsDir() && path != dir && left:
			return fs.SkipDir
		case e.IsDir() || !licenceName.MatchString(e.Name()) || strings.HasSuffix(e.Name(), ".go"):
			return nil
		}
		data, err := os.ReadFile(path)
		name, rerr := filepath.Rel(dir, path)
		known := slices.ContainsFunc(all, func(f file) bool { return bytes.Equal(f.data, data) })
		if err == nil && rerr == nil && !known {
			all = append(all, file{name: filepath.ToSlash(name), data: data})
		}
		return nil
	})
	rank := func(f file) int {
		n := 2 * strings.Count(f.name, "/")
		if identify(f.data) == "" {
			n++
		}
		return n
	}
	slices.SortStableFunc(all, func(a, b file) int { return rank(a) - rank(b) })
	return all
}

// phrases are texts that a licence has and others have not, in the order in which they are looked
// for.
var phrases = []struct{ has, id string }{
	{"apache license version 2.0", "Apache-2.0"},
	{"mozilla public license version 2.0", "MPL-2.0"},
	{"mozilla public license, version 2.0", "MPL-2.0"},
	{"permission to use, copy, modify, and/or distribute this software", "ISC"},
	{"permission to use, copy, modify, and distribute this software", "ISC"},
	{"permission is hereby granted, free of charge", "MIT"},
	{"neither the name", "BSD-3-Clause"},
	{"redistributions in binary form must reproduce", "BSD-2-Clause"},
	{"this is free and unencumbered software", "Unlicense"},
	{"cc0 1.0 universal", "CC0-1.0"},
}

// identify returns the SPDX identifier of a licence; empty if it is not known.
func identify(text []byte) string {
	plain := strings.ToLower(strings.Join(strings.Fields(string(text)), " "))
	for _, p := range phrases {
		if strings.Contains(plain, p.has) {
			return p.id
		}
	}
	return ""
}

// licences returns the licences and notices of all parts as one text.
func licences(parts []part) []byte {
	var b bytes.Buffer
	b.WriteString("The programs contain the works below. Their licences and notices follow.\n\n")
	for _, p := range parts {
		fmt.Fprintf(&b, "%s %s: %s\n", p.path, p.version, p.licence)
	}
	for _, p := range parts {
		for _, f := range p.texts {
			fmt.Fprintf(&b, "\n%s\n%s %s, %s\n\n", strings.Repeat("=", 80), p.path, p.version, f.name)
			b.Write(bytes.TrimSpace(f.data))
			b.WriteByte('\n')
		}
	}
	return b.Bytes()
}
