package rows

import (
	"bytes"
	"fmt"
	"io"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// Document collects decisions into documents of a format. Each document is complete in itself, and
// keeps the decisions in the order in which they were added. The same decisions give the same
// bytes. One goroutine uses it.
type Document struct {
	Layout
	Format Format

	enc   Encoder // of the document that is collected; nil for none
	pack  string
	runs  []run
	text  []byte // of the runs
	count int
	size  int
}

// run is a sequence of decisions of one series in the text.
type run struct{ series, end int }

// NewDocument returns an empty document.
func NewDocument(f Format, l Layout) Document { return Document{Layout: l, Format: f} }

// Rows returns the number of decisions in the document.
func (p *Document) Rows() int { return p.count }

// Size returns the size of the document before it is packed, in bytes, approximately.
func (p *Document) Size() int { return p.size }

// Add appends decision i of d, and copies what it needs of d. The error is a decision of a group
// without a series, or an unknown format. The document is unchanged then.
func (p *Document) Add(d *batch.Decisions, i int) (err error) {
	series := int(d.Group[i])
	if !p.Has(series) {
		return fmt.Errorf("decision %d is of group %d, which has no series", i, series)
	}
	if len(p.Keys) > 0 {
		series = 0 // decisions of entities are one run
	}
	if p.enc == nil {
		if p.enc, p.pack, err = NewEncoder(p.Format, p.Layout); err != nil {
			return err
		}
	}
	from := len(p.text)
	p.text = p.enc.Spool(p.text, d, i)
	if n := len(p.runs); n > 0 && p.runs[n-1].series == series {
		p.runs[n-1].end = len(p.text)
	} else {
		p.runs = append(p.runs, run{series, len(p.text)})
	}
	p.count++
	// Columns repeat the name and the decision, which lines contain.
	p.size += len(p.text) - from + 32
	for _, name := range p.Names(int(d.Group[i])) {
		p.size += len(name)
	}
	return nil
}

// Take returns the document, which must not be empty, and begins the next one. The caller owns the
// bytes.
func (p *Document) Take() ([]byte, error) {
	var out bytes.Buffer
	w, err := NewPacker(&out, p.pack)
	if err != nil {
		return nil, err
	}
	if err := p.enc.Begin(w); err != nil {
		return nil, err
	}
	at := 0
	for _, r := range p.runs {
		if err := p.enc.Piece(r.series, bytes.NewReader(p.text[at:r.end])); err != nil {
			return nil, err
		}
		at = r.end
	}
	if err := p.enc.End(); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	p.enc, p.runs, p.text, p.count, p.size = nil, p.runs[:0], p.text[:0], 0, 0
	return out.Bytes(), nil
}

// MediaType returns the media type of the documents; empty if their format is unknown. A packed
// document has the media type of its packing, as readers unpack it first.
func (p *Document) MediaType() string {
	form, pack, err := p.Format.Split()
	switch {
	case err != nil:
		return ""
	case pack == "gz":
		return "application/gzip"
	case pack == "zst":
		return "application/zstd"
	}
	return map[string]string{
		"csv": "text/csv", "ndjson": "application/x-ndjson",
		"parquet": "application/vnd.apache.parquet", "arrow": "application/vnd.apache.arrow.file",
	}[form]
}

// NewPacker returns a writer that packs into w: with gzip for gz, with zstd for zst, and not at all
// for an empty pack. Its Close ends the packing and leaves w open. The same bytes in give the same
// bytes out. No other goroutine is used, so the order of the writes to w is fixed.
func NewPacker(w io.Writer, pack string) (io.WriteCloser, error) {
	switch pack {
	case "gz":
		return gzip.NewWriter(w), nil
	case "zst":
		return zstd.NewWriter(w, zstd.WithEncoderConcurrency(1))
	}
	return plainWriter{w}, nil
}

type plainWriter struct{ io.Writer }

func (plainWriter) Close() error { return nil }
