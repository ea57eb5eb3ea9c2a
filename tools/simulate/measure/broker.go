package main

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tools/simulate/times"
)

// sizes are the bytes of appended entries: a message has less than 1 MiB.
var sizes = []int{1 << 10, 6 << 10, 60 << 10, 360 << 10, 900 << 10}

const mostStreams = 8

// connWith is a connection of this process and the logs that are appended to over it.
type connWith struct {
	conn *natsq.Conn
	log  swarms.Log
	end  uint64
}

// broker measures appends to logs of a server, and how entries come back from it.
func (m *measurement) broker() (err error) {
	c, err := m.openCluster(mostStreams + 1)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	reading := c.conns[mostStreams]
	for _, size := range sizes {
		all, err := m.logs(c, fmt.Sprint("s", size))
		if err != nil {
			return err
		}
		for streams := 1; streams <= mostStreams; streams *= 2 {
			if err := m.append(c, "append", all[:streams], size, 1); err != nil {
				return err
			}
		}
		for _, streams := range []int{1, 4} {
			if streams*size*32 > 48<<20 { // the server cuts off a connection that has 64 MiB to receive
				continue
			}
			if err := m.fetch(c, reading, all[:streams], size, fmt.Sprint("s", size)); err != nil {
				return err
			}
		}
		if err := m.deliver(c, reading, &all[0], size, fmt.Sprint("s", size)); err != nil {
			return err
		}
		for _, streams := range []int{1, 4} {
			for entries := 16; entries <= 64 && entries*size <= 6<<20; entries *= 4 {
				if err := m.append(c, "append", all[:streams], size, entries); err != nil {
					return err
				}
			}
		}
		for k := range all {
			if err := all[k].log.Delete(m.ctx); err != nil {
				return err
			}
		}
	}
	return nil
}

// logs makes a log for each stream, on its own connection.
func (m *measurement) logs(c *cluster, id string) ([]connWith, error) {
	all := make([]connWith, mostStreams)
	for k := range all {
		all[k] = connWith{conn: c.conns[k], log: c.conns[k].Swarms.Log(id, k, swarms.In)}
		if err := all[k].log.Create(m.ctx); err != nil {
			return nil, err
		}
	}
	return all, nil
}

func (m *measurement) append(c *cluster, name string, all []connWith, size, entries int) error {
	data := random(size)
	keys := map[string]float64{"bytes": float64(size), "entries": float64(entries)}
	var calls atomic.Int64
	before := c.spent()
	err := m.together(name, len(all), keys, func(k, _ int) (time.Duration, error) {
		l := &all[k]
		group := make([]swarms.Entry, entries)
		for i := range group {
			group[i] = swarms.Entry{Kind: swarms.EntryObserve, Ref: l.end + uint64(i) + 1, Data: data}
		}
		began := time.Now()
		if err := l.log.Append(m.ctx, l.end, group...); err != nil {
			return 0, err
		}
		l.end += uint64(entries)
		calls.Add(1)
		return time.Since(began), nil
	})
	c.spent().keys(before, calls.Load(), keys)
	return err
}

// fetch measures how fast one connection reads logs that are full: "fetch" is the time between two
// entries of a log.
func (m *measurement) fetch(c *cluster, conn *natsq.Conn, all []connWith, size int, id string) error {
	var read atomic.Int64
	keys := map[string]float64{"bytes": float64(size)}
	var h times.Histogram
	hs := make([]times.Histogram, len(all))
	before, began := c.spent(), time.Now()
	err := parallel(len(all), func(k int) error {
		r, err := conn.Swarms.Log(id, k, swarms.In).Read(m.ctx, 1)
		if err != nil {
			return err
		}
		defer r.Close()
		last := time.Now()
		for range min(all[k].end, uint64(max(64, 256<<20/size/len(all)))) {
			if _, err := r.Next(m.ctx); err != nil {
				return err
			}
			now := time.Now()
			hs[k].Add(now.Sub(last).Nanoseconds())
			last = now
			if read.Add(1); now.Sub(began) > 2*m.each {
				break
			}
		}
		return nil
	})
	took := time.Since(began)
	for k := range hs {
		h.Merge(&hs[k])
	}
	c.spent().keys(before, read.Load(), keys)
	keys["together"] = float64(len(all))
	keys["rate"] = float64(read.Load()) / took.Seconds()
	m.add("fetch", keys, h)
	return err
}

// deliver measures entries that are appended while a reader waits for them: "pass" is the time from
// the start of the append until the reader has the entry, and "deliver" the part of it after the
// end of the append.
func (m *measurement) deliver(c *cluster, conn *natsq.Conn, l *connWith, size int, id string) error {
	r, err := conn.Swarms.Log(id, 0, swarms.In).Read(m.ctx, l.end+1)
	if err != nil {
		return err
	}
	defer r.Close()
	data := random(size)
	var pass, after times.Histogram
	came := make(chan time.Time, 1)
	failed := make(chan error, 1)
	go func() {
		for {
			if _, err := r.Next(m.ctx); err != nil {
				failed <- err
				return
			}
			select {
			case came <- time.Now():
			default:
				failed <- nil // the last entry; nobody waits
				return
			}
		}
	}()
	before, calls := c.spent(), int64(0)
	for end := time.Now().Add(m.each); time.Now().Before(end); calls++ {
		began := time.Now()
		e := swarms.Entry{Kind: swarms.EntryObserve, Ref: l.end + 1, Data: data}
		if err := l.log.Append(m.ctx, l.end, e); err != nil {
			return err
		}
		stored := time.Now()
		l.end++
		select {
		case at := <-came:
			pass.Add(at.Sub(began).Nanoseconds())
			after.Add(at.Sub(stored).Nanoseconds())
		case err := <-failed:
			return err
		}
	}
	keys := map[string]float64{"bytes": float64(size)}
	c.spent().keys(before, calls, keys)
	m.add("pass", keys, pass)
	m.add("deliver", map[string]float64{"bytes": float64(size)}, after)
	came <- time.Time{} // two more entries end the goroutine
	for range 2 {
		e := swarms.Entry{Kind: swarms.EntryObserve, Ref: l.end + 1, Data: data}
		if err := l.log.Append(m.ctx, l.end, e); err != nil {
			return err
		}
		l.end++
	}
	return <-failed
}
