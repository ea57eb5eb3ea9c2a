package userfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/jobs"
)

// maxUnpacked bounds the contents of a packed file of sequences, in bytes.
const maxUnpacked = 1 << 40

// HoldOut names the rows that are kept out of training: those with a value in a column. The zero
// value keeps out none.
type HoldOut struct{ Column, Value string }

// ParseHoldOut reads COLUMN=VALUE. An empty text is the zero value. Errors are of usage.
func ParseHoldOut(text string) (h HoldOut, err error) {
	var ok bool
	if h.Column, h.Value, ok = strings.Cut(text, "="); text != "" && (!ok || h.Column == "" || h.Value == "") {
		return HoldOut{}, command.Usage("--hold-out %s: write COLUMN=VALUE, as in fold=0", text)
	}
	return h, nil
}

// Sequences are the sequences of a table of events, as a job trains with them. A sequence has
// moments, which are its rows, or with train.ahead 1 its rows but the last.
type Sequences struct {
	// Keys are the values of the column train.sequence, and Lengths the moments of each sequence: in
	// the order of their first rows, and the HeldOut sequences that are held out last.
	Keys    []string
	Lengths []uint32
	HeldOut int
	// Inputs are the features of each moment, sequence after sequence.
	Inputs []float32
	// Asked are the items of the moments, nil without items, and Targets what is to be predicted; -1
	// where a row leaves it out.
	Asked, Targets []int32
	// Single is how many sequences are left out, because they have one row and train.ahead is 1.
	Single int
}

// sequence is the part of a sequence that is read.
type sequence struct {
	held           bool
	inputs         []float32
	asked, targets []int32 // one for each row
}

// ReadSequences reads files and folders as a run does: CSV, NDJSON, Parquet and
// Arrow, also packed, and - for in. Rows with one value of train.sequence are one sequence, in the
// order of the files and their rows. The first row that cannot be used ends the reading with an
// error of the input, which names file, row and column.
func ReadSequences(ctx context.Context, paths []string, in io.Reader, spec *swarm.Spec, hold HoldOut) (
	_ *Sequences, err error,
) {
	paths, err = Expand(paths)
	if err != nil {
		return nil, err
	}
	spooled, err := Spool(ctx, paths, in)
	defer func() { err = errors.Join(err, spooled.Close()) }()
	if err != nil {
		return nil, err
	}
	files, err := Find(spooled.Paths)
	if err != nil {
		return nil, err
	}
	r := sequences{spec: spec, hold: hold, all: map[string]*sequence{}}
	if err := r.columns(); err != nil {
		return nil, err
	}
	for _, f := range files {
		if err := r.file(ctx, f); err != nil {
			return nil, err
		}
	}
	return r.pack()
}

// sequences reads the sequences of files.
type sequences struct {
	spec  *swarm.Spec
	hold  HoldOut
	read  rows.ColumnSpec
	all   map[string]*sequence
	order []string // keys in the order of their first rows
}

// columns sets the columns that are read: the features, the item and the target, and as a key the
// sequence and the column of --hold-out.
func (r *sequences) columns() error {
	names, settings := r.spec.TrainColumns()
	key := []string{r.spec.Train.Sequence}
	if c := r.hold.Column; c != "" && c != key[0] {
		if slices.Contains(names, c) {
			return command.Usage("--hold-out %s: the column is a feature, the item or the target: name another one", c)
		}
		key, settings[c] = append(key, c), "or correct --hold-out"
	}
	r.read = rows.ColumnSpec{
		Features: names, Blank: 1, Settings: settings, Key: key, AnyOrder: true, CSV: &r.spec.CSV,
	}
	return nil
}

func (r *sequences) file(ctx context.Context, f Input) (err error) {
	file, err := os.Open(f.Path)
	if err != nil {
		return jobs.Errorf(jobs.CodeInput, "--input: %v", err)
	}
	in, err := rows.Open(f.Path, file, f.Format, r.read, maxUnpacked, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Close()) }()
	for ctx.Err() == nil {
		row, reject, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		case reject != nil:
			return jobs.Errorf(jobs.CodeInput, "%s: %s: %s: %s", f.Path, reject.Place(), reject.Reason,
				cmp.Or(reject.Cure, "correct the row, or leave it out"))
		}
		if err := r.add(&row); err != nil {
			return jobs.Errorf(jobs.CodeInput, "%s: row %d: %v", f.Path, row.Number, err)
		}
	}
	return context.Cause(ctx)
}

// add adds a row to its sequence.
func (r *sequences) add(row *rows.Row) error {
	key, rest := rows.CutKey(row.Key)
	held := r.hold.Column != "" && rest == r.hold.Value
	if r.hold.Column == r.spec.Train.Sequence {
		held = key == r.hold.Value
	}
	s := r.all[key]
	if s == nil {
		s = &sequence{held: held}
		r.all[key], r.order = s, append(r.order, key)
	}
	if s.held != held {
		return fmt.Errorf("sequence %s has rows with %s %s and others: hold out whole sequences", key, r.hold.Column,
			r.hold.Value)
	}
	of, n := r.spec, len(r.spec.Features)
	if rows := of.Cell.Embed.Rows; rows > 0 {
		if _, err := whole(of.Features[0], row.Values[0], rows, "cell.embed.rows"); err != nil {
			return err
		}
	}
	s.inputs = append(s.inputs, row.Features[:n]...)
	answers, cure := len(of.Vote.Candidates), "vote.candidates"
	if of.Cell.Items > 0 {
		answers, cure = 2, ""
		item, err := whole(of.Train.Item, row.Values[n], of.Cell.Items, "cell.items")
		if err != nil {
			return err
		}
		s.asked = append(s.asked, item)
		n++
	}
	target := int32(-1)
	if v := row.Values[n]; !math.IsNaN(v) {
		var err error
		if target, err = whole(of.Train.Target, v, answers, cure); err != nil {
			return err
		}
	}
	s.targets = append(s.targets, target)
	return nil
}

// whole returns a whole number from 0 to n-1. The key of the specification that says n is the cure;
// empty: there is none.
func whole(column string, v float64, n int, key string) (int32, error) {
	if v >= 0 && v < float64(n) && v == math.Trunc(v) {
		return int32(v), nil
	}
	if key != "" {
		key = fmt.Sprintf(", or see %s in the specification", key)
	}
	return 0, fmt.Errorf("column %q: %v is not a whole number from 0 to %d: correct it%s", column, v, n-1, key)
}

// pack puts the sequences one behind the other.
func (r *sequences) pack() (*Sequences, error) {
	p, ahead, width := &Sequences{}, r.spec.Train.Ahead, len(r.spec.Features)
	for _, held := range []bool{false, true} {
		for _, key := range r.order {
			s := r.all[key]
			moments := len(s.targets) - ahead
			if s.held != held {
				continue
			}
			if moments < 1 {
				p.Single++
				continue
			}
			if held {
				p.HeldOut++
			}
			p.Keys, p.Lengths = append(p.Keys, key), append(p.Lengths, uint32(moments))
			p.Inputs = append(p.Inputs, s.inputs[:moments*width]...)
			p.Targets = append(p.Targets, s.targets[ahead:]...)
			if s.asked != nil {
				p.Asked = append(p.Asked, s.asked[ahead:]...)
			}
		}
	}
	if n := len(p.Keys) - p.HeldOut; n < 2 {
		return nil, jobs.Errorf(jobs.CodeInput, "%d sequences to train with, %d of one row left out: give two at "+
			"least, one of them for validation; column %q tells them apart", n, p.Single, r.spec.Train.Sequence)
	}
	if r.hold.Column != "" && p.HeldOut == 0 {
		return nil, command.Usage("--hold-out %s=%s: no sequence with moments has it: check the value",
			r.hold.Column, r.hold.Value)
	}
	return p, nil
}
