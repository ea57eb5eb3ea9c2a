package files

import (
	"context"
	"os"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// Read returns the reader of the rows of a file. It owns the file from here on, also when it
// returns an error. What it decodes is bounded by the memory of inputs; ctx ends the waiting for
// that. The parameter name names the source in errors.
func (f *Files) Read(
	ctx context.Context, name string, file *os.File, format rows.Format, spec rows.ColumnSpec,
) (rows.Reader, error) {
	h := f.Hold(ctx, name)
	r, err := rows.Open(name, file, format, spec, f.unpacked, h)
	if err != nil {
		h.Release()
		return nil, err
	}
	if h == nil {
		return r, nil
	}
	return newSpill(r, h, f)
}

// Check reads the header of a file, and closes the file. It returns the error that Read would
// return for a file without the expected columns.
func (f *Files) Check(ctx context.Context, name string, file *os.File, format rows.Format, spec rows.ColumnSpec) error {
	h := f.Hold(ctx, name)
	defer h.Release()
	r, err := rows.Open(name, file, format, spec, f.unpacked, h)
	if err != nil {
		return err
	}
	return r.Close()
}

// Hold returns the hold of an input on the memory of inputs. The caller releases it.
func (f *Files) Hold(ctx context.Context, name string) *access.Hold {
	return f.memory.Hold(ctx, name)
}
