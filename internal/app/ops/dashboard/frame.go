package dashboard

import (
	"bytes"
	"compress/flate"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
)

// gzipHeader is the header of a gzip stream without a name or a time (RFC 1952).
const gzipHeader = "\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"

// frame is a state as all viewers receive it. It is immutable.
type frame struct {
	state *cluster.State
	body  []byte // JSON
	event []byte // the event with the JSON
	// packed is event as blocks of deflate that end at a byte boundary and refer to nothing before
	// them. So each gzip stream can continue with it, wherever that stream is.
	packed []byte
}

// Constant parts of streams: the first bytes of each stream, and the heartbeat, which keeps proxies
// from closing a quiet connection.
var (
	opening = constant("retry: 2000\n\n", gzipHeader)
	beating = constant(": alive\n\n", "")
)

// constant returns an event without a state, with header in front of its packed form.
func constant(event, header string) *frame {
	packed, err := segment([]byte(event))
	if err != nil {
		panic("dashboard: " + err.Error()) // a bytes.Buffer does not fail
	}
	return &frame{event: []byte(event), packed: append([]byte(header), packed...)}
}

// State is a state of the cluster with its faults, as pages get it.
type State struct {
	cluster.State
	// Faults are in the order of their causes: what explains others comes first.
	Faults []doctor.Fault `json:"faults"`
}

// newFrame encodes a state without the specifications of swarms, which swarms/{name} has: the
// specification of a custom cell has many kilobytes and does not change.
func newFrame(state *cluster.State, faults []doctor.Fault) (*frame, error) {
	short := State{State: *state, Faults: faults}
	short.Swarms = slices.Clone(state.Swarms)
	for i := range short.Swarms {
		short.Swarms[i].Spec = nil
	}
	body, err := json.Marshal(&short)
	if err != nil {
		return nil, fmt.Errorf("dashboard: state %d: %w", state.Frame, err)
	}
	f := &frame{
		state: state,
		body:  body,
		event: fmt.Appendf(nil, "id: %d\nevent: state\ndata: %s\n\n", state.Frame, body),
	}
	if f.packed, err = segment(f.event); err != nil {
		return nil, fmt.Errorf("dashboard: state %d: %w", state.Frame, err)
	}
	return f, nil
}

// segment returns data as blocks of deflate without a final one. The last block is empty and ends
// at a byte boundary (a sync flush), so that a browser can decode all of data when it has these
// bytes.
func segment(data []byte) ([]byte, error) {
	var b bytes.Buffer
	w, err := flate.NewWriter(&b, flate.DefaultCompression)
	if err != nil {
		return nil, err
	}
	if _, err := w.Write(data); err != nil {
		return nil, err
	}
	if err := w.Flush(); err != nil { // not Close: the stream continues
		return nil, err
	}
	return b.Bytes(), nil
}

// zipped returns data as a gzip file. Assets use the best level once; answers use the fastest.
func zipped(data []byte, level int) []byte {
	var b bytes.Buffer
	w, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		panic("dashboard: " + err.Error()) // a wrong level
	}
	_, _ = w.Write(data) // a bytes.Buffer does not fail
	_ = w.Close()
	return b.Bytes()
}

// acceptsGzip reports whether a browser takes gzip: it names the encoding, and not with weight 0.
func acceptsGzip(r *http.Request) bool {
	for part := range strings.SplitSeq(r.Header.Get("Accept-Encoding"), ",") {
		name, weight, _ := strings.Cut(strings.TrimSpace(part), ";")
		if strings.TrimSpace(name) == "gzip" {
			q := strings.ReplaceAll(weight, " ", "")
			return q != "q=0" && q != "q=0.0" && q != "q=0.00" && q != "q=0.000"
		}
	}
	return false
}
