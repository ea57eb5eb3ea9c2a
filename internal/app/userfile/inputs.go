package userfile

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"sort"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// Input is one file of the input.
type Input struct {
	files.Found
	// From is the index of the path, a file or a folder, below which it was found.
	From int
}

// SetCSV changes a dialect by settings of the form KEY=VALUE, as --csv has them. A wrong setting is
// an error of usage.
func SetCSV(d *dialect.CSV, settings []string) error {
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

// Expand replaces each path with *, ? or [ that is no file by the paths that match it, in their
// order, as a shell does: the pattern may come from a file or a service that has none. A pattern
// without a match is an error of usage.
func Expand(paths []string) ([]string, error) {
	var all []string
	for _, p := range paths {
		if _, err := os.Lstat(p); err == nil || !strings.ContainsAny(p, "*?[") {
			all = append(all, p)
			continue
		}
		found, err := filepath.Glob(p)
		if err != nil {
			return nil, command.Usage("--input %s: %v", p, err)
		}
		if len(found) == 0 {
			return nil, command.Usage("--input %s: no file matches it: check the path", p)
		}
		all = append(all, found...)
	}
	return all, nil
}

// Find returns the files at and below paths, by their names. Each file is a series. It leaves the
// outputs of the run out: a run that writes into the folder that it reads would otherwise read its
// own decisions the next time. Two files of one name are an error of usage.
func Find(paths []string, outputs ...string) ([]Input, error) {
	own := map[string]bool{}
	for _, p := range outputs {
		if abs, err := filepath.Abs(p); err == nil && p != "" {
			own[abs] = true
		}
	}
	var all []Input
	for i, p := range paths {
		files, err := files.Walk(p)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			if abs, err := filepath.Abs(f.Path); err == nil && own[abs] {
				continue
			}
			all = append(all, Input{f, i})
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

// ReadSources reads the file of --sources, a list of sources that are not files of this machine. It
// refuses one that has the name of an input or of another source. An empty path is an empty list.
func ReadSources(path string, inputs []Input) (list []source.Series, err error) {
	if path == "" {
		return nil, nil
	}
	if err := ReadList("--sources", path, `[{"name":"NAME","uri":"https://HOST/PATH"}]`, &list); err != nil {
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

// ReadList reads a JSON file that a flag names into list, without unknown fields. form is an
// example of such a file, for the error.
func ReadList(flag, path, form string, list any) error {
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
