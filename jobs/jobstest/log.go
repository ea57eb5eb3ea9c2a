package jobstest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func created(t *testing.T, c Client, name string) swarms.Log {
	t.Helper()
	l := c.Log(name, 0, swarms.In)
	if err := l.Create(within(t)); err != nil {
		t.Fatal(err)
	}
	return l
}

func entry(n uint64) swarms.Entry {
	return swarms.Entry{Kind: swarms.EntryObserve, Ref: n, Data: []byte(fmt.Sprint("entry ", n))}
}

func fill(t *testing.T, l swarms.Log, n uint64) {
	t.Helper()
	for i := range n {
		if err := l.Append(within(t), i, entry(i+1)); err != nil {
			t.Fatal(err)
		}
	}
}

// testLogOrder: a reader that starts before, in the middle of, or after the writing sees every
// entry once and in order.
func testLogOrder(t *testing.T, q Queue) {
	c := q.Connect(t)
	l := created(t, c, "s")
	early, err := l.Read(within(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer early.Close()
	if last, err := l.Last(within(t)); err != nil || last.Seq != 0 {
		t.Fatalf("an empty log ends at %+v, %v", last, err)
	}
	const n = 200
	fill(t, l, n)
	late, err := q.Connect(t).Log("s", 0, swarms.In).Read(within(t), 51)
	if err != nil {
		t.Fatal(err)
	}
	defer late.Close()
	for r, first := range map[swarms.Reader]uint64{early: 1, late: 51} {
		for i := first; i <= n; i++ {
			e, err := r.Next(within(t))
			if err != nil {
				t.Fatal(err)
			}
			if e.Seq != i || e.Ref != i || e.Kind != swarms.EntryObserve || string(e.Data) != fmt.Sprint("entry ", i) {
				t.Fatalf("entry %d is %+v", i, e)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		if e, err := r.Next(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("after the end: %+v, %v", e, err)
		}
		cancel()
	}
	last, err := l.Last(within(t))
	if err != nil || last.Seq != n || last.Ref != n {
		t.Fatalf("the log ends at %+v, %v", last, err)
	}
	noted := entry(n + 1)
	noted.Note = `{"offset":7}`
	if err := l.Append(within(t), n, noted); err != nil {
		t.Fatal(err)
	}
	if e, err := early.Next(within(t)); err != nil || e.Note != noted.Note {
		t.Errorf("the note of an entry is %q, %v, want %q", e.Note, err, noted.Note)
	}
	if last, err = l.Last(within(t)); err != nil || last.Note != noted.Note {
		t.Errorf("the note of the last entry is %q, %v, want %q", last.Note, err, noted.Note)
	}
	for what, note := range map[string]string{
		"a line end": "a\nb", "a letter beyond ASCII": "é", "a space at its end": "a ",
		"too many bytes": strings.Repeat("x", swarms.MaxNote+1),
	} {
		bad := entry(n + 2)
		bad.Note = note
		if err := l.Append(within(t), n+1, bad); jobs.AsError(err).Code != jobs.CodeInvalid {
			t.Errorf("a note with %s: %v, want an error of class %s", what, err, jobs.CodeInvalid)
		}
	}
}

// testLogFence: of two writers that both think they are next, one wins, and the other learns of it.
func testLogFence(t *testing.T, q Queue) {
	a := created(t, q.Connect(t), "s")
	b := q.Connect(t).Log("s", 0, swarms.In)
	fill(t, a, 3)
	theirs := swarms.Entry{Kind: swarms.EntryObserve, Ref: 4, Data: []byte("theirs")}
	if err := b.Append(within(t), 3, theirs); err != nil {
		t.Fatal(err)
	}
	if err := a.Append(within(t), 3, entry(4)); !errors.Is(err, jobs.ErrFenced) {
		t.Fatalf("a writer that lost the log wrote to it: %v", err)
	}
	if err := a.Append(within(t), 9, entry(10)); !errors.Is(err, jobs.ErrFenced) {
		t.Fatalf("an entry was appended past the end: %v", err)
	}
	if last, err := a.Last(within(t)); err != nil || last.Seq != 4 || string(last.Data) != "theirs" {
		t.Fatalf("%+v, %v", last, err)
	}
	// The same call again, as after a lost acknowledgement, succeeds and stores nothing.
	if err := b.Append(within(t), 3, theirs); err != nil {
		t.Fatalf("repeated append: %v", err)
	}
	if last, err := a.Last(within(t)); err != nil || last.Seq != 4 {
		t.Fatalf("%+v, %v", last, err)
	}
	// So it does where others have written behind its entries, and only there.
	if err := b.Append(within(t), 4, several(5, 7)...); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		last, err := a.Last(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Append(within(t), last.Seq, swarms.Entry{Kind: swarms.EntryQuery, Ref: 7}); err != nil {
			t.Fatal(err)
		}
		if err := b.Append(within(t), 4, several(5, 7)...); err != nil {
			t.Fatalf("repeated append of what others have written behind: %v", err)
		}
		for what, again := range map[string][]swarms.Entry{
			"more than is there": several(5, 8),
			"another kind":       {{Kind: swarms.EntryTick, Ref: 5, Data: entry(5).Data}},
			"other data":         {{Kind: entry(5).Kind, Ref: 5, Data: []byte("other")}},
			"another number":     {{Kind: entry(5).Kind, Ref: 6, Data: entry(5).Data}},
			"another note":       {{Kind: entry(5).Kind, Ref: 5, Data: entry(5).Data, Note: "note"}},
		} {
			if err := b.Append(within(t), 4, again...); !errors.Is(err, jobs.ErrFenced) {
				t.Fatalf("%s: %v", what, err)
			}
		}
		if err := a.Append(within(t), 4, several(5, 7)...); !errors.Is(err, jobs.ErrFenced) {
			t.Fatalf("what another writer has stored: %v", err)
		}
		if end, err := a.Last(within(t)); err != nil || end.Seq != last.Seq+1 {
			t.Fatalf("%+v, %v: something was stored again", end, err)
		}
	}
}

// several are entries with the numbers from first to last.
func several(first, last uint64) (all []swarms.Entry) {
	for n := first; n <= last; n++ {
		all = append(all, entry(n))
	}
	return all
}

// testLogWindow: entries of one call are stored in their order. Entries that an earlier try has
// stored are not stored again. If another writer came in between, no entry is stored.
func testLogWindow(t *testing.T, q Queue) {
	a := created(t, q.Connect(t), "s")
	b := q.Connect(t).Log("s", 0, swarms.In)
	ends := func(n uint64) {
		t.Helper()
		if last, err := a.Last(within(t)); err != nil || last.Seq != n || last.Ref != n {
			t.Fatalf("the log ends at %+v, %v, want %d", last, err, n)
		}
	}
	if err := a.Append(within(t), 0); err != nil {
		t.Fatalf("nothing: %v", err)
	}
	ends(0)
	const n = 150 // more than are under way at once
	for _, stored := range []uint64{0, 1, 70, n} {
		// What a try has stored whose acknowledgements were lost.
		if stored > 0 {
			if err := a.Append(within(t), 0, several(1, stored)...); err != nil {
				t.Fatal(err)
			}
		}
		ends(stored)
	}
	if err := a.Append(within(t), n, several(n+1, n+3)...); err != nil {
		t.Fatal(err)
	}
	if err := a.Append(within(t), n, several(n+1, n+9)...); err != nil {
		t.Fatalf("of nine entries three are there: %v", err)
	}
	ends(n + 9)
	theirs := swarms.Entry{Kind: swarms.EntryTick, Ref: n + 10, Data: []byte("theirs")}
	if err := b.Append(within(t), n+9, theirs); err != nil {
		t.Fatal(err)
	}
	if err := a.Append(within(t), n+9, several(n+10, n+13)...); !errors.Is(err, jobs.ErrFenced) {
		t.Fatalf("a writer that lost the log wrote to it: %v", err)
	}
	ends(n + 10)
	if err := a.Append(within(t), n+20, several(n+21, n+23)...); !errors.Is(err, jobs.ErrFenced) {
		t.Fatalf("entries were appended past the end: %v", err)
	}
	ends(n + 10)
	r, err := b.Read(within(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for i := uint64(1); i <= n+9; i++ {
		if e, err := r.Next(within(t)); err != nil || e.Seq != i || e.Ref != i ||
			string(e.Data) != fmt.Sprint("entry ", i) {
			t.Fatalf("entry %d is %+v, %v", i, e, err)
		}
	}
}

// testLogRace: several writers append groups of entries to one log. A call that succeeds has its
// entries in a row where it wanted them. A fenced call has stored the first few of its entries or
// none.
func testLogRace(t *testing.T, q Queue) {
	l := created(t, q.Connect(t), "s")
	const writers, calls = 3, 25
	type call struct {
		after uint64
		n     int
		err   error
	}
	done := make([][]call, writers)
	each := make(chan error, writers)
	for w := range writers {
		mine := q.Connect(t).Log("s", 0, swarms.In)
		go func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for k := range calls {
				last, err := mine.Last(within(t))
				if err != nil {
					each <- err
					return
				}
				all := make([]swarms.Entry, 1+r.IntN(8)*r.IntN(8)) // up to 50: one at a time, and together
				for i := range all {
					all[i] = swarms.Entry{
						Kind: swarms.EntryObserve, Ref: last.Seq + uint64(i),
						Data: fmt.Appendf(nil, "%d %d %d", w, k, i),
					}
				}
				if err = mine.Append(within(t), last.Seq, all...); err != nil && !errors.Is(err, jobs.ErrFenced) {
					each <- err
					return
				}
				done[w] = append(done[w], call{last.Seq, len(all), err})
			}
			each <- nil
		}()
	}
	for range writers {
		if err := <-each; err != nil {
			t.Fatal(err)
		}
	}
	last, err := l.Last(within(t))
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.Read(within(t), 1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	at := map[string]uint64{}
	for range last.Seq {
		e, err := r.Next(within(t))
		if err != nil {
			t.Fatal(err)
		}
		if at[string(e.Data)] != 0 {
			t.Fatalf("entry %d is %q again", e.Seq, e.Data)
		}
		at[string(e.Data)] = e.Seq
	}
	stored := 0
	for w, all := range done {
		for k, c := range all {
			n := 0
			for ; n < c.n; n++ {
				seq := at[fmt.Sprintf("%d %d %d", w, k, n)]
				if seq == 0 {
					break
				}
				if seq != c.after+1+uint64(n) {
					t.Errorf("entry %d of a call behind %d is %d", n, c.after, seq)
				}
			}
			for i := n; i < c.n; i++ {
				if at[fmt.Sprintf("%d %d %d", w, k, i)] != 0 {
					t.Errorf("entry %d is stored, and %d of the same call is not", i, n)
				}
			}
			if stored += n; c.err == nil && n < c.n {
				t.Errorf("of %d entries that were appended %d are there", c.n, n)
			}
		}
	}
	if uint64(stored) != last.Seq {
		t.Errorf("%d entries in the log, the writers know of %d", last.Seq, stored)
	}
}

func testLogGone(t *testing.T, q Queue) {
	c := q.Connect(t)
	never := c.Log("never", 0, swarms.Out)
	if _, err := never.Last(within(t)); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("Last of a log that is not there: %v", err)
	}
	if _, err := never.Read(within(t), 1); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("Read of a log that is not there: %v", err)
	}
	if err := never.Append(within(t), 0, entry(1)); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("Append to a log that is not there: %v", err)
	}
	if err := never.Delete(within(t)); err != nil {
		t.Errorf("Delete of a log that is not there: %v", err)
	}
	l := created(t, c, "s")
	fill(t, l, 1)
	r, err := l.Read(within(t), 2)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	reads, ended := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := r.Next(within(t))
		reads <- err
		_, err = r.Next(within(t))
		ended <- err
	}()
	if err := l.Append(within(t), 1, entry(2)); err != nil {
		t.Fatal(err)
	}
	if err := <-reads; err != nil {
		t.Fatal(err)
	}
	if err := l.Delete(within(t)); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; !errors.Is(err, jobs.ErrNotFound) {
		t.Fatalf("a reader of a deleted log: %v", err)
	}
}

func testLogTrim(t *testing.T, q Queue) {
	l := created(t, q.Connect(t), "s")
	fill(t, l, 10)
	if err := l.Trim(within(t), 6); err != nil {
		t.Fatal(err)
	}
	r, err := l.Read(within(t), 6)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if e, err := r.Next(within(t)); err != nil || e.Seq != 6 {
		t.Fatalf("%+v, %v", e, err)
	}
	if err := l.Append(within(t), 10, entry(11)); err != nil {
		t.Fatal(err)
	}
}

// session opens a session that the test closes.
func session(t *testing.T, c Client, holder string, ttl time.Duration) swarms.Session {
	t.Helper()
	s, err := c.OpenSession(within(t), holder, ttl, Quiet)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close(context.WithoutCancel(t.Context())) })
	return s
}

// acquired waits until a session has a lease.
func acquired(t *testing.T, s swarms.Session, key string) swarms.Lease {
	t.Helper()
	for ctx := within(t); ; {
		freed := s.Freed()
		l, err := s.Acquire(ctx, key)
		if err == nil {
			return l
		}
		if !errors.Is(err, swarms.ErrHeld) {
			t.Fatal(err)
		}
		select {
		case <-freed:
		case <-ctx.Done():
			t.Fatalf("lease %s did not come free: %v", key, err)
		}
	}
}

func isLost(lost <-chan struct{}) bool {
	select {
	case <-lost:
		return true
	default:
		return false
	}
}

func testLease(t *testing.T, q Queue) {
	c := q.Connect(t)
	const ttl = 400 * time.Millisecond
	a := session(t, c, "a", ttl)
	l, err := a.Acquire(within(t), "k.0")
	if err != nil {
		t.Fatal(err)
	}
	b := session(t, q.Connect(t), "b", ttl)
	// A missed renewal would give the lease away. The test lasts two times the ttl for that.
	for end := time.Now().Add(2 * ttl); time.Now().Before(end); <-time.After(ttl / 10) {
		if _, err := b.Acquire(within(t), "k.0"); !errors.Is(err, swarms.ErrHeld) {
			t.Fatalf("a lease whose session is renewed was taken: %v", err)
		}
	}
	if _, err := a.Acquire(within(t), "k.0"); !errors.Is(err, swarms.ErrHeld) {
		t.Fatalf("a session took a lease twice: %v", err)
	}
	if isLost(l.Lost()) || isLost(a.Lost()) {
		t.Fatal("lost while it was renewed")
	}
	for range 2 {
		if err := l.Release(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	again := acquired(t, b, "k.0")
	if err := again.Release(within(t)); err != nil {
		t.Fatal(err)
	}
	// All leases of a session come free with it.
	for k := range 20 {
		acquired(t, a, fmt.Sprintf("m.%d", k))
	}
	for range 2 {
		if err := a.Close(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	for k := range 20 {
		acquired(t, b, fmt.Sprintf("m.%d", k))
	}
	if _, err := a.Acquire(within(t), "k.0"); !errors.Is(err, jobs.ErrFenced) {
		t.Fatalf("a session that is closed took a lease: %v", err)
	}
}

// testTakeOver: the leases of a session that is no longer renewed go to a waiting session, and the
// old holder learns of it.
func testTakeOver(t *testing.T, q Queue) {
	dead, c := q.Connect(t), q.Connect(t)
	const ttl = 300 * time.Millisecond
	old := session(t, dead, "a", ttl)
	var held []swarms.Lease
	for k := range 3 {
		held = append(held, acquired(t, old, fmt.Sprintf("k.%d", k)))
	}
	s := session(t, c, "b", ttl)
	dead.Conn.(interface{ Close() }).Close()
	for k := range held {
		taken := acquired(t, s, fmt.Sprintf("k.%d", k))
		select {
		case <-held[k].Lost():
		case <-within(t).Done():
			t.Fatal("the old holder still thinks it has the lease")
		}
		if err := held[k].Release(within(t)); err != nil {
			t.Fatal(err)
		}
		if err := taken.Release(within(t)); err != nil {
			t.Fatal(err)
		}
	}
}

func testSwarms(t *testing.T, q Queue) {
	c := q.Connect(t)
	put := func(id string) {
		if err := c.CreateSwarm(within(t), swarms.Swarm{
			Version: jobs.Version, ID: id, Name: "n",
			Groups: 3,
		}); err != nil {
			t.Fatal(err)
		}
	}
	put("before")
	changes := make(chan swarms.Change, 16)
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- q.Connect(t).WatchSwarms(ctx, func(ch swarms.Change) { changes <- ch }) }()
	next := func(id string, gone bool) {
		t.Helper()
		select {
		case ch := <-changes:
			if ch.ID != id || ch.Gone != gone || ch.Err != nil || !gone && ch.Swarm.Groups != 3 {
				t.Fatalf("%+v, want %s gone=%v", ch, id, gone)
			}
		case <-within(t).Done():
			t.Fatalf("no word of %s", id)
		}
	}
	next("before", false)
	put("after")
	next("after", false)
	for range 2 {
		if err := c.RemoveSwarm(within(t), swarms.Swarm{ID: "before"}); err != nil {
			t.Fatal(err)
		}
	}
	next("before", true)
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}

func testObjects(t *testing.T, q Queue) {
	c := q.Connect(t)
	data := make([]byte, 3<<20+17)
	r := rand.New(rand.NewPCG(1, 2))
	for i := range data {
		data[i] = byte(r.Uint32())
	}
	for _, want := range [][]byte{data, {}} {
		if n, err := c.PutObject(within(t), "o", jobs.Owner{}, bytes.NewReader(want)); err != nil ||
			n != int64(len(want)) {
			t.Fatal(n, err)
		}
		o, err := q.Connect(t).Object(within(t), "o", jobs.Owner{})
		if err != nil {
			t.Fatal(err)
		}
		got, err := io.ReadAll(o)
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes of %d: %v", len(got), len(want), err)
		}
		if err := o.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := c.DeleteObject(within(t), "o", jobs.Owner{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := c.Object(within(t), "o", jobs.Owner{}); !errors.Is(err, jobs.ErrNotFound) {
		t.Fatalf("a deleted object: %v", err)
	}
}
