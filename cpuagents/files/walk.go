package files

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// RejectsSuffix is the end of the name of a list of rejects that a run left next to its output.
const RejectsSuffix = ".rejects.ndjson"

// Walk returns the files that a path of a user means. A path of a file means that file, under its
// own name. A path of a folder means every file below it whose extension stands for a format, under
// its path from there, in order, with slashes. Files whose names begin with a dot are being written
// and are left out, and files that end with RejectsSuffix too. Links to files are left out. An
// error is of class jobs.CodeInput or jobs.CodeIO and names the path.
func Walk(p string) (files []Found, err error) {
	info, err := os.Stat(p)
	if err != nil {
		return nil, access.IOError("input", p, err)
	}
	if !info.IsDir() {
		if !info.Mode().IsRegular() {
			return nil, access.InputError("input %s: it is neither a file nor a folder", p)
		}
		format, _ := rows.FormatOf(p, "csv")
		if err := format.Check(); err != nil {
			return nil, access.InputError("input %s: %v", p, err)
		}
		return []Found{{Name: filepath.Base(p), Path: p, Format: format}}, nil
	}
	err = filepath.WalkDir(p, func(file string, d os.DirEntry, err error) error {
		if err != nil {
			return access.IOError("input", file, err)
		}
		format, known := rows.FormatOf(file, "")
		if !d.Type().IsRegular() || !known || strings.HasPrefix(d.Name(), ".") ||
			strings.HasSuffix(d.Name(), RejectsSuffix) {
			return nil
		}
		if err := format.Check(); err != nil {
			return access.InputError("input %s: %v", file, err)
		}
		rel, err := filepath.Rel(p, file)
		if err != nil {
			return fmt.Errorf("input %s: %w", file, err)
		}
		files = append(files, Found{Name: filepath.ToSlash(rel), Path: file, Format: format})
		return nil
	})
	if err == nil && len(files) == 0 {
		err = access.InputError(
			"input %s: no .csv, .ndjson, .jsonl, .parquet, .pq, .arrow, .arrows or .feather file, also with .gz or "+
				".zst behind it, in this folder or below it",
			p,
		)
	}
	return files, err
}

// Found is a file that Walk found. Name is unique among the files of one call.
type Found struct {
	Name   string // the series
	Path   string
	Format rows.Format
}
