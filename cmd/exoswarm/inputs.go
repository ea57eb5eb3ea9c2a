package main

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"

	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/dialect"
)

// input is one file of the input and the --input it came from.
type input struct {
	files.Found
	from int
}

// setCSV sets what flags say of a dialect.
func setCSV(d *dialect.CSV, settings []string) error {
	if len(settings) == 0 {
		return nil
	}
	over := dialect.CSV{}
	for _, s := range settings {
		if err := over.Set(s); err != nil {
			return command.Usage("--csv %v", err)
		}
	}
	d.Override(over)
	if _, err := d.Validate(); err != nil {
		return command.Usage("--csv: %v", err)
	}
	return nil
}

// findInputs lists the series of all inputs by name. What the run itself writes is not one of them:
// a run whose output stands in the folder that it reads would read its own decisions the next time.
func findInputs(paths []string, outputs ...string) ([]input, error) {
	own := map[string]bool{}
	for _, p := range outputs {
		if abs, err := filepath.Abs(p); err == nil && p != "" {
			own[abs] = true
		}
	}
	var all []input
	for i, p := range paths {
		files, err := files.Walk(p)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if abs, err := filepath.Abs(f.Path); err == nil && own[abs] {
				continue
			}
			all = append(all, input{f, i})
		}
	}
	if len(all) == 0 && len(paths) > 0 {
		return nil, command.Usage("input: there is nothing to read but what the run is to write: name another --output")
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Name < all[j].Name })
	for i := 1; i < len(all); i++ {
		if all[i].Name == all[i-1].Name {
			return nil, command.Usage("input: two files are called %s: %s and %s: run them apart, or name a folder "+
				"above both", all[i].Name, all[i-1].Path, all[i].Path)
		}
	}
	return all, nil
}

// readSources reads a list of sources that are not files of this machine.
func readSources(path string, inputs []input) (list []source.Series, err error) {
	if path == "" {
		return nil, nil
	}
	if err := readList("--sources", path, `[{"name":"NAME","uri":"https://HOST/PATH"}]`, &list); err != nil {
		return nil, err
	}
	names := map[string]bool{}
	for _, in := range inputs {
		names[in.Name] = true
	}
	for i, s := range list {
		if s.Name == "" || s.URI == "" || names[s.Name] {
			return nil, command.Usage("--sources %s: source %d, %q: it must have a uri, and a name that nothing "+
				"else has", path, i+1, s.Name)
		}
		names[s.Name] = true
	}
	return list, nil
}

// readList reads a JSON list that a flag names; form says how one is written.
func readList(flag, path, form string, list any) error {
	data, err := os.ReadFile(path)
	if err != nil {
		return command.Usage("%s: %v", flag, err)
	}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(list); err != nil {
		return command.Usage("%s %s: %v: write %s", flag, path, err, form)
	}
	return nil
}
