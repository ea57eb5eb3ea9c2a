package batch

import (
	"encoding/binary"
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/jobs"
)

// A packed batch is the form of observations in the logs of swarms; docs/formats/rows.md describes
// it. Entries of earlier versions and of other clients are Arrow IPC streams. Decoders take both.
// They tell them apart by the first byte, which is 0xff of an Arrow IPC stream.

// packedMagic begins a packed batch. The kind and the version follow.
const packedMagic = "EXOROW"

const (
	packedGroups  = 'g'
	packedAgents  = 'a'
	packedVersion = 1
	packedHeader  = 20 // bytes
)

// Limits of a packed batch, which few bytes can name. Larger batches are Arrow IPC streams.
const (
	maxPackedRows  = 1 << 16
	maxPackedBytes = 16 << 20 // of its columns in memory
)

// Bits of the second column of a packed batch of groups.
const (
	rowByGroup    = 1 << iota // numbers of rows are stored in the order of groups
	timeByGroup               // times too
	valueByGroup              // values and features too
	ownFeatures               // features are stored; else they are the values, rounded
	packedOptions = rowByGroup | timeByGroup | valueByGroup | ownFeatures
)

// packedHead is the header of a packed batch.
type packedHead struct {
	kind                byte
	rows, width, values int
	text                int // bytes of all timestamps
}

// bytes returns the memory of the columns.
func (h *packedHead) bytes() int {
	if h.kind == packedAgents { // values is 1 with items
		return h.rows * (4 + 4*h.width + 4*h.values)
	}
	return h.rows*(4+8+8+8+16+8*h.values+4*h.width) + h.text
}

func (h *packedHead) fits() bool {
	return h.rows >= 1 && h.rows <= maxPackedRows && h.width >= 1 && h.width <= math.MaxUint16 &&
		h.text <= maxPackedBytes && h.bytes() <= maxPackedBytes
}

func (h *packedHead) append(dst []byte) []byte {
	dst = append(append(dst, packedMagic...), h.kind, packedVersion)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(h.rows))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(h.width))
	dst = binary.LittleEndian.AppendUint16(dst, uint16(h.values))
	return binary.LittleEndian.AppendUint32(dst, uint32(h.text))
}

func isPacked(data []byte) bool {
	return len(data) >= len(packedMagic) && string(data[:len(packedMagic)]) == packedMagic
}

// readPackedHead reads the header of a packed batch, and returns its columns. All numbers in h are
// within the limits.
func readPackedHead(data []byte) (h packedHead, columns []byte, err error) {
	if len(data) < packedHeader {
		return h, nil, fmt.Errorf("it has %d bytes, which are no header", len(data))
	}
	h.kind = data[6]
	if data[7] != packedVersion {
		return h, nil, jobs.Errorf(jobs.CodeVersion, "packed batch: its version is %d, this agent speaks %d: update "+
			"the older side", data[7], packedVersion)
	}
	h.rows = int(binary.LittleEndian.Uint32(data[8:]))
	h.width = int(binary.LittleEndian.Uint16(data[12:]))
	h.values = int(binary.LittleEndian.Uint16(data[14:]))
	h.text = int(binary.LittleEndian.Uint32(data[16:]))
	switch {
	case !h.fits():
		return h, nil, fmt.Errorf("%d rows of %d features and %d bytes of text: use 1 to %d rows and %d bytes of "+
			"memory", h.rows, h.width, h.text, maxPackedRows, maxPackedBytes)
	case h.kind == packedGroups && (h.values == 1 || h.values == h.width):
	case h.kind == packedAgents && h.values <= 1 && h.text == 0:
	default:
		return h, nil, fmt.Errorf("kind %d with %d values of %d features", h.kind, h.values, h.width)
	}
	return h, data[packedHeader:], nil
}

// MemoryOf returns how many bytes of memory the observations of an entry need when they are
// decoded, at least the length of data. Few bytes may ask for up to 16 MiB. An entry that cannot be
// decoded needs no more than its length.
func MemoryOf(data []byte) int {
	if !isPacked(data) {
		return len(data)
	}
	h, _, err := readPackedHead(data)
	if err != nil {
		return len(data)
	}
	return max(len(data), h.bytes())
}

// Pack returns the batch in the form of the logs of swarms, for DecodeObservations: a packed batch,
// or an Arrow IPC stream where the batch is empty or beyond the limits of that. It does not keep
// the slices.
func (o *Observations) Pack() ([]byte, error) {
	n := o.Len()
	values := width(o.Value, n)
	h := packedHead{
		kind: packedGroups, rows: n, width: o.Width, values: values,
		text: textBytes(o.Timestamp),
	}
	if !h.fits() || values != 1 && values != o.Width || len(o.Row) != n || len(o.Time) != n || len(o.Read) != n ||
		len(o.Timestamp) != n || len(o.Features) != n*o.Width {
		return o.Encode() // or its error
	}
	data := h.append(make([]byte, 0, packedHeader+16*n+256))
	data = appendInts(data, o.Group, n, nil)
	at := len(data)
	data = append(data, 0)
	order := orderByGroup(o.Group)
	var options byte
	data, byGroup := appendShorter(data, o.Row, order)
	options |= rowByGroup * byGroup
	data, byGroup = appendShorter(data, o.Time, order)
	options |= timeByGroup * byGroup
	data = appendInts(data, o.Read, n, nil)
	stamp := stampOf(o.Timestamp[0])
	if !stamp.Matches(o.Timestamp, o.Time) {
		stamp = 0
	}
	if data = append(data, byte(stamp)); stamp == 0 {
		data = appendTexts(data, o.Timestamp, nil)
	}
	if byGroup := shorter(order, func(rows int, order permutation) []byte {
		return appendFloats(nil, o.Value, 0, values, rows, order)
	}); byGroup {
		options |= valueByGroup
	} else {
		order = nil
	}
	for c := range values {
		data = appendFloats(data, o.Value, c, values, n, order)
	}
	if !o.rounded(values) {
		options |= ownFeatures
		for c := range o.Width {
			data = appendFloats(data, o.Features, c, o.Width, n, order)
		}
	}
	data[at] = options
	return data, nil
}

// rounded reports whether the features are the values in single precision.
func (o *Observations) rounded(values int) bool {
	if values != o.Width {
		return false
	}
	for i, v := range o.Value {
		if math.Float32bits(float32(v)) != math.Float32bits(o.Features[i]) {
			return false
		}
	}
	return true
}

// appendShorter appends a column in the shorter of two orders: byGroup is 0 for the rows and 1 for
// the groups. order may be nil.
func appendShorter[T integer](data []byte, v []T, order permutation) (_ []byte, byGroup byte) {
	if shorter(order, func(rows int, order permutation) []byte {
		return appendInts(nil, v, rows, order)
	}) {
		return appendInts(data, v, len(v), order), 1
	}
	return appendInts(data, v, len(v), nil), 0
}

// sample is the number of rows by which the order of a column is chosen.
const sample = 4 * packBlock

// shorter reports whether the first rows of a column are shorter in an order, which may be nil,
// than as they are.
func shorter(order permutation, pack func(rows int, order permutation) []byte) bool {
	if order == nil {
		return false
	}
	rows := min(sample, len(order))
	return len(pack(rows, order)) < len(pack(rows, nil))
}

// orderByGroup returns the rows in the order of their groups, and of the batch within a group; nil
// if the batch has long runs of groups already, or each group once.
func orderByGroup(groups []uint32) permutation {
	changes := 0
	for i, g := range groups[1:] {
		if g != groups[i] {
			changes++
		}
	}
	if changes < len(groups)/8 {
		return nil
	}
	order := sortByGroup(groups)
	for i, row := range order[1:] {
		if groups[row] == groups[order[i]] {
			return order
		}
	}
	return nil
}

// sortByGroup is a stable sort of the rows by group: a counting sort by each digit of the groups.
func sortByGroup(groups []uint32) permutation {
	const digit = 11 // bits
	order, next := make(permutation, len(groups)), make(permutation, len(groups))
	var most uint32
	for i, g := range groups {
		order[i], most = uint32(i), max(most, g)
	}
	var counts [1 << digit]uint32
	for shift := 0; shift < 32 && most>>shift > 0; shift += digit {
		clear(counts[:])
		for _, g := range groups {
			counts[g>>shift&(1<<digit-1)]++
		}
		sum := uint32(0)
		for i, n := range counts {
			counts[i] = sum
			sum += n
		}
		for _, row := range order {
			d := groups[row] >> shift & (1<<digit - 1)
			next[counts[d]] = row
			counts[d]++
		}
		order, next = next, order
	}
	return order
}

// unpack runs the steps of a decoder until one fails, and returns that as an error of a batch.
func unpack(kind string, data []byte, want byte, fill func(packedHead, []byte) ([]byte, error)) error {
	h, columns, err := readPackedHead(data)
	if err == nil && h.kind != want {
		err = fmt.Errorf("it is of kind %q", h.kind)
	}
	if err == nil {
		columns, err = fill(h, columns)
	}
	if err == nil && len(columns) > 0 {
		err = fmt.Errorf("%d bytes behind its columns", len(columns))
	}
	if e, ok := err.(*jobs.Error); ok { //nolint:errorlint // readPackedHead returns it unwrapped
		return e
	}
	if err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "packed batch of %s: %v", kind, err)
	}
	return nil
}

func (o *Observations) unpack(data []byte) error {
	return unpack("observations", data, packedGroups, func(h packedHead, data []byte) (_ []byte, err error) {
		o.Group, o.Row = make([]uint32, h.rows), make([]uint64, h.rows)
		o.Time, o.Read = make([]int64, h.rows), make([]int64, h.rows)
		if data, err = readInts(o.Group, data, nil); err != nil {
			return nil, fmt.Errorf("column %s: %w", colGroup, err)
		}
		if len(data) == 0 || data[0]&^packedOptions != 0 {
			return nil, fmt.Errorf("%w: no options", errCorrupt)
		}
		options, data := data[0], data[1:]
		var sorted permutation
		if options&(rowByGroup|timeByGroup|valueByGroup) != 0 {
			sorted = sortByGroup(o.Group)
		}
		order := func(flag byte) permutation {
			if options&flag == 0 {
				return nil
			}
			return sorted
		}
		if data, err = readInts(o.Row, data, order(rowByGroup)); err != nil {
			return nil, fmt.Errorf("column %s: %w", colRow, err)
		}
		if data, err = readInts(o.Time, data, order(timeByGroup)); err != nil {
			return nil, fmt.Errorf("column %s: %w", colTime, err)
		}
		if data, err = readInts(o.Read, data, nil); err != nil {
			return nil, fmt.Errorf("column %s: %w", colRead, err)
		}
		if data, err = o.unpackTimestamps(h, data); err != nil {
			return nil, fmt.Errorf("column %s: %w", colTimestamp, err)
		}
		o.Value = make([]float64, h.rows*h.values)
		o.Width, o.Features = h.width, make([]float32, h.rows*h.width)
		if data, err = unpackFloats(o.Value, h.values, data, order(valueByGroup)); err != nil {
			return nil, fmt.Errorf("column %s: %w", colValue, err)
		}
		if options&ownFeatures != 0 {
			if data, err = unpackFloats(o.Features, h.width, data, order(valueByGroup)); err != nil {
				return nil, fmt.Errorf("column %s: %w", colFeatures, err)
			}
			return data, nil
		}
		if len(o.Features) != len(o.Value) {
			return nil, fmt.Errorf("%w: %d features of %d values", errCorrupt, h.width, h.values)
		}
		for i, v := range o.Value {
			o.Features[i] = float32(v)
		}
		return data, nil
	})
}

// unpackTimestamps reads the texts of the times.
func (o *Observations) unpackTimestamps(h packedHead, data []byte) ([]byte, error) {
	o.Timestamp = make([]string, h.rows)
	if len(data) == 0 {
		return nil, fmt.Errorf("%w: no form", errCorrupt)
	}
	stamp, data := stamp(data[0]), data[1:]
	if stamp == 0 {
		return readTexts(o.Timestamp, h.text, data, nil)
	}
	return data, stamp.Write(o.Timestamp, o.Time, h.text)
}

// unpackFloats reads rows of width elements, one element of all rows after the other.
func unpackFloats[T float](out []T, width int, data []byte, order permutation) (_ []byte, err error) {
	for c := range width {
		if data, err = readFloats(out, c, width, data, order); err != nil {
			return nil, err
		}
	}
	return data, nil
}

// Pack returns the batch in the form of the logs of swarms, for DecodeAgentObservations, as Pack of
// Observations does.
func (o *AgentObservations) Pack() ([]byte, error) {
	h := packedHead{kind: packedAgents, rows: len(o.Agent), width: o.Width}
	if o.Item != nil {
		h.values = 1
	}
	if !h.fits() || len(o.Features) != h.rows*h.width || len(o.Item) != h.rows*h.values {
		return o.Encode() // or its error
	}
	data := h.append(make([]byte, 0, packedHeader+h.rows*(4+4*h.width)+256))
	data = appendInts(data, o.Agent, h.rows, nil)
	for c := range o.Width {
		data = appendFloats(data, o.Features, c, o.Width, h.rows, nil)
	}
	if o.Item != nil {
		data = appendInts(data, o.Item, h.rows, nil)
	}
	return data, nil
}

func (o *AgentObservations) unpack(data []byte) error {
	return unpack("agent-observations", data, packedAgents, func(h packedHead, data []byte) (_ []byte, err error) {
		o.Agent = make([]uint32, h.rows)
		if data, err = readInts(o.Agent, data, nil); err != nil {
			return nil, fmt.Errorf("column %s: %w", colAgent, err)
		}
		o.Width, o.Features = h.width, make([]float32, h.rows*h.width)
		if data, err = unpackFloats(o.Features, h.width, data, nil); err != nil {
			return nil, fmt.Errorf("column %s: %w", colFeatures, err)
		}
		if h.values == 0 {
			return data, nil
		}
		o.Item = make([]int32, h.rows)
		if data, err = readInts(o.Item, data, nil); err != nil {
			return nil, fmt.Errorf("column %s: %w", colItem, err)
		}
		return data, nil
	})
}
