package push

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/klauspost/compress/s2"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
)

// formatRemoteWrite is the format of a request of Prometheus remote write, version 1: a
// WriteRequest in protobuf, packed as a block of snappy. It is not a format of files.
const formatRemoteWrite rows.Format = "remote-write"

const mediaProtobuf = "application/x-protobuf"

const maxLabels = 256

// reserved are the members of a row that are no labels. A label of such a name gets the prefix that
// Prometheus uses for it.
var reserved = []string{"timestamp", "value", "series"}

const reservedPrefix = "exported_"

// remoteWriteHeaders returns the error of the headers of such a request.
func remoteWriteHeaders(r *http.Request, params map[string]string) error {
	if p := params["proto"]; p != "" && p != "prometheus.WriteRequest" {
		return refuse(http.StatusUnsupportedMediaType, "Content-Type: proto %s: use remote write 1.0, which is "+
			"prometheus.WriteRequest", access.Quote(p))
	}
	if v := r.Header.Get("X-Prometheus-Remote-Write-Version"); v != "" && !strings.HasPrefix(v, "0.") &&
		!strings.HasPrefix(v, "1.") {
		return refuse(http.StatusUnsupportedMediaType, "X-Prometheus-Remote-Write-Version %s: use 1.0", access.Quote(v))
	}
	if coding := strings.ToLower(r.Header.Get("Content-Encoding")); coding != "snappy" {
		return refuse(http.StatusUnsupportedMediaType, "Content-Encoding %s: remote write uses snappy",
			access.Quote(coding))
	}
	return nil
}

// bodyKey returns the key of a request without one: a digest of its contents. A client without an
// answer, or with 503, repeats the request. Rows have times, so equal bodies are one request.
func bodyKey(format rows.Format, coding string, body []byte) string {
	sum := sha256.New()
	_, _ = fmt.Fprintf(sum, "%s %s\n", format, coding)
	_, _ = sum.Write(body)
	return "sha256-" + hex.EncodeToString(sum.Sum(nil))
}

// label is a label of a series as JSON: the member of a row, and its part of the name.
type label struct{ name, value string }

// remoteWrite reads a request. Each sample is a row with its time in milliseconds, its value, the
// text of its series, and the labels as members. Samples that are not finite are left out and
// counted, such as the marks of series that have ended; so are histograms. A request without
// samples, such as one with metadata, is no error.
func (f *bodyParser) remoteWrite(body []byte) error {
	size, err := s2.DecodedLen(body)
	if err != nil {
		return errors.New("it is not a block of snappy")
	}
	if int64(size) > f.maxSize {
		return tooLarge{"it unpacks to more than is allowed: push less at a time"}
	}
	if err := f.hold.Grow(int64(size)); err != nil {
		return err
	}
	data, err := s2.Decode(nil, body)
	if err != nil {
		return errors.New("it is not a block of snappy")
	}
	number := uint64(0)
	return eachField(data, "WriteRequest", func(field protowire.Number, value []byte) error {
		if field != 1 { // 3 is metadata
			return nil
		}
		number++
		err := f.series(value)
		if err == nil {
			return nil
		}
		return placed("series", number, err.Error(), err)
	})
}

// eachField calls fn for the fields of a message that have bytes, and skips all other fields.
func eachField(data []byte, message string, fn func(protowire.Number, []byte) error) error {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return fmt.Errorf("it is no %s: %w", message, protowire.ParseError(n))
		}
		data = data[n:]
		if kind != protowire.BytesType {
			if n = protowire.ConsumeFieldValue(field, kind, data); n < 0 {
				return fmt.Errorf("it is no %s: %w", message, protowire.ParseError(n))
			}
			data = data[n:]
			continue
		}
		value, n := protowire.ConsumeBytes(data)
		if n < 0 {
			return fmt.Errorf("it is no %s: %w", message, protowire.ParseError(n))
		}
		data = data[n:]
		if err := fn(field, value); err != nil {
			return err
		}
	}
	return nil
}

func (f *bodyParser) series(data []byte) error {
	var labels []label
	var samples [][]byte
	if err := eachField(data, "TimeSeries", func(field protowire.Number, value []byte) error {
		switch field {
		case 1:
			l, err := parseLabel(value)
			if labels = append(labels, l); len(labels) > maxLabels {
				return fmt.Errorf("it has more than %d labels", maxLabels)
			}
			return err
		case 2:
			samples = append(samples, value)
		case 4:
			f.histograms++
		}
		return nil
	}); err != nil {
		return err
	}
	if len(samples) == 0 {
		return nil
	}
	members, err := membersOf(labels)
	if err != nil {
		return err
	}
	for _, s := range samples {
		value, at, err := parseSample(s)
		if err != nil {
			return err
		}
		if math.IsNaN(value) || math.IsInf(value, 0) {
			f.notFinite++
			continue
		}
		f.line = strconv.AppendInt(append(f.line[:0], `{"timestamp":`...), at, 10)
		f.line = strconv.AppendFloat(append(f.line, `,"value":`...), value, 'g', -1, 64)
		f.line = append(append(f.line, members...), "}\n"...)
		if err := f.add(f.line); err != nil {
			return err
		}
	}
	return nil
}

func parseLabel(data []byte) (l label, err error) {
	err = eachField(data, "Label", func(field protowire.Number, value []byte) error {
		if !utf8.Valid(value) {
			return errors.New("a label is not UTF-8")
		}
		switch field {
		case 1:
			l.name = string(value)
		case 2:
			l.value = string(value)
		}
		return nil
	})
	if err == nil && l.name == "" {
		err = errors.New("a label has no name")
	}
	return l, err
}

// parseSample decodes a sample: its value, and its time in milliseconds since 1970.
func parseSample(data []byte) (value float64, at int64, err error) {
	for len(data) > 0 {
		field, kind, n := protowire.ConsumeTag(data)
		if n < 0 {
			return 0, 0, fmt.Errorf("it is no Sample: %w", protowire.ParseError(n))
		}
		data = data[n:]
		switch {
		case field == 1 && kind == protowire.Fixed64Type:
			var bits uint64
			if bits, n = protowire.ConsumeFixed64(data); n >= 0 {
				value = math.Float64frombits(bits)
			}
		case field == 2 && kind == protowire.VarintType:
			var v uint64
			if v, n = protowire.ConsumeVarint(data); n >= 0 {
				at = int64(v)
			}
		default:
			n = protowire.ConsumeFieldValue(field, kind, data)
		}
		if n < 0 {
			return 0, 0, fmt.Errorf("it is no Sample: %w", protowire.ParseError(n))
		}
		data = data[n:]
	}
	return value, at, nil
}

// membersOf returns the members of a row for the labels of a series: the text of the series as
// Prometheus writes it, and each label.
func membersOf(labels []label) ([]byte, error) {
	slices.SortFunc(labels, func(a, b label) int { return strings.Compare(a.name, b.name) })
	var metric, rest strings.Builder
	members := []byte{}
	for i, l := range labels {
		if i > 0 && labels[i-1].name == l.name {
			return nil, fmt.Errorf("the label %s is there twice", access.Quote(l.name))
		}
		if l.name == "__name__" {
			metric.WriteString(l.value)
		} else {
			if rest.Len() > 0 {
				rest.WriteByte(',')
			}
			rest.WriteString(l.name + "=" + strconv.Quote(l.value))
		}
		name := l.name
		if slices.Contains(reserved, name) {
			name = reservedPrefix + name
		}
		members = appendMember(members, name, l.value)
	}
	if rest.Len() > 0 {
		metric.WriteString("{" + rest.String() + "}")
	}
	return appendMember(members, "series", metric.String()), nil
}

func appendMember(to []byte, name, value string) []byte {
	for i, text := range []string{name, value} {
		quoted, err := json.Marshal(text)
		if err != nil { // texts have none
			quoted = []byte(`""`)
		}
		to = append(append(to, []byte{',', ':'}[i]), quoted...)
	}
	return to
}
