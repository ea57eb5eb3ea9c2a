package rows

import (
	"errors"
	"io"
	"os"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/ipc"

	"github.com/exoswarm/exoswarm/cpuagents/parquet"
	"github.com/exoswarm/exoswarm/jobs"
)

// Column is a column of a file with a schema, and what a ColumnSpec may use it for.
type Column struct {
	Name string
	// Time, Number and Key report whether the column can be a timestamp, a feature and a part of a
	// key. A text can be a timestamp: its values say whether it is one.
	Time, Number, Key bool
	Text              bool
}

// Columns returns the columns of a Parquet or Arrow file in their order, without reading its rows.
// A nested column is none of them. Any other format is an error of class jobs.CodeInvalid. It owns
// the file, and closes it. The parameter name names the file in errors.
func Columns(name string, file *os.File, f Format) (_ []Column, err error) {
	defer damaged(name, &err)
	defer func() { err = errors.Join(err, file.Close()) }()
	kind, pack, err := f.Split()
	if err != nil {
		return nil, err
	}
	switch kind {
	case "parquet":
		return parquetColumns(name, file)
	case "arrow":
		return arrowColumns(name, file, pack)
	}
	return nil, jobs.Errorf(jobs.CodeInvalid, "%s: %s has no schema", name, f)
}

func parquetColumns(name string, file *os.File) ([]Column, error) {
	r := &parquetReader{name: name, src: file}
	if err := r.readFooter(); err != nil {
		return nil, err
	}
	var all []Column
	for _, c := range r.file.Columns {
		if c.Nested {
			continue
		}
		all = append(all, Column{
			Name: c.Path, Time: kind(c, roleTime) != kindNone, Number: kind(c, roleFeature) != kindNone,
			Key: kind(c, roleKey) != kindNone, Text: c.Type == parquet.ByteArray,
		})
	}
	return all, nil
}

func arrowColumns(name string, file *os.File, pack string) ([]Column, error) {
	schema := []byte(nil)
	if pack == "" {
		var err error
		if schema, err = footerSchema(name, file); err != nil {
			return nil, err
		}
	}
	src, err := unpack(name, io.NopCloser(file), pack, MaxRecord<<6, nil)
	if err != nil {
		return nil, err
	}
	if schema != nil {
		src = newPrefixed(schema, src)
	}
	defer src.Close()
	messages := NewArrowMessages(name, src, nil)
	defer messages.Release()
	in, err := ipc.NewReaderFromMessageReader(messages)
	if err != nil {
		return nil, err
	}
	defer in.Release()
	var all []Column
	for _, c := range in.Schema().Fields() {
		text := c.Type.ID() == arrow.STRING || c.Type.ID() == arrow.LARGE_STRING
		all = append(all, Column{
			Name: c.Name, Time: IsArrowTime(c.Type), Number: IsArrowNumber(c.Type), Key: isArrowKey(c.Type), Text: text,
		})
	}
	return all, nil
}

// Contents returns the contents of a file of CSV or NDJSON, unpacked, at most limit bytes of a
// packed one. It owns the file, also when it returns an error. The parameter name names the file in
// errors.
func Contents(name string, file *os.File, f Format, limit int64) (io.ReadCloser, error) {
	kind, pack, err := f.Split()
	if err == nil && kind != "csv" && kind != "ndjson" {
		err = jobs.Errorf(jobs.CodeInvalid, "%s: %s is no text", name, f)
	}
	if err != nil {
		_ = file.Close()
		return nil, err
	}
	return unpack(name, file, pack, limit, nil)
}
