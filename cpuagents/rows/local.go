package rows

import (
	"encoding/base64"
	"encoding/binary"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// LocalTimes chooses between the two times of a timestamp that clocks show twice, at the end of
// daylight saving time. It chooses for each entity by the entity's own rows: a time never goes
// back, and rows come at intervals as before. Where these two do not tell, it chooses neither.
//
// It remembers entities only in the days before such an hour, so that its memory and its stored
// state are empty most of the year. The same rows give the same times. One goroutine at a time uses
// it. Readers of the documents of one source share it by ColumnSpec.Local.
type LocalTimes struct {
	zone     *time.Location // nil: no timestamp has two times
	anyOrder bool           // times may go back
	most     int            // entities
	known    map[string]rhythm
	size     int // bytes of the stored state

	// The times from begin to end are all tracked, or all not.
	begin, end int64
	tracked    bool
}

// rhythm is what the rows of an entity have shown.
type rhythm struct {
	last int64 // the latest time in Unix nanoseconds
	// open reports that last is the first of two times, and that the second may be meant.
	open bool
	// least and most are the range of the intervals between rows, in nanoseconds. The range forgets
	// slowly. seen is the number of intervals, up to manyIntervals.
	least, most int64
	seen        uint8
	values      uint64 // digest of the numbers of the last row
	constant    bool   // the row before it had the same numbers
	twice       bool   // two rows had the same time
}

const (
	// rememberFor is the time before a repeated hour in which the intervals of an entity count.
	rememberFor = 10 * 24 * time.Hour
	// manyIntervals are enough to know how much the intervals of an entity vary.
	manyIntervals = 8
	// maxLocalState bounds the stored state of a source, as it travels with each batch.
	maxLocalState = 64 << 10
	rhythmBytes   = 8*4 + 2 + 2 // of one entity in the stored state, without its key
)

// NewLocalTimes returns the local times of a source, which knows no entity yet.
func NewLocalTimes(spec ColumnSpec) *LocalTimes {
	l := &LocalTimes{anyOrder: spec.AnyOrder, most: max(spec.Entities(), 1)}
	if spec.CSV == nil {
		return l
	}
	// NewClock reports a zone that is none.
	if _, zone, err := spec.CSV.Clock(); err == nil && zone != time.UTC {
		l.zone = zone
	}
	return l
}

// Choose returns the time of a row of an entity whose timestamp means first or second, which are
// equal for most. It reports false where it cannot tell. values are the numbers of the row, which
// tell a duplicate from the row of an hour later.
func (l *LocalTimes) Choose(key string, first, second int64, values []float64) (at int64, ok bool) {
	if l.zone == nil {
		return first, true
	}
	e, known := l.known[key]
	if !l.tracks(first) {
		if known {
			delete(l.known, key)
			l.size -= rhythmBytes + len(key)
		}
		return first, true
	}
	digest := digestOf(values)
	switch {
	case first == second:
		at, ok = first, true
	case !known:
	case first < e.last:
		at, ok = e.back(first, second, l.anyOrder)
		if ok && at < e.last {
			return at, true // a late row says nothing of the rhythm
		}
	case first == e.last && !e.open:
		at, ok = first, true
		// Rows at the pace of the repeated interval show its start twice. A row that equals the
		// previous row is a duplicate, unless all are equal.
		if same := digest == e.values; e.fits(second-first) && (!same || e.constant && !e.twice) {
			at = second
		}
	case !e.open:
		at, ok = e.forward(first, second)
	}
	if !ok {
		at = first
	}
	if !known && !l.room(key) {
		return at, ok
	}
	e.add(at, !ok, known, digest)
	l.known[key] = e
	return at, ok
}

// back chooses for a row whose first time is before the last row. It is the second one, unless rows
// may be late, and this one is late by a few intervals and would otherwise come far too early.
func (e *rhythm) back(first, second int64, anyOrder bool) (at int64, ok bool) {
	if anyOrder && e.seen > 0 && e.last-first <= 3*e.most && second-e.last > 3*e.most {
		return first, !e.open
	}
	return second, true
}

// forward chooses for a row whose two times are behind the last row.
func (e *rhythm) forward(first, second int64) (at int64, ok bool) {
	near, far := first-e.last, second-e.last
	repeated := far - near
	// Rows that come much more often than the hour is long: the second time would be a gap of many
	// rows. A gap of an eighth of the hour is no doubt.
	if e.seen >= 2 && 3*e.most <= repeated || e.seen == 1 && 8*e.most <= repeated {
		if near <= 3*e.most || 8*max(near, e.most) <= repeated {
			return first, true
		}
		return 0, false
	}
	switch {
	case e.fits(near) && e.excluded(far):
		return first, true
	case e.fits(far) && e.excluded(near):
		return second, true
	}
	return 0, false
}

// fits reports whether an interval is like the intervals of the entity: within their range, with a
// margin of its width on both sides.
func (e *rhythm) fits(interval int64) bool { return e.seen > 0 && e.within(interval, 1) }

// excluded reports whether an interval is none of the entity. The fewer intervals are known, the
// more of their range is their chance, so the wider is the margin.
func (e *rhythm) excluded(interval int64) bool {
	return e.seen > 0 && !e.within(interval, margins[e.seen])
}

// margins are by intervals seen how often the width of their range is the margin.
var margins = [manyIntervals + 1]int64{2: 3600, 3: 100, 4: 30, 5: 15, 6: 8, 7: 8, 8: 3}

func (e *rhythm) within(interval, wide int64) bool {
	if e.most-e.least > math.MaxInt64/(4*3600) {
		return true
	}
	margin := (e.most-e.least)*wide + int64(time.Second)
	return interval >= e.least-margin && interval <= e.most+margin
}

// add notes a row at a time that is not before the last one.
func (e *rhythm) add(at int64, open, known bool, digest uint64) {
	interval := at - e.last
	switch {
	case !known:
	case interval < 0: // a late row, or one behind rows whose times are open
		return
	case interval == 0:
		e.twice = e.twice || !open && !e.open
	case open || e.open:
	case e.seen == 0:
		e.least, e.most, e.seen = interval, interval, 1
	default:
		// An outage, or a burst, is forgotten in some ten rows.
		e.least, e.most = min(interval, e.least+(interval-e.least)/16), max(interval, e.most-(e.most-interval)/16)
		e.seen = min(e.seen+1, manyIntervals)
	}
	e.constant = known && digest == e.values
	e.last, e.open, e.values = at, open, digest
}

// room makes room for an entity, and reports whether there is any. Entities that were last seen
// before the days that are tracked make way.
func (l *LocalTimes) room(key string) bool {
	if l.known == nil {
		l.known = map[string]rhythm{}
	}
	if len(l.known) >= l.most {
		for k, e := range l.known {
			if e.last < l.begin {
				delete(l.known, k)
				l.size -= rhythmBytes + len(k)
			}
		}
	}
	if len(l.known) >= l.most {
		return false
	}
	l.size += rhythmBytes + len(key)
	return true
}

// tracks reports whether a time is in a repeated hour or in the days before.
func (l *LocalTimes) tracks(at int64) bool {
	if at >= l.begin && at < l.end {
		return l.tracked
	}
	l.begin, l.end, l.tracked = at, math.MaxInt64, false
	for t := time.Unix(0, at).In(l.zone).Add(-25 * time.Hour); ; {
		_, next := t.ZoneBounds()
		if next.IsZero() || next.Year() > 2261 {
			return false
		}
		_, before := t.Zone()
		_, after := next.Zone()
		if twice := time.Duration(before-after) * time.Second; twice > 0 {
			from, to := next.Add(-twice-rememberFor).UnixNano(), next.Add(twice).UnixNano()
			if at < from {
				l.end = from
				return false
			}
			if at < to {
				l.begin, l.end, l.tracked = from, to, true
				return true
			}
		}
		t = next
	}
}

// digestOf returns the FNV-1a digest of numbers.
func digestOf(values []float64) uint64 {
	h := uint64(14695981039346656037)
	for _, v := range values {
		b := math.Float64bits(v)
		for range 8 {
			h = (h ^ b&0xff) * 1099511628211
			b >>= 8
		}
	}
	return h
}

// State returns what the entities are known by, as a text, so that Restore continues with it. It is
// empty where nothing is known, and where it would be longer than 64 KiB. Then the rows of a
// repeated hour are rejected until the rows behind Restore tell.
func (l *LocalTimes) State() string {
	if l == nil || len(l.known) == 0 || l.size > maxLocalState {
		return ""
	}
	b := make([]byte, 0, l.size)
	for _, key := range slices.Sorted(maps.Keys(l.known)) {
		e := l.known[key]
		b = binary.LittleEndian.AppendUint16(b, uint16(len(key)))
		b = append(b, key...)
		for _, v := range []uint64{uint64(e.last), uint64(e.least), uint64(e.most), e.values} {
			b = binary.LittleEndian.AppendUint64(b, v)
		}
		flags := byte(0)
		for i, is := range []bool{e.open, e.constant, e.twice} {
			if is {
				flags |= 1 << i
			}
		}
		b = append(b, e.seen, flags)
	}
	return base64.RawStdEncoding.EncodeToString(b)
}

// Restore continues with the result of State. It ignores a text that is not one.
func (l *LocalTimes) Restore(state string) {
	l.known, l.size = map[string]rhythm{}, 0
	b, err := base64.RawStdEncoding.DecodeString(state)
	if err != nil {
		return
	}
	for len(b) >= rhythmBytes {
		n := int(binary.LittleEndian.Uint16(b))
		if len(b) < rhythmBytes+n || len(l.known) >= l.most {
			return
		}
		key, of := string(b[2:2+n]), b[2+n:]
		word := func(i int) uint64 { return binary.LittleEndian.Uint64(of[8*i:]) }
		seen, flags := of[32], of[33]
		l.known[key] = rhythm{
			last: int64(word(0)), least: int64(word(1)), most: int64(word(2)), values: word(3),
			seen: min(seen, manyIntervals),
			open: flags&1 > 0, constant: flags&2 > 0, twice: flags&4 > 0,
		}
		l.size += rhythmBytes + n
		b = of[34:]
	}
}

// undecided returns the reason and the cure of a row whose timestamp has two times.
func undecided(d *dialect.CSV, timestamp string) (reason, cure string) {
	return fmt.Sprintf("its timestamp %s comes twice in csv.zone %s, where the clocks go back, and the rows before it "+
			"do not tell which one it is", access.Quote(timestamp), d.Zone),
		"write timestamps with their offset from UTC, or in UTC without csv.zone"
}
