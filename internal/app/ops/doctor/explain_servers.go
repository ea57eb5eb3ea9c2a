package doctor

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// nearlyFull is the part of a stream's limit at which the next message may be refused.
const nearlyFull = 0.999

// trouble reports whether the servers hold back what needs these streams.
func (f ServerFacts) trouble(streams ...string) (Reason, bool) {
	if errors.Is(f.Error, telemetry.ErrNoLeader) {
		return Reason{
			Cause: NoLeader, Stuck: true, Sentence: "the NATS servers answer, and JetStream has no leader",
			Evidence: []string{f.Error.Error()},
			Cure:     "start the NATS servers that are missing: a majority must run",
		}, true
	}
	if f.Error != nil {
		return Reason{
			Cause: NoConnection, Stuck: true, Sentence: "the NATS server does not answer",
			Evidence: []string{f.Error.Error()},
			Cure:     "start the server, or check --nats, the network and the login",
		}, true
	}
	if f.Report == nil {
		return Reason{}, false
	}
	for _, s := range f.Report.Streams {
		if !slices.Contains(streams, s.Name) {
			continue
		}
		switch {
		case s.Leaderless:
			return Reason{
				Cause: NoLeader, Stuck: true, Sentence: fmt.Sprintf("stream %s has no leader", s.Name),
				Evidence: []string{fmt.Sprintf("%d replicas, %d are gone or behind", s.Replicas,
					len(s.Behind))},
				Cure: "start the NATS servers that are missing: a majority of the replicas must run",
			}, true
		case full(int64(s.Bytes), s.MaxBytes) || full(int64(s.Messages), s.MaxMsgs):
			return Reason{
				Cause: StreamFull, Stuck: true, Sentence: fmt.Sprintf("stream %s is at its limit", s.Name),
				Evidence: []string{fmt.Sprintf("%d messages and %d bytes; the limits are %d and %d", s.Messages,
					s.Bytes,
					s.MaxMsgs, s.MaxBytes)},
				Cure: "let agents work it off, or raise the limit of the stream",
			}, true
		}
	}
	if f.Report.Refuses || full(int64(f.Report.Store), f.Report.StoreLimit) {
		return Reason{
			Cause: DiskFull, Stuck: true, Sentence: "the NATS server refuses to store: its disk is full",
			Evidence: []string{fmt.Sprintf("%d bytes are stored; the limit is %d", f.Report.Store,
				f.Report.StoreLimit)},
			Cure: "make room on the disk of the server; it stores again by itself",
		}, true
	}
	return Reason{}, false
}

// full reports whether used is at a limit; 0 and less are no limit.
func full(used, limit int64) bool { return limit > 0 && float64(used) >= nearlyFull*float64(limit) }

func several(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

func first(all []string) string {
	if len(all) == 0 {
		return "ID"
	}
	return all[0]
}

func sorted(set map[string]bool) []string { return slices.Sorted(maps.Keys(set)) }

// Troubled reports whether any stream of the servers has no leader or is full, or a disk is.
func (f ServerFacts) Troubled() bool {
	if f.Error != nil || f.Report == nil {
		return f.Error != nil
	}
	var all []string
	for _, s := range f.Report.Streams {
		all = append(all, s.Name)
	}
	_, ok := f.trouble(all...)
	return ok
}
