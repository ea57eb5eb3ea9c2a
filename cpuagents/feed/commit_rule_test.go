package feed

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// errKilled ends an attempt at an append.
var errKilled = errors.New("killed")

// world is a detector with attempts. Several may run at a time. Row i is a row of shard i%shards,
// and the data of a part are the numbers of its rows.
type world struct {
	t        *rapid.T
	record   swarms.Swarm
	log      func(int, swarms.Direction) swarms.Log
	shards   int
	attempts []*attempt
	trimmed  []map[uint64]string // by shard: the data of the batches that were removed

	mu      sync.Mutex
	between []func() // what others do before the next appends of an attempt
	acting  bool     // an attempt runs
	running *attempt
}

// attempt is an attempt at the detector.
type attempt struct {
	w    *world
	s    *State
	left int // appends until it is killed
	rows uint64
}

// cutLog is a log of an attempt.
type cutLog struct {
	swarms.Log
	a *attempt
}

// Append lets others act first, and fails after the last append of the attempt.
func (l cutLog) Append(ctx context.Context, after uint64, entries ...swarms.Entry) error {
	w := l.a.w
	w.mu.Lock()
	var act func()
	if len(w.between) > 0 && !w.acting {
		act, w.between, w.acting = w.between[0], w.between[1:], true
	}
	l.a.left--
	killed := l.a.left < 0
	w.mu.Unlock()
	if act != nil {
		act()
		w.mu.Lock()
		w.acting = false
		w.mu.Unlock()
	}
	if killed {
		return errKilled
	}
	return l.Log.Append(ctx, after, entries...)
}

// begin takes over, and completes the last batch.
func (w *world) begin(left int) *attempt {
	a := &attempt{w: w, left: left}
	s, err := OpenState(context.Background(), StateOptions{
		Record: w.record, Logs: ClusterLogs,
		Log: func(shard int, d swarms.Direction) swarms.Log { return cutLog{w.log(shard, d), a} },
	})
	if a.ended(err) {
		return nil
	}
	a.s = s
	if len(s.Missing) > 0 {
		before := uint64(0)
		if len(s.Last.Before) > 0 {
			before = s.Last.Before[0].Rows
		}
		of := s.Last.Sources[0].Rows
		parts := w.parts(before, of)
		parts = slices.DeleteFunc(parts, func(p Part) bool { return !slices.Contains(s.Missing, p.Shard) })
		if a.ended(s.Complete(context.Background(), parts)) {
			return nil
		}
	}
	if len(s.Last.Sources) > 0 {
		a.rows = s.Last.Sources[0].Rows
	}
	w.attempts = append(w.attempts, a)
	return a
}

// parts returns the batch of the rows behind number from, up to number to.
func (w *world) parts(from, to uint64) (all []Part) {
	texts := make([][]string, w.shards)
	for i := from + 1; i <= to; i++ {
		k := int(i) % w.shards
		texts[k] = append(texts[k], strconv.FormatUint(i, 10))
	}
	for k, text := range texts {
		if len(text) > 0 {
			all = append(all, Part{Shard: k, Data: []byte(strings.Join(text, " "))})
		}
	}
	return all
}

// ended reports whether an error ends the attempt, which it may.
func (a *attempt) ended(err error) bool {
	if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, jobs.ErrFenced) {
		a.w.t.Fatalf("an attempt fails: %v", err)
	}
	if err == nil {
		return false
	}
	a.w.attempts = slices.DeleteFunc(a.w.attempts, func(b *attempt) bool { return a == b })
	return true
}

// read commits a batch of n rows; of none it stores the position alone. local is text of the
// position.
func (a *attempt) read(n uint64, local string) {
	m := a.s.Last
	m.Sources = []Place{{Entry: 1, Rows: a.rows + n, Local: local}}
	m.Rows = a.rows + n
	var err error
	if n == 0 {
		err = a.s.Note(context.Background(), m)
	} else {
		err = a.s.Commit(context.Background(), a.w.parts(a.rows, a.rows+n), m)
	}
	if !a.ended(err) {
		a.rows += n
	}
}

// each calls fn for the entries that a log has.
func (w *world) each(k int, fn func(swarms.Entry)) {
	ctx := context.Background()
	last, err := w.log(k, swarms.In).Last(ctx)
	if err == nil && last.Seq > 0 {
		err = rest(ctx, w.log(k, swarms.In), last.Seq, fn)
	}
	if err != nil {
		w.t.Fatal(err)
	}
}

func rest(ctx context.Context, l swarms.Log, to uint64, fn func(swarms.Entry)) error {
	for from := uint64(1); ; {
		r, err := l.Read(ctx, from)
		if err != nil {
			return err
		}
		e, err := r.Next(ctx)
		if trimmed := (*swarms.TrimmedError)(nil); errors.As(err, &trimmed) {
			from = trimmed.First
			r.Close()
			continue
		}
		for ; err == nil; e, err = r.Next(ctx) {
			if fn(e); e.Seq == to {
				break
			}
		}
		r.Close()
		return err
	}
}

// trim removes the entries of a log before its last one with a note, as swarmclient does before the
// entry of a snapshot.
func (w *world) trim(k int) {
	first := uint64(0)
	var all []swarms.Entry
	w.each(k, func(e swarms.Entry) {
		all = append(all, e)
		if e.Note != "" {
			first = e.Seq
		}
	})
	for _, e := range all {
		if e.Seq < first && e.Kind == swarms.EntryObserve {
			w.trimmed[k][e.Seq] = string(e.Data)
		}
	}
	if first > 1 {
		if err := w.log(k, swarms.In).Trim(context.Background(), first); err != nil {
			w.t.Fatal(err)
		}
	}
}

// ask appends a question of another client.
func (w *world) ask(k int) {
	l := w.log(k, swarms.In)
	for {
		last, err := l.Last(context.Background())
		if err == nil {
			err = l.Append(context.Background(), last.Seq, swarms.Entry{Kind: swarms.EntryQuery, Ref: last.Seq + 1})
		}
		if err == nil {
			return
		}
		if !errors.Is(err, jobs.ErrFenced) { // an attempt appends at the same time
			w.t.Fatal(err)
		}
	}
}

// step draws what happens next, and runs it. Nested steps run between the appends of an attempt.
func (w *world) step(name string, nested bool) func() {
	t := w.t
	draw := func(what string, most int) int { return rapid.IntRange(0, most).Draw(t, name+what) }
	var between []func()
	if !nested {
		for i := range draw("between", 3) {
			between = append(between, w.step(fmt.Sprint(name, i, "."), true))
		}
	}
	kind, who, n, left, shard := draw("kind", 9), draw("who", 3), draw("rows", 5), draw("left", 9), draw("shard", 2)
	local := ""
	if draw("local", 5) == 0 {
		local = strings.Repeat("x", swarms.MaxNote)
	}
	return func() {
		if !nested {
			w.mu.Lock()
			w.between = between
			w.mu.Unlock()
		}
		others := slices.DeleteFunc(slices.Clone(w.attempts), func(a *attempt) bool { return nested && a == w.running })
		switch {
		case kind == 0:
			w.ask(shard % w.shards)
		case kind == 1:
			w.trim(shard % w.shards)
		case kind <= 3 || len(others) == 0:
			if left == 9 {
				left = 1000
			}
			w.begin(left)
		default:
			if a := others[who%len(others)]; nested {
				a.read(uint64(n), local)
			} else {
				w.running = a
				a.read(uint64(n), local)
				w.running = nil
			}
		}
	}
}

// TestRule: whatever attempts do at the same time, wherever they are killed, and whatever other
// clients append, each row is in the log of its shard once, in order, also behind the state of an
// earlier program.
func TestRule(t *testing.T) {
	testkit.Checks(t, 40)
	conn := jobstest.Connected(t, natsq.Connect)
	rapid.Check(t, func(t *rapid.T) {
		w := &world{t: t, shards: rapid.IntRange(1, 3).Draw(t, "shards")}
		w.record = swarms.Swarm{
			ID: "d", Nonce: swarms.NewNonce(), Groups: 9, Shards: w.shards, Spec: []byte(`{"agents_per_group":4}`),
		}
		w.log = func(shard int, d swarms.Direction) swarms.Log { return conn.Swarms.Log(w.record.Key(), shard, d) }
		for k := range w.shards {
			w.trimmed = append(w.trimmed, map[uint64]string{})
			l := w.log(k, swarms.In)
			if err := l.Create(context.Background()); err != nil {
				t.Fatal(err)
			}
			defer func() { _ = l.Delete(context.Background()) }()
		}
		for _, of := range []int{ClusterLogs.Marks, ClusterLogs.Keys, ClusterLogs.Collected} {
			defer func() { _ = w.log(of, swarms.In).Delete(context.Background()) }()
		}
		if n := rapid.IntRange(0, 3).Draw(t, "earlier"); n > 0 {
			old, rows := openEarlier(t, w.log, w.shards), uint64(0)
			for i := range n {
				parts := w.parts(rows, rows+4)
				rows += 4
				stored := len(parts)
				if i == n-1 {
					stored = rapid.IntRange(0, stored).Draw(t, "stored")
				}
				old.append(t, rows, stored, parts...)
			}
		}
		for i := range rapid.IntRange(1, 12).Draw(t, "steps") {
			w.step(fmt.Sprint(i, "."), false)()
		}
		w.between = nil
		last := w.begin(1000)
		if last == nil {
			t.Fatal("the last attempt does not begin")
		}
		last.read(3, "")
		for k := range w.shards {
			all := w.trimmed[k]
			w.each(k, func(e swarms.Entry) {
				if e.Kind == swarms.EntryObserve {
					all[e.Seq] = string(e.Data)
				}
			})
			var got, want []string
			for seq := uint64(0); len(all) > 0; seq++ {
				if text, ok := all[seq]; ok {
					got = append(got, text)
					delete(all, seq)
				}
			}
			for _, p := range w.parts(0, last.rows) {
				if p.Shard == k {
					want = append(want, string(p.Data))
				}
			}
			if g, w := strings.Join(got, " "), strings.Join(want, " "); g != w {
				t.Fatalf("shard %d has the rows %s, want %s", k, g, w)
			}
		}
	})
}
