package source

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/internal/base/retry"
	"github.com/exoswarm/exoswarm/jobs"
)

// WatchSpec says how a list of files is watched, such as the folder at watch:ROOT/FOLDER. The zero
// value polls once.
type WatchSpec struct {
	// Polls is the number of polls in all, 1 to 1,000,000; 0 means 1.
	Polls int `json:"polls,omitempty"`
	// Every is the seconds between the starts of two polls, 0.1 to 86,400; 0 means 60.
	Every float64 `json:"every_s,omitempty"`
	// Renamed: files are complete when they appear, because they are renamed into place. Each file
	// is read at the first poll that finds it. Otherwise a file is read when two polls have found
	// the same size and time of modification, and one more poll at the beginning reads nothing.
	Renamed bool `json:"renamed,omitempty"`
	// MaxBytes bounds a file, 1 to 1 GiB; 0 means 64 MiB. MaxFiles bounds the files of a poll, 1 to
	// 100,000; 0 means 10,000.
	MaxBytes int64 `json:"max_bytes,omitempty"`
	MaxFiles int   `json:"max_files,omitempty"`
	// Tries of a poll or a file, 1 to 20; 0 means 5. Backoff is the seconds before the second,
	// 0.001 to 60; 0 means 0.5.
	Tries   int     `json:"tries,omitempty"`
	Backoff float64 `json:"backoff_s,omitempty"`
}

const (
	// maxSeen bounds the files that a source remembers, at about 50 bytes each.
	maxSeen = 1_000_000
	// maxSkips bounds the skipped files of one position, which is a message of the queue.
	maxSkips = 256
)

type listed struct {
	name string
	size int64
	tag  string // of the version: other contents have another tag
	why  string // the reason why it is never read; empty if it may be read
	pass bool   // it does not belong to the source, and is only counted
}

// same reports whether a file was not written between two polls.
func (l listed) same(o listed) bool { return l.size == o.size && l.tag == o.tag }

// errWritten is returned by copy for a file that was written after it was listed.
var errWritten = errors.New("it changed while it was read")

// unreadable is returned by copy for a file that cannot be read while other files can.
type unreadable struct{ why string }

func (u unreadable) Error() string { return u.why }

// watchable is a place in which files appear.
type watchable interface {
	// list returns the files in the order in which they are read: at most most of them, and one
	// more if there are more.
	list(ctx context.Context, most int) ([]listed, error)
	// copy writes the contents of a file to doc. The errors errWritten and unreadable are about
	// this file alone.
	copy(ctx context.Context, l listed, doc *os.File) error
	Close() error
}

// fingerprint is the hash of a text that a source remembers. It is cut to 16 bytes, which two of a
// million names share with a chance of about 10^-27.
type fingerprint [16]byte

func fingerprintOf(text string) (p fingerprint) {
	sum := sha256.Sum256([]byte(text))
	copy(p[:], sum[:])
	return p
}

// listState is the state of a watched source in a position. Seen has two fingerprints of each file
// that this document adds to what the source remembers. With all of them the journal would grow
// with the square of the number of files.
type listState struct {
	Polls int    `json:"polls"`          // begun
	More  bool   `json:"more,omitempty"` // the poll has found more
	Seen  []byte `json:"seen,omitempty"`
}

type watcher struct {
	passive
	where  string      // for messages
	format rows.Format // of every file; empty to take it from the extension
	spec   WatchSpec
	limits remote.Limits
	src    watchable
	whole  bool // what is listed is complete

	// seen has the contents of each file that was read, by the name. The zero fingerprint marks a
	// file that is not reported again.
	seen   map[fingerprint]fingerprint // name: contents that were read; zero when there is nothing more to tell of it
	before map[string]listed           // of the last poll; nil before the first
	ready  []listed                    // found by the last poll and not read yet
	begun  time.Time                   // the last poll
}

func newWatcher(where string, format rows.Format, spec *WatchSpec) (*watcher, error) {
	if spec == nil {
		spec = &WatchSpec{}
	}
	f := &watcher{where: where, format: format, spec: *spec, whole: spec.Renamed, seen: map[fingerprint]fingerprint{}}
	bounds, err := (remote.Limits{
		Polls: spec.Polls, Every: spec.Every, MaxBytes: spec.MaxBytes, Tries: spec.Tries,
		Backoff: spec.Backoff,
	}).WithDefaults()
	f.limits = bounds
	if f.spec.MaxFiles == 0 {
		f.spec.MaxFiles = 10_000
	}
	if f.spec.MaxFiles < 1 || f.spec.MaxFiles > 100_000 {
		err = errors.Join(err, fmt.Errorf("max_files %d: use 1 to 100000", spec.MaxFiles))
	}
	if err != nil {
		return nil, badSource(where)("%v", err)
	}
	return f, nil
}

func (f *watcher) close() error { return f.src.Close() }

// replay implements fetcher. It remembers the files of a document that an earlier attempt has
// stored.
func (f *watcher) replay(at position) error {
	var st listState
	if err := at.decode(f.where, &st); err != nil {
		return err
	}
	const n = len(fingerprint{})
	for s := st.Seen; len(s) >= 2*n; s = s[2*n:] {
		f.seen[fingerprint(s[:n])] = fingerprint(s[n : 2*n])
	}
	return nil
}

// fetch implements fetcher. A document is one file, with the files that were skipped before it. A
// poll without either is no document: fetch waits for the next poll. Files that a poll has found
// and that were not read when the attempt ended are found again by the next attempt.
func (f *watcher) fetch(ctx context.Context, at position, _ string, doc *os.File) (position, error) {
	var st listState
	if err := at.decode(f.where, &st); err != nil {
		return position{}, err
	}
	st.Seen = nil
	var next position
	for {
		for len(f.ready) > 0 && len(next.Skipped) < maxSkips {
			l := f.ready[0]
			f.ready = f.ready[1:]
			var read bool
			if l.why == "" {
				var err error
				if read, l.why, err = f.read(ctx, l, doc, st.Polls == f.limits.Polls); err != nil {
					return position{}, err
				}
			}
			switch {
			case read:
				f.remember(&st, l, fingerprintOf(fmt.Sprint(l.size, " ", l.tag)))
				next.Name, next.Format = l.name, f.formatOf(l.name)
				return f.position(st, next)
			case l.why != "":
				f.remember(&st, l, fingerprint{})
				next.Skipped = append(next.Skipped, skipped{File: l.name, Reason: l.why})
			}
		}
		if len(next.Skipped) > 0 {
			return f.position(st, next)
		}
		// A poll of an earlier attempt that has files left is made again, without counting.
		if again := st.More && f.before == nil; !again {
			if st.Polls == f.limits.Polls {
				return f.position(st, next)
			}
			st.Polls++
		}
		if err := f.poll(ctx, st.Polls); err != nil {
			return position{}, err
		}
		st.More = false
	}
}

// position returns the position after what was read last.
func (f *watcher) position(st listState, next position) (position, error) {
	if len(f.seen) > maxSeen {
		return position{}, access.InputError(
			"%s: it has had more than %d files: let another job go on, with a folder or prefix that is empty", f.where,
			maxSeen,
		)
	}
	st.More = len(f.ready) > 0
	next.Exact = true
	next.Done = !st.More && st.Polls == f.limits.Polls
	return next.with(f.where, st)
}

// remember stores in the watcher and in the position that a file was read or skipped.
func (f *watcher) remember(st *listState, l listed, contents fingerprint) {
	name := fingerprintOf(l.name)
	f.seen[name] = contents
	st.Seen = append(append(st.Seen, name[:]...), contents[:]...)
}

// formatOf returns the format of a file; empty for a file that is not read.
func (f *watcher) formatOf(name string) rows.Format {
	if f.format != "" {
		return f.format
	}
	format, known := rows.FormatOf(name, "")
	if !known {
		return ""
	}
	return format
}

// read copies a file into doc, or returns why it is not read. Both are empty if a later poll may
// find the file complete.
func (f *watcher) read(ctx context.Context, l listed, doc *os.File, last bool) (read bool, why string, err error) {
	var own unreadable
	err = f.limits.Retry().Do(ctx, func() (time.Duration, error) {
		if err := files.Rewind(doc); err != nil {
			return 0, retry.Permanent(err)
		}
		err := f.src.copy(ctx, l, doc)
		if errors.Is(err, errWritten) || errors.As(err, &own) {
			err = retry.Permanent(err)
		}
		return 0, err
	})
	if err == nil {
		return true, "", nil
	}
	if rerr := files.Rewind(doc); rerr != nil {
		return false, "", rerr
	}
	switch {
	case errors.As(err, &own):
		return false, own.why, nil
	case errors.Is(err, errWritten) && last:
		return false, whyGrowing, nil
	case errors.Is(err, errWritten):
		return false, "", nil
	}
	return false, "", err
}

// Reasons why a file is not read.
const (
	whyGrowing = "it was still changing at the last look, and was not read"
	whyChanged = "it changed after it was read: what is new in it was not read; write a file of another name"
)

// poll waits until the next poll is due, and makes it. polls is the number of this poll among the
// polls that read.
func (f *watcher) poll(ctx context.Context, polls int) error {
	if f.before == nil && !f.whole { // there must be something to compare with
		f.begun = time.Now()
		list, err := f.list(ctx)
		if err != nil {
			return err
		}
		f.compare(list, false)
		f.ready = nil
	}
	if !f.begun.IsZero() {
		if err := retry.Sleep(ctx, f.limits.UntilPoll(f.begun)); err != nil {
			return err
		}
	}
	f.begun = time.Now()
	list, err := f.list(ctx)
	if err != nil {
		return err
	}
	f.compare(list, polls == f.limits.Polls)
	return nil
}

// list makes one poll, with retries. A list that is refused for its input is not tried again. More
// files than allowed are an error, since their names would decide which files are read.
func (f *watcher) list(ctx context.Context) (list []listed, err error) {
	err = f.limits.Retry().Do(ctx, func() (time.Duration, error) {
		list, err = f.src.list(ctx, f.spec.MaxFiles)
		if isInput := (*jobs.Error)(nil); errors.As(err, &isInput) && isInput.Code != jobs.CodeIO {
			err = retry.Permanent(err)
		}
		return 0, err
	})
	if err == nil && len(list) > f.spec.MaxFiles {
		err = access.InputError(
			"%s: it has more than %d files: raise max_files, or move those away that were read", f.where,
			f.spec.MaxFiles,
		)
	}
	return list, err
}

// compare finds the files of a list that are to be read or to be reported as skipped, and notes the
// list as the last one. last reports that no poll follows, so a file that still changes is
// reported. The order of the cases matters: a file is reported once, and its contents are compared
// with what was read before anything else.
func (f *watcher) compare(list []listed, last bool) {
	now := make(map[string]listed, len(list))
	for _, l := range list {
		now[l.name] = l
		old, dealt := f.seen[fingerprintOf(l.name)]
		rests, found := f.before[l.name]
		rest := f.whole || found && l.same(rests)
		switch {
		case l.pass:
			continue
		case dealt && (old == fingerprint{} || old == fingerprintOf(fmt.Sprint(l.size, " ", l.tag))):
			continue
		case dealt:
			l.why = whyChanged
		case l.why != "":
		case f.formatOf(l.name).Check() != nil:
			l.why = f.formatOf(l.name).Check().Error()
		case l.size > f.limits.MaxBytes:
			l.why = fmt.Sprintf("it has %d bytes; max_bytes allows %d", l.size, f.limits.MaxBytes)
		case l.size == 0: // somebody has begun to write it
			continue
		case !rest && last:
			l.why = whyGrowing
		case !rest:
			continue
		}
		f.ready = append(f.ready, l)
	}
	f.before = now
}
