package cpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// summaryShard is the number of the log of the summaries of entities.
const summaryShard = statesShard + 1

const (
	entrySummary = "summary"
	// summaryPart is the bytes of a part of the summaries, which an entry has as base64.
	summaryPart = 600 << 10
	// summaryRate bounds the bytes of summaries that are stored in a second, on average.
	summaryRate = 1 << 20
)

// summaryEvery is the least time between two times that they are stored. Tests change it.
var summaryEvery = 5 * time.Second

// summaryEntry is a part of the summaries of all entities.
type summaryEntry struct {
	Answer uint64 `json:"answer"` // the last entry of the log of answers that they include
	First  uint64 `json:"first"`  // the entry with the first part
	Parts  int    `json:"parts"`
	// Before is the entry with the last part of the summaries that were stored before; 0 if none were.
	Before uint64 `json:"before,omitempty"`
	Data   []byte `json:"data"`
}

// summaries keeps the explainer of a detector in a log. The goroutine that collects uses it.
//
// A detector that continues loads the last summaries that do not include more than the sinks have,
// and explains the decisions behind them again, without sending what the sinks have. So explanations
// are those of a detector that was never stopped. The log has two versions: the next one is stored
// only when the sinks are behind the last one.
type summaries struct {
	explainer *explain.Explainer
	raw       swarms.Log
	log       *statelog.Log
	sent      uint64 // the sinks have had the answers up to this one since the begin of the job
	reached   uint64 // the last answer that is explained
	answer    uint64 // of the last version
	first     uint64 // the entry with its first part
	end       uint64 // and with its last part; 0 for none
	due       time.Time
}

// openSummaries loads the last version up to an answer.
func openSummaries(ctx context.Context, l swarms.Log, x *explain.Explainer, upTo uint64) (*summaries, error) {
	s := &summaries{
		explainer: x, sent: upTo, raw: l, log: statelog.New(l, entrySummary), due: time.Now().Add(summaryEvery),
	}
	if err := s.log.Open(ctx); err != nil {
		return nil, err
	}
	for at := s.log.Last(); at > 0; {
		last, err := s.part(ctx, at)
		if err != nil {
			return nil, err
		}
		complete := at == last.First+uint64(last.Parts)-1
		if !complete || last.Answer > upTo {
			at = last.Before
			continue
		}
		var data []byte
		for e := last.First; e <= at; e++ {
			one, err := s.part(ctx, e)
			if err != nil {
				return nil, err
			}
			data = append(data, one.Data...)
		}
		if err := x.Restore(data); err != nil {
			return nil, fmt.Errorf("summaries of entities: %w: %w", statelog.ErrDamaged, err)
		}
		s.answer, s.reached, s.first, s.end = last.Answer, last.Answer, last.First, at
		return s, nil
	}
	return s, nil
}

// part reads one entry.
func (s *summaries) part(ctx context.Context, at uint64) (one summaryEntry, err error) {
	err = statelog.Each(ctx, s.raw, at, at, func(e swarms.Entry) error {
		if err := json.Unmarshal(e.Data, &one); err != nil {
			return fmt.Errorf("entry %d of the summaries: %w: %w", at, statelog.ErrDamaged, err)
		}
		return nil
	})
	return one, err
}

// store stores the state, if that is due. The stored position of the sinks is behind noted.
func (s *summaries) store(ctx context.Context, noted uint64) error {
	if s.reached <= s.answer || noted < s.answer || time.Now().Before(s.due) {
		return nil
	}
	err := s.put(ctx, s.reached)
	if errors.Is(err, jobs.ErrFenced) { // an earlier attempt, which stores the same
		s.due = time.Now().Add(summaryEvery)
		return s.log.Open(ctx)
	}
	return err
}

// put stores the state after an answer, and removes the version before the last one.
func (s *summaries) put(ctx context.Context, answer uint64) error {
	data, err := s.explainer.State()
	if err != nil {
		return err
	}
	size := time.Duration(len(data))
	first := s.log.Last() + 1
	parts := (len(data) + summaryPart - 1) / summaryPart
	for range parts {
		n := min(len(data), summaryPart)
		one := summaryEntry{Answer: answer, First: first, Parts: parts, Before: s.end, Data: data[:n]}
		if err := s.log.Add(ctx, one); err != nil {
			return err
		}
		data = data[n:]
	}
	if s.end > 0 {
		if err := s.raw.Trim(ctx, s.first); err != nil {
			return fmt.Errorf("remove summaries of entities: %w", err)
		}
	}
	s.answer, s.first, s.end = answer, first, s.log.Last()
	s.due = time.Now().Add(max(summaryEvery, size*time.Second/summaryRate))
	return nil
}

// explain adds the explanations to decisions, if the detector explains.
func (d *detection) explain(got *batch.Decisions) {
	if d.summaries != nil {
		d.summaries.explainer.Explain(got)
	}
}

// explained passes an answer that the sinks have to the explainer.
func (d *detection) explained(e swarms.Entry) error {
	if d.evict != nil {
		d.evict.names.reach(e.Seq)
	}
	if e.Kind != swarms.EntryDecide {
		return nil
	}
	got, err := batch.DecodeDecisions(e.Data)
	if err != nil {
		return fmt.Errorf("decisions %d of detector %s: %w", e.Seq, d.spec.Name, err)
	}
	if err := d.known(got); err != nil {
		return err
	}
	d.explain(got)
	return nil
}

// openSummaries makes the explainer of a detector that explains, as it was at the position of the
// sinks or before.
func (d *detection) openSummaries(ctx context.Context) error {
	if !d.spec.Explain {
		return nil
	}
	if err := d.explains(); err != nil {
		return err
	}
	var err error
	d.summaries, err = openSummaries(ctx, d.stream.log(summaryShard, swarms.In), d.explainer, d.state.collected.Answer)
	if errors.Is(err, statelog.ErrDamaged) {
		return fmt.Errorf("detector %s: %w", d.spec.Name, err)
	}
	return err
}
