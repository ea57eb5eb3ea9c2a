package cpuagents

import (
	"os"
	"path"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/inputmem"
	"github.com/exoswarm/exoswarm/jobs"
)

// Format says how rows are written in a file: csv, ndjson, parquet or arrow, and behind a dot gz or zst when the file is
// packed, as in csv.gz. Parquet packs its own pages and is never packed again.
type Format string

// extensions are the formats by the extension of a file's name, without its packing.
var extensions = map[string]Format{
	".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".parquet": "parquet", ".pq": "parquet",
	".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow",
}

// packings are those by the extension of a file's name.
var packings = map[string]string{".gz": "gz", ".gzip": "gz", ".zst": "zst", ".zstd": "zst"}

// FormatOf returns the format that the extension of a file's name stands for; known is false when it stands for none, and
// the format is then other, with the packing that the name has.
func FormatOf(name string, other Format) (f Format, known bool) {
	name = strings.ToLower(path.Base(name))
	pack := packings[path.Ext(name)]
	if pack != "" {
		name = strings.TrimSuffix(name, path.Ext(name))
	}
	if f, known = extensions[path.Ext(name)]; !known {
		f = other
	}
	if pack != "" {
		f += Format("." + pack)
	}
	return f, known
}

// CutFormat returns a file's name without the extensions that say a format and its packing. It reports whether it had one.
func CutFormat(name string) (stem string, ok bool) {
	stem = name
	if ext := path.Ext(stem); packings[strings.ToLower(ext)] != "" {
		stem, ok = strings.TrimSuffix(stem, ext), true
	}
	if ext := path.Ext(stem); extensions[strings.ToLower(ext)] != "" {
		stem, ok = strings.TrimSuffix(stem, ext), true
	}
	return stem, ok && stem != ""
}

// OutputFormat returns the format that decisions are written in to a file of this name: NDJSON where it has no extension. An
// extension that stands for no format is an error.
func OutputFormat(name string) (Format, error) {
	f, known := FormatOf(name, "ndjson")
	stem, _ := CutFormat(path.Base(name))
	if ext := path.Ext(stem); !known && ext != "" && ext != stem {
		return "", jobs.Errorf(jobs.CodeInput, "extension %s stands for no format: use .ndjson, .jsonl, .csv, .parquet, .pq, .arrow, .arrows or .feather, with .gz or .zst behind all but Parquet", ext)
	}
	return f, f.Check()
}

// Check says whether the format is one.
func (f Format) Check() error {
	_, _, err := f.cut()
	return err
}

// cut splits a format into the form of its rows and its packing, and refuses one that is none.
func (f Format) cut() (rows, pack string, err error) {
	rows, pack, packed := strings.Cut(string(f), ".")
	switch rows {
	case "csv", "ndjson", "arrow":
	case "parquet":
		if packed {
			return "", "", jobs.Errorf(jobs.CodeInvalid, "format %q: a Parquet file packs its own pages: unpack it first", string(f))
		}
	default:
		return "", "", jobs.Errorf(jobs.CodeInvalid, "format %q: use csv, ndjson, parquet or arrow", string(f))
	}
	if packed && pack != "gz" && pack != "zst" {
		return "", "", jobs.Errorf(jobs.CodeInvalid, "format %q: a file is packed with gz or zst", string(f))
	}
	return rows, pack, nil
}

// newReader reads rows of any format from a file, which it owns from here on, also when an error is returned. Of a packed
// file it reads at most unpacked bytes of contents. What it allocates is taken from h, which the caller releases after the reader is closed.
func newReader(name string, file *os.File, f Format, spec ColumnSpec, unpacked int64, h *inputmem.Hold) (rowReader, error) {
	rows, pack, err := f.cut()
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	if rows == "parquet" {
		return newParquetReader(name, file, spec, h)
	}
	var schema []byte // of an Arrow file that has it at its end
	if rows == "arrow" && pack == "" {
		if schema, err = footerSchema(name, file); err != nil {
			_ = file.Close()
			return nil, err
		}
	}
	src, err := unpack(name, file, pack, unpacked, h)
	if err != nil {
		return nil, err
	}
	switch rows {
	case "ndjson":
		return newNDJSONReader(name, src, spec), nil
	case "arrow":
		if schema != nil {
			src = newPrefixed(schema, src)
		}
		return newArrowReader(name, src, spec, h)
	}
	return newCSVReader(name, src, spec, h)
}
