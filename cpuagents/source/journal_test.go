package source

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// appends is a log that takes a number of entries and fails then.
type appends struct {
	swarms.Log
	left int
	err  error
}

func (l *appends) Append(ctx context.Context, after uint64, entries ...swarms.Entry) error {
	if l.left--; l.left < 0 {
		return l.err
	}
	return l.Log.Append(ctx, after, entries...)
}

// TestJournalFails: a document that lacks one entry is not there for the next attempt, which stores
// it behind what was left, and of two attempts at a time the slower one is fenced.
func TestJournalFails(t *testing.T) {
	t.Parallel()
	q, ctx := jobstest.Connected(t, natsq.Connect), fixture.Within(t)
	doc := fixture.TempFile(t, []byte(strings.Repeat("x", 2*journalPiece+5)))
	defer doc.Close()
	for fails := range 5 { // begin, three pieces, document
		log := q.Swarms.Log(fmt.Sprintf("fails-%d", fails), 1, swarms.In)
		j, err := openJournal(ctx, &appends{log, fails, jobs.ErrUnavailable}, 0)
		if err != nil {
			t.Fatalf("openJournal: %v, want no error", err)
		}
		if err := j.add(ctx, doc, position{Format: "csv"}); !errors.Is(err, jobs.ErrUnavailable) ||
			!strings.Contains(err.Error(), "store document 1") {
			t.Errorf("entry %d: %v", fails, err)
		}
		j.close()
		if j, err = openJournal(ctx, log, 0); err != nil {
			t.Fatalf("openJournal: %v, want no error", err)
		}
		out := fixture.TempFile(t, []byte("old"))
		if _, ok, err := j.next(ctx, out); ok || err != nil || fixture.ReadAll(t, out) != "" {
			t.Errorf("entry %d: %v, %v, %q", fails, ok, err, fixture.ReadAll(t, out))
		}
		if err := j.add(ctx, doc, position{Format: "csv", Name: "two"}); err != nil {
			t.Errorf("entry %d: %v", fails, err)
		}
		second, err := openJournal(ctx, log, 0)
		if err != nil {
			t.Fatalf("openJournal: %v, want no error", err)
		}
		at, ok, err := second.next(ctx, out)
		if got := fixture.ReadAll(t, out); err != nil || !ok || at.Name != "two" || len(got) != 2*journalPiece+5 ||
			strings.Trim(got, "x") != "" || second.number != j.number || second.reader != nil {
			t.Errorf("entry %d: %+v, %v, %v, %d bytes, number %d", fails, at, ok, err, len(got), second.number)
		}
		// Both continue; the second is faster.
		if err := second.add(ctx, doc, position{Name: "three"}); err != nil {
			t.Errorf("second.add: %v, want no error", err)
		}
		if err := j.add(ctx, doc, position{Name: "late"}); !errors.Is(err, jobs.ErrFenced) {
			t.Errorf("a slower attempt: %v", err)
		}
		third, err := openJournal(ctx, log, 0)
		if err != nil {
			t.Fatalf("openJournal: %v, want no error", err)
		}
		var names []string
		for {
			at, ok, err := third.next(ctx, out)
			if err != nil {
				t.Fatalf("third.next: %v, want no error", err)
			}
			if !ok {
				break
			}
			names = append(names, at.Name)
		}
		if strings.Join(names, " ") != "two three" || third.number != second.number {
			t.Errorf("entry %d: documents %v, number %d", fails, names, third.number)
		}
		_ = out.Close()
	}
}

// TestJournalDamage: an entry that is no position, a document that cannot be read or written and a
// log that is not there are errors.
func TestJournalDamage(t *testing.T) {
	q, ctx := jobstest.Connected(t, natsq.Connect), fixture.Within(t)
	log := q.Swarms.Log("damage", 1, swarms.In)
	if err := log.Create(ctx); err != nil {
		t.Fatalf("log.Create: %v, want no error", err)
	}
	if err := log.Append(ctx, 0, swarms.Entry{Kind: entryBegin, Ref: 1},
		swarms.Entry{Kind: entryDocument, Ref: 1, Data: []byte("{")}); err != nil {
		t.Fatalf("log.Append: %v, want no error", err)
	}
	doc := fixture.TempFile(t, []byte("text"))
	j, err := openJournal(ctx, log, 0)
	if err != nil {
		t.Fatalf("openJournal: %v, want no error", err)
	}
	if _, _, err := j.next(ctx, doc); err == nil || !strings.Contains(err.Error(), "journal entry 2") {
		t.Errorf("j.next: %v, want %q in its text", err, "journal entry 2")
	}
	j.close()
	if _, err := openJournal(ctx, lostLog{log}, 0); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("openJournal: %v, want %v", err, jobs.ErrUnavailable)
	}
	closed := fixture.TempFile(t, nil)
	_ = closed.Close()
	if err := (&journal{log: log, after: 2}).add(ctx, closed, position{}); err == nil ||
		!strings.Contains(err.Error(), "read back") {
		t.Errorf("add: %v, want %q in its text", err, "read back")
	}
	if err := files.Rewind(closed); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("files.Rewind: %v, want %q in its text", err, "empty")
	}
	full, err := os.OpenFile("/dev/full", os.O_RDWR, 0)
	if err != nil {
		t.Fatalf("os.OpenFile: %v, want no error", err)
	}
	defer full.Close()
	other := q.Swarms.Log("pieces", 1, swarms.In)
	if j, err = openJournal(ctx, other, 0); err != nil {
		t.Fatalf("openJournal: %v, want no error", err)
	}
	if err := j.add(ctx, doc, position{}); err != nil {
		t.Fatalf("j.add: %v, want no error", err)
	}
	if j, err = openJournal(ctx, other, 0); err != nil {
		t.Fatalf("openJournal: %v, want no error", err)
	}
	if _, ok, err := j.next(ctx, full); err == nil || ok {
		t.Errorf("a full disk: %v, %v", ok, err)
	}
	j.close()
	j.close()
	if err := files.Rewind(doc); err != nil {
		t.Errorf("files.Rewind: %v, want no error", err)
	}
	if at, err := doc.Seek(0, io.SeekCurrent); at != 0 || err != nil || fixture.ReadAll(t, doc) != "" {
		t.Errorf("at %d, %v", at, err)
	}
	_ = doc.Close()
}

// lostLog is a log that cannot be made.
type lostLog struct{ swarms.Log }

func (l lostLog) Create(context.Context, ...swarms.Consistency) error { return jobs.ErrUnavailable }

// cuts is a log whose appends fail after some entries; lost, after the next one is stored.
type cuts struct {
	swarms.Log
	left int
	lost bool
}

func (l *cuts) Append(ctx context.Context, after uint64, entries ...swarms.Entry) error {
	l.left--
	if l.left < 0 && !l.lost {
		return jobs.ErrUnavailable
	}
	if err := l.Log.Append(ctx, after, entries...); err != nil || l.left >= 0 {
		return err
	}
	l.lost = false
	return jobs.ErrUnavailable
}

// TestJournalKills: whatever entry of whatever documents is the last that an attempt stores, also
// one whose reply is lost, the attempts behind it read each document that is complete once, from
// any place.
func TestJournalKills(t *testing.T) {
	q, ctx := jobstest.Connected(t, natsq.Connect), context.Background()
	testkit.Checks(t, 25)
	logs, dir := 0, t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		logs++
		log := q.Swarms.Log(fmt.Sprintf("kills-%d", logs), 1, swarms.In)
		var stored []string
		read := func() *journal {
			j, err := openJournal(ctx, log, 0)
			if err != nil {
				t.Fatalf("openJournal: %v", err)
			}
			out, err := os.CreateTemp(dir, "journal-")
			if err != nil {
				t.Fatal(err)
			}
			defer os.Remove(out.Name())
			defer out.Close()
			for i := 0; ; i++ {
				at, ok, err := j.next(ctx, out)
				if err != nil {
					t.Fatalf("next: %v", err)
				}
				if !ok {
					if i != len(stored) {
						t.Fatalf("%d documents are read, want %d", i, len(stored))
					}
					return j
				}
				text := make([]byte, 3*journalPiece)
				n, _ := out.ReadAt(text, 0)
				if i >= len(stored) || at.Name+string(text[:n]) != stored[i] {
					t.Fatalf("document %d of %d is %s with %d bytes", i, len(stored), at.Name, n)
				}
			}
		}
		for i := range rapid.IntRange(1, 8).Draw(t, "attempts") {
			j := read()
			cut := &cuts{log, rapid.IntRange(0, 9).Draw(t, "entries"), rapid.Bool().Draw(t, "lost")}
			j.log = cut
			for d := 0; ; d++ {
				size := rapid.SampledFrom([]int{0, 1, 100, journalPiece, journalPiece + 1}).Draw(t, "bytes")
				doc, err := os.CreateTemp(dir, "journal-")
				if err != nil {
					t.Fatal(err)
				}
				text := strings.Repeat(string(rune('a'+d%26)), size)
				_, err = doc.WriteString(text)
				name := fmt.Sprintf("%d-%d", i, d)
				lost, entries := cut.lost, 2+(size+journalPiece-1)/journalPiece
				whole := cut.left >= entries || lost && cut.left == entries-1
				if err == nil {
					err = j.add(ctx, doc, position{Name: name, Format: "csv"})
				}
				_ = doc.Close()
				_ = os.Remove(doc.Name())
				if whole {
					stored = append(stored, name+text)
				}
				if err != nil {
					break
				}
			}
			j.close()
		}
		read().close()
		if err := log.Delete(ctx); err != nil {
			t.Fatal(err)
		}
	})
}
