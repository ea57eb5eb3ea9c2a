package rows

import (
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// Order sees the rows of one source, and says what is wrong with rows that go back in time. One
// goroutine uses it.
type Order struct {
	zoneless bool // the source is CSV, and csv.zone is not set
	// last is the time of the last valid row in Unix nanoseconds, and any reports whether there was
	// one.
	last int64
	any  bool
	// previous is the time of the row before, valid or not. falls and rises count the rows that were
	// before and behind it.
	previous     int64
	falls, rises uint64
	seen         bool
	// offsets and bare report whether there were timestamps with an offset from UTC, and without.
	offsets, bare bool
}

// NewOrder returns the order of a source that has a format.
func NewOrder(spec ColumnSpec, f Format) *Order {
	name, _, _ := strings.Cut(string(f), ".")
	return &Order{zoneless: name == "csv" && (spec.CSV == nil || spec.CSV.Zone == "")}
}

// Note sees the next row.
func (o *Order) Note(r *Row) {
	if o.seen && r.Time < o.previous {
		o.falls++
	} else if o.seen && r.Time > o.previous {
		o.rises++
	}
	o.seen, o.previous = true, r.Time
	if !o.zoneless || o.offsets && o.bare {
		return
	}
	// Only a text with a time of day has an offset: its sign is behind the first colon.
	if _, rest, clock := strings.Cut(r.Timestamp, ":"); clock {
		if strings.ContainsAny(rest, "Zz+-") {
			o.offsets = true
		} else {
			o.bare = true
		}
	}
}

// Behind returns why a row that goes back behind a time is rejected, and the cure. of names whose
// row was at that time, for the message.
func (o *Order) Behind(r *Row, last int64, of string) (reason, cure string) {
	reason = fmt.Sprintf("its timestamp %s goes back behind the row before it%s", access.Quote(r.Timestamp), of)
	zone := ""
	if o.zoneless {
		zone = foldBetween(r.Time, last)
	}
	switch {
	case o.zoneless && o.offsets && o.bare:
		return reason, "timestamps with an offset from UTC and without one are mixed, and those without are taken as " +
			"UTC: name their zone with csv.zone, as in --csv zone=Europe/Berlin"
	case zone != "":
		return reason, fmt.Sprintf(
			"the clocks of %s go back then: name the zone of the timestamps with csv.zone, as in "+
				"--csv zone=%s",
			zone,
			zone,
		)
	case o.Falls():
		return reason, "its source is in falling order, newest first: sort it by time"
	case of != "":
		return reason, "sort the rows of an entity by time"
	}
	return reason, "sort the file by time"
}

// Falls reports whether the source is in falling order, the newest row first.
func (o *Order) Falls() bool { return o.falls > 1 && o.falls > 9*o.rises }

// admit returns why a row is rejected, with the cure in remedy, if the rows of a source must be in
// order.
func (o *Order) admit(spec ColumnSpec, r *Row, remedy *string) (reason string) {
	if spec.inOrder() {
		reason, *remedy = o.check(r)
	}
	return reason
}

// check sees the next row of a source that is one series. It returns what is wrong if the row is
// before the last valid one; otherwise r becomes the last valid one. A rejected row does not count,
// so a wrong time in the future rejects the rows after it, and a wrong time in the past only its
// row.
func (o *Order) check(r *Row) (reason, cure string) {
	o.Note(r)
	if o.any && r.Time < o.last {
		return o.Behind(r, o.last, "")
	}
	o.any, o.last = true, r.Time
	return "", ""
}

// foldZones are zones of all rules of daylight saving time by which clocks go back. Clocks of one
// rule show the same hour twice.
var foldZones = sync.OnceValue(func() (all []*time.Location) {
	for _, name := range []string{
		"Europe/Berlin", "Europe/London", "Europe/Helsinki", "America/New_York", "America/Sao_Paulo",
		"America/Santiago",
		"America/Havana", "Australia/Sydney", "Australia/Lord_Howe", "Pacific/Auckland", "Asia/Jerusalem",
		"Asia/Beirut",
		"Africa/Cairo", "Asia/Tehran", "America/Asuncion", "Atlantic/Azores",
	} {
		if zone, err := time.LoadLocation(name); err == nil {
			all = append(all, zone)
		}
	}
	return all
})

// foldBetween returns the name of a zone whose clocks go back from one time to another, and that
// show both times; empty if there is none.
func foldBetween(to, from int64) string {
	if from-to > int64(3*time.Hour) {
		return ""
	}
	for _, zone := range foldZones() {
		if from-to < int64(dialect.Repeated(time.Unix(0, to).UTC(), zone)) {
			return zone.String()
		}
	}
	return ""
}
