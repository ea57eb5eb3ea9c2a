package cpuagents

import (
	"bufio"
	"io"
	"os"
	"strconv"
	"time"
	"unicode/utf8"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
)

// sink writes decisions as NDJSON, series after series. They arrive with the series mixed, so they are first spooled to
// a file as they come, and copied into order at the end: memory stays flat whatever the length of the input.
type sink struct {
	s      *stream
	out    io.Writer
	spool  *os.File
	w      *bufio.Writer
	at     int64      // bytes spooled
	pieces [][]extent // by series
	prefix [][]byte   // by series: {"series":"NAME","row":
	names  [][]byte   // by candidate: "NAME":
	line   []byte
	hist   *hdrhistogram.Histogram // microseconds
}

// extent is a run of lines of one series in the spool.
type extent struct{ off, n int64 }

func newSink(s *stream, out io.Writer) (*sink, error) {
	spool, err := s.Files.spool()
	if err != nil {
		return nil, err
	}
	k := &sink{
		s: s, out: out, spool: spool, w: bufio.NewWriterSize(spool, 1<<20), pieces: make([][]extent, len(s.series)),
		hist: hdrhistogram.New(1, int64(time.Hour/time.Microsecond), 3),
	}
	for _, src := range s.series {
		k.prefix = append(k.prefix, append(appendJSON([]byte(`{"series":`), src.Name), `,"row":`...))
	}
	for _, c := range s.spec.Candidates {
		k.names = append(k.names, appendJSON(nil, c))
	}
	return k, nil
}

// write takes one batch of decisions.
func (k *sink) write(data []byte) error {
	now := time.Now().UnixNano()
	d, err := batch.DecodeDecisions(data)
	if err != nil {
		return err
	}
	if d.Candidates != len(k.names) {
		return jobs.Errorf(jobs.CodeInvalid, "decisions between %d candidates, the spec names %d", d.Candidates, len(k.names))
	}
	k.s.mu.Lock()
	defer k.s.mu.Unlock()
	for i, g := range d.Group {
		if int(g) >= len(k.pieces) || d.Decision[i] != batch.NoDecision && int(d.Decision[i]) >= len(k.names) {
			return jobs.Errorf(jobs.CodeInvalid, "decision %d: group %d and candidate %d are not of this swarm", i, g, d.Decision[i])
		}
		k.format(d, i)
		n := int64(len(k.line))
		if _, err := k.w.Write(k.line); err != nil {
			return ioError("write", "the spool of decisions", err)
		}
		if p := k.pieces[g]; len(p) > 0 && p[len(p)-1].off+p[len(p)-1].n == k.at {
			p[len(p)-1].n += n
		} else {
			k.pieces[g] = append(p, extent{k.at, n})
		}
		k.at += n
		sum := &k.s.summary[g]
		sum.Decisions++
		if int(d.Decision[i]) == len(k.names)-1 {
			sum.Anomalies++
		}
		// A value beyond the histogram's hour counts as an hour.
		_ = k.hist.RecordValue(min(max((now-d.Read[i])/1000, 1), k.hist.HighestTrackableValue()))
	}
	k.s.state.Decisions += uint64(d.Len())
	return nil
}

// format puts line i into k.line.
func (k *sink) format(d *batch.Decisions, i int) {
	b := append(k.line[:0], k.prefix[d.Group[i]]...)
	b = strconv.AppendUint(b, d.Row[i], 10)
	b = appendJSON(append(b, `,"timestamp":`...), d.Timestamp[i])
	b = appendNumber(append(b, `,"value":`...), d.Value[i], 64)
	b = appendNumber(append(b, `,"score":`...), float64(d.Score[i]), 32)
	b = append(b, `,"decision":`...)
	if c := d.Decision[i]; c == batch.NoDecision {
		b = append(b, `"none"`...)
	} else {
		b = append(b, k.names[c]...)
	}
	b = strconv.AppendUint(append(b, `,"round":`...), d.Round[i], 10)
	b = append(b, `,"counts":{`...)
	for c, name := range k.names {
		if c > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(append(append(b, name...), ':'), uint64(d.Counts[i*d.Candidates+c]), 10)
	}
	b = strconv.AppendUint(append(b, `},"leader":`...), d.Leader[i], 10)
	k.line = append(b, '}', '\n')
}

// finish copies the spool into the output, series after series.
func (k *sink) finish() error {
	if err := k.w.Flush(); err != nil {
		return ioError("write", "the spool of decisions", err)
	}
	w := bufio.NewWriterSize(k.out, 1<<20)
	for _, pieces := range k.pieces {
		for _, p := range pieces {
			if _, err := io.Copy(w, io.NewSectionReader(k.spool, p.off, p.n)); err != nil {
				return ioError("write", "the output", err)
			}
		}
	}
	if err := w.Flush(); err != nil {
		return ioError("write", "the output", err)
	}
	return nil
}

// latency is a percentile in milliseconds.
func (k *sink) latency(percent float64) float64 {
	return float64(k.hist.ValueAtPercentile(percent)) / 1000
}

func (k *sink) close() { _ = k.spool.Close() }

// appendNumber writes v in the shortest form that reads back as the same float of bits bits.
func appendNumber(b []byte, v float64, bits int) []byte {
	if a := max(v, -v); a != 0 && (a < 1e-6 || a >= 1e21) {
		return strconv.AppendFloat(b, v, 'e', -1, bits)
	}
	return strconv.AppendFloat(b, v, 'f', -1, bits)
}

const hex = "0123456789abcdef"

// appendJSON writes s as a JSON string (RFC 8259).
func appendJSON(b []byte, s string) []byte {
	b = append(b, '"')
	for _, r := range s { // a broken byte becomes U+FFFD
		switch {
		case r == '"' || r == '\\':
			b = append(b, '\\', byte(r))
		case r < 0x20:
			b = append(b, '\\', 'u', '0', '0', hex[r>>4], hex[r&15])
		default:
			b = utf8.AppendRune(b, r)
		}
	}
	return append(b, '"')
}
