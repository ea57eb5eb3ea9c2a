package cpuagents

import (
	"bytes"
	"fmt"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// parts writes decisions into documents of a format, each complete in itself, in the order in which the decisions come. The same decisions
// give the same bytes.
type parts struct {
	layout
	format rows.Format

	enc  encoder // of the part that is being collected; nil for none
	pack string
	runs []run
	text []byte // of the runs
	rows int
	size int // about that of the part, in bytes, before it is packed
}

// run is what stands together of one series.
type run struct{ series, end int }

// add collects decision i.
func (p *parts) add(d *batch.Decisions, i int) (err error) {
	series := int(d.Group[i])
	if series >= len(p.series) {
		return fmt.Errorf("decision %d is of group %d of %d", i, series, len(p.series))
	}
	if p.enc == nil {
		if p.enc, p.pack, err = newEncoder(p.format, p.layout); err != nil {
			return err
		}
	}
	from := len(p.text)
	p.text = p.enc.spool(p.text, d, i)
	if n := len(p.runs); n > 0 && p.runs[n-1].series == series {
		p.runs[n-1].end = len(p.text)
	} else {
		p.runs = append(p.runs, run{series, len(p.text)})
	}
	p.rows++
	// Columns repeat the name and the decision, which lines have in them.
	p.size += len(p.text) - from + len(p.series[series].Name) + 32
	return nil
}

// take returns what was collected as a document and begins anew.
func (p *parts) take() ([]byte, error) {
	var out bytes.Buffer
	w, err := newPacker(&out, p.pack)
	if err != nil {
		return nil, err
	}
	if err := p.enc.begin(w); err != nil {
		return nil, err
	}
	at := 0
	for _, r := range p.runs {
		if err := p.enc.piece(r.series, bytes.NewReader(p.text[at:r.end])); err != nil {
			return nil, err
		}
		at = r.end
	}
	if err := p.enc.end(); err != nil {
		return nil, err
	}
	if err := w.Close(); err != nil {
		return nil, err
	}
	p.enc, p.runs, p.text, p.rows, p.size = nil, p.runs[:0], p.text[:0], 0, 0
	return out.Bytes(), nil
}

// mediaType is that of a document.
func (p *parts) mediaType() string {
	rows, pack, err := p.format.Split()
	switch {
	case err != nil:
		return ""
	case pack == "gz":
		return "application/gzip"
	case pack == "zst":
		return "application/zstd"
	}
	return map[string]string{
		"csv": "text/csv", "ndjson": "application/x-ndjson", "parquet": "application/vnd.apache.parquet", "arrow": "application/vnd.apache.arrow.file",
	}[rows]
}
