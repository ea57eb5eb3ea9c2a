package files

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/memory"
)

// spill is a reader that keeps the memory for one source free for others. While the hold of the
// inner reader has that memory, spill moves its rows to a temporary file and reads them back from
// there. It changes neither the rows nor their order. One goroutine uses it. It owns the file and
// the reader.
type spill struct {
	rows.Reader
	hold  *access.Hold
	files *Files

	file    *os.File
	written int64         // bytes of rows in the file
	from    *bufio.Reader // nil: there are no rows in the file
	left    uint64        // rows in the file
	ended   error         // what the reader returned after them; nil while it has more
}

// newSpill owns the reader and its hold from here on, also when it returns an error. If the opening
// of the reader took the memory for one source, its rows are moved now.
func newSpill(r rows.Reader, h *access.Hold, files *Files) (rows.Reader, error) {
	s := &spill{Reader: r, hold: h, files: files}
	if err := s.fill(nil); err != nil {
		_ = s.Close()
		return nil, err
	}
	return s, nil
}

func (s *spill) Close() error {
	err := s.Reader.Close()
	s.hold.Release()
	if s.file != nil {
		err = errors.Join(err, s.file.Close())
		s.file = nil
	}
	return err
}

func (s *spill) Next() (rows.Row, *rows.Reject, error) {
	for {
		switch {
		case s.left > 0:
			s.left--
			return s.get()
		case s.ended != nil:
			return rows.Row{}, nil, s.ended
		}
		out, rejected, err := s.Reader.Next()
		if err != nil || s.hold.Settle() {
			return out, rejected, err
		}
		if err := s.fill(&entry{out, rejected}); err != nil {
			return rows.Row{}, nil, err
		}
	}
}

// spillStep is the number of rows after which the reader is asked whether its memory fits with
// other sources again.
const spillStep = 4096

type entry struct {
	row      rows.Row
	rejected *rows.Reject
}

// fill moves rows to the file until the reader has left the memory for one source, or has ended.
// The parameter first is an entry that was read already; nil for none.
func (s *spill) fill(first *entry) error {
	if s.hold.Settle() {
		return nil
	}
	if s.file == nil {
		file, err := s.files.Spool()
		if err != nil {
			return err
		}
		s.file = file
	}
	if err := Rewind(s.file); err != nil {
		return err
	}
	s.written = 0
	w := bufio.NewWriterSize(writeOnly{s.file, s.files.scratch}, 64<<10)
	var line []byte
	for {
		if first == nil {
			out, rejected, err := s.Reader.Next()
			if err != nil {
				s.ended = err
				break
			}
			first = &entry{out, rejected}
		}
		if line = first.append(line[:0]); s.written+int64(len(line)) > s.files.unpacked {
			return access.InputError(
				"%s: its rows take more than %s of temporary files, which is what this agent allows: unpack the "+
					"source before, or raise --max-unpacked",
				s.hold.Name(), memory.Text(s.files.unpacked),
			)
		}
		s.written += int64(len(line))
		if _, err := w.Write(line); err != nil {
			return err
		}
		s.left++
		first = nil
		if s.left%spillStep == 0 && s.hold.Settle() {
			break
		}
	}
	if s.ended != nil { // nothing more is decoded; the error stands behind the rows
		_ = s.Reader.Close()
		s.Reader = noRows{}
		s.hold.Release()
	}
	if err := w.Flush(); err != nil {
		return err
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return ScratchError("read back a temporary file in", s.files.scratch, err)
	}
	s.from = bufio.NewReaderSize(s.file, 32<<10)
	return nil
}

type noRows struct{}

func (noRows) Next() (rows.Row, *rows.Reject, error) { return rows.Row{}, nil, io.EOF }
func (noRows) Close() error                          { return nil }

// append writes an entry: its length, a byte that is 1 for a reject, and then the reject as JSON,
// or the row with its numbers in fixed places, the length of its key, the key and the timestamp.
// Numbers are little-endian.
// Features are not written, since they follow from the values.
func (e *entry) append(b []byte) []byte {
	le := binary.LittleEndian
	b = append(b, 0, 0, 0, 0, 0)
	if e.rejected != nil {
		b[4] = 1
		text, _ := json.Marshal(e.rejected) // texts and numbers
		b = append(b, text...)
	} else {
		r := &e.row
		b = le.AppendUint64(b, r.Number)
		b = le.AppendUint64(b, uint64(r.Time))
		b = le.AppendUint32(b, uint32(len(r.Values)))
		for _, v := range r.Values {
			b = le.AppendUint64(b, math.Float64bits(v))
		}
		b = le.AppendUint32(b, uint32(len(r.Key)))
		b = append(b, r.Key...)
		b = append(b, r.Timestamp...)
	}
	le.PutUint32(b, uint32(len(b)-5))
	return b
}

// get reads an entry back from the file, as append wrote it. The file is private to this process,
// so damage is an error of the scratch folder and not of the input.
func (s *spill) get() (rows.Row, *rows.Reject, error) {
	le := binary.LittleEndian
	var head [5]byte
	_, err := io.ReadFull(s.from, head[:])
	var b []byte
	if err == nil {
		b = make([]byte, le.Uint32(head[:]))
		_, err = io.ReadFull(s.from, b)
	}
	if err != nil {
		return rows.Row{}, nil, ScratchError("read back a temporary file in", s.files.scratch, err)
	}
	if head[4] == 1 {
		var r rows.Reject
		if err := json.Unmarshal(b, &r); err != nil {
			return rows.Row{}, nil, fmt.Errorf("read back a reject: %w", err)
		}
		return rows.Row{}, &r, nil
	}
	n := le.Uint32(b[16:])
	r := rows.Row{
		Number:   le.Uint64(b),
		Time:     int64(le.Uint64(b[8:])),
		Features: make([]float32, n),
		Values:   make([]float64, n),
	}
	b = b[20:]
	for i := range r.Values {
		r.Values[i] = math.Float64frombits(le.Uint64(b[8*i:]))
		r.Features[i] = float32(r.Values[i])
	}
	b = b[8*len(r.Values):]
	key := le.Uint32(b)
	r.Key, r.Timestamp = string(b[4:4+key]), string(b[4+key:])
	return r, nil, nil
}
