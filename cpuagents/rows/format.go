package rows

import (
	"io"
	"os"
	"path"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/jobs"
)

// Format is how rows are written in a file: csv, ndjson, parquet or arrow. If the file is packed, a
// dot and gz or zst follow, as in csv.gz. Parquet packs its own pages, so a packed Parquet file is
// refused.
type Format string

// formatOfExtension has the formats by the extension of a file's name, without the extension of the
// packing.
var formatOfExtension = map[string]Format{
	".csv": "csv", ".ndjson": "ndjson", ".jsonl": "ndjson", ".parquet": "parquet", ".pq": "parquet",
	".arrow": "arrow", ".arrows": "arrow", ".feather": "arrow",
}

// packingOfExtension has the packings by the extension of a file's name.
var packingOfExtension = map[string]string{".gz": "gz", ".gzip": "gz", ".zst": "zst", ".zstd": "zst"}

// FormatOf returns the format for the extension of a file's name. If the extension stands for no
// format, known is false, and the format is other, with the packing of the name.
func FormatOf(name string, other Format) (f Format, known bool) {
	name = strings.ToLower(path.Base(name))
	pack := packingOfExtension[path.Ext(name)]
	if pack != "" {
		name = strings.TrimSuffix(name, path.Ext(name))
	}
	// The extension of the packing is cut off first: data.csv.gz is CSV.
	if f, known = formatOfExtension[path.Ext(name)]; !known {
		f = other
	}
	if pack != "" {
		f += Format("." + pack)
	}
	return f, known
}

// mediaTypes has the formats by media type.
var mediaTypes = map[string]Format{
	"text/csv": "csv", "application/csv": "csv", "application/x-ndjson": "ndjson", "application/ndjson": "ndjson",
	"application/jsonl":              "ndjson",
	"application/vnd.apache.parquet": "parquet", "application/vnd.apache.arrow.stream": "arrow",
	"application/vnd.apache.arrow.file": "arrow",
}

// FormatOfMedia returns the format of a media type without parameters. It is empty for a type that
// stands for no format.
func FormatOfMedia(media string) Format { return mediaTypes[media] }

// CutFormat returns a file's name without the extensions of its format and packing. It reports
// whether the name had one, and something before it.
func CutFormat(name string) (stem string, ok bool) {
	stem = name
	if ext := path.Ext(stem); packingOfExtension[strings.ToLower(ext)] != "" {
		stem, ok = strings.TrimSuffix(stem, ext), true
	}
	if ext := path.Ext(stem); formatOfExtension[strings.ToLower(ext)] != "" {
		stem, ok = strings.TrimSuffix(stem, ext), true
	}
	return stem, ok && stem != ""
}

// OutputFormat returns the format of decisions in a file of this name: NDJSON if it has no
// extension. An extension that stands for no format is an error of class jobs.CodeInput. The file
// may not exist yet; nothing is opened.
func OutputFormat(name string) (Format, error) {
	f, known := FormatOf(name, "ndjson")
	stem, _ := CutFormat(path.Base(name))
	// A name such as .hidden is a stem, and not an extension.
	if ext := path.Ext(stem); !known && ext != "" && ext != stem {
		return "", jobs.Errorf(
			jobs.CodeInput,
			"extension %s stands for no format: use .ndjson, .jsonl, .csv, .parquet, .pq, .arrow, .arrows or "+
				".feather, with .gz or .zst behind all but Parquet",
			ext,
		)
	}
	return f, f.Check()
}

// Check returns an error of class jobs.CodeInvalid for an unknown format.
func (f Format) Check() error {
	_, _, err := f.Split()
	return err
}

// Split returns the format of the rows and the packing: gz, zst, or empty. An unknown format is an
// error of class jobs.CodeInvalid.
func (f Format) Split() (rows, pack string, err error) {
	rows, pack, packed := strings.Cut(string(f), ".")
	switch rows {
	case "csv", "ndjson", "arrow":
	case "parquet":
		if packed {
			return "", "", jobs.Errorf(
				jobs.CodeInvalid, "format %q: a Parquet file packs its own pages: unpack it first", string(f),
			)
		}
	default:
		return "", "", jobs.Errorf(jobs.CodeInvalid, "format %q: use csv, ndjson, parquet or arrow", string(f))
	}
	if packed && pack != "gz" && pack != "zst" {
		return "", "", jobs.Errorf(jobs.CodeInvalid, "format %q: a file is packed with gz or zst", string(f))
	}
	return rows, pack, nil
}

// Open returns the reader of a file in any format. It owns the file from here on, also when it
// returns an error. It reads the header or footer, so a file without the wanted columns is an error
// here. Of a packed file it reads at most unpacked bytes of contents. Memory is taken from h, which
// the caller releases after it closed the reader. The parameter name names the file in errors.
func Open(name string, file *os.File, f Format, spec ColumnSpec, unpacked int64, h *access.Hold) (Reader, error) {
	rows, pack, err := f.Split()
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	// Parquet is read from its end, so it needs the file itself and not a stream.
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

// OpenText returns the reader of a document of CSV or NDJSON, which is not packed. The reader owns
// src from here on, also when an error is returned.
func OpenText(name string, src io.ReadCloser, f Format, spec ColumnSpec) (Reader, error) {
	switch f {
	case "csv":
		return newCSVReader(name, src, spec, nil)
	case "ndjson":
		return newNDJSONReader(name, src, spec), nil
	}
	_ = src.Close()
	return nil, jobs.Errorf(jobs.CodeInput, "%s: it is %s: only plain CSV and NDJSON are read as they grow", name, f)
}
