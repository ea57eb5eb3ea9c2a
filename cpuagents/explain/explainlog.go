package explain

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

const (
	entrySummary = "summary"
	// summaryPart is the bytes of a part of the summaries, which an entry has as base64.
	summaryPart = 600 << 10
	// summaryRate bounds the bytes of summaries that are stored in a second, on average.
	summaryRate = 1 << 20
)

// SummaryEvery is the least time between two times that Store stores them. Tests change it.
var SummaryEvery = 5 * time.Second

// summaryEntry is a part of the summaries of all entities.
type summaryEntry struct {
	Answer uint64 `json:"answer"` // the last entry of the log of answers that they include
	First  uint64 `json:"first"`  // the entry with the first part
	Parts  int    `json:"parts"`
	// Before is the entry with the last part of the summaries that were stored before; 0 if none were.
	Before uint64 `json:"before,omitempty"`
	Data   []byte `json:"data"`
	// Recent are the incidents that began last, of the first part.
	Recent []keptIncident `json:"recent,omitempty"`
}

// SummaryLog keeps an explainer. One goroutine uses it.
//
// A detector that continues loads the last summaries that do not include more than the sinks have,
// and explains the decisions behind them again, without sending what the sinks have. So
// explanations do not depend on stops. The log has two versions: the next one is stored only when
// the sinks are behind the last one.
type SummaryLog struct {
	Explainer *Explainer
	Recent    *Recent // kept with it; nil for none
	// Sent is the last answer that the sinks had when the log was opened.
	Sent    uint64
	raw     swarms.Log
	log     *statelog.Log
	reached uint64 // the last answer that is explained
	answer  uint64 // of the last version
	oldest  uint64 // the answer of the version before it
	first   uint64 // the entry with its first part
	end     uint64 // and with its last part; 0 for none
	due     time.Time
}

// OpenSummaryLog loads the last version that includes no answer behind upTo, the last one that the
// sinks have, into an explainer and the recent incidents of its job. It fails with
// statelog.ErrDamaged for a log that nobody can have written.
func OpenSummaryLog(ctx context.Context, l swarms.Log, x *Explainer, recent *Recent, upTo uint64) (*SummaryLog, error) {
	s := &SummaryLog{
		Explainer: x, Recent: recent, Sent: upTo, raw: l, log: statelog.New(l, entrySummary),
		due: time.Now().Add(SummaryEvery),
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
			if e == last.First {
				recent.restore(one.Recent)
			}
		}
		if err := x.Restore(data); err != nil {
			return nil, fmt.Errorf("summaries of entities: %w: %w", statelog.ErrDamaged, err)
		}
		s.answer, s.reached, s.first, s.end, s.oldest = last.Answer, last.Answer, last.First, at, last.Answer
		return s, nil
	}
	return s, nil
}

func (s *SummaryLog) part(ctx context.Context, at uint64) (one summaryEntry, err error) {
	err = statelog.Each(ctx, s.raw, at, at, func(e swarms.Entry) error {
		if err := json.Unmarshal(e.Data, &one); err != nil {
			return fmt.Errorf("entry %d of the summaries: %w: %w", at, statelog.ErrDamaged, err)
		}
		return nil
	})
	return one, err
}

// Next returns the first answer that the explainer has not seen.
func (s *SummaryLog) Next() uint64 { return s.reached + 1 }

// Reach notes that the explainer has seen all answers up to one.
func (s *SummaryLog) Reach(answer uint64) { s.reached = answer }

// Oldest returns the last answer that the explainer has seen in the oldest version that an attempt
// may load.
func (s *SummaryLog) Oldest() uint64 { return s.oldest }

// Store stores the state, if that is due. The stored position of the sinks is noted, or behind it.
func (s *SummaryLog) Store(ctx context.Context, noted uint64) error {
	if s.reached <= s.answer || noted < s.answer || time.Now().Before(s.due) {
		return nil
	}
	err := s.Put(ctx)
	if errors.Is(err, jobs.ErrFenced) { // an earlier attempt, which stores the same
		s.due = time.Now().Add(SummaryEvery)
		return s.log.Open(ctx)
	}
	return err
}

// Put stores the state, and removes the version before the last one. The stored position of the
// sinks must not be before the last version. jobs.ErrFenced means that another attempt has stored
// its own.
func (s *SummaryLog) Put(ctx context.Context) error {
	answer := s.reached
	data, err := s.Explainer.State()
	if err != nil {
		return err
	}
	size := time.Duration(len(data))
	first := s.log.Last() + 1
	parts := (len(data) + summaryPart - 1) / summaryPart
	for range parts {
		n := min(len(data), summaryPart)
		one := summaryEntry{Answer: answer, First: first, Parts: parts, Before: s.end, Data: data[:n]}
		if s.log.Last()+1 == first {
			one.Recent = s.Recent.kept()
		}
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
	s.oldest, s.answer, s.first, s.end = s.answer, answer, first, s.log.Last()
	s.due = time.Now().Add(max(SummaryEvery, size*time.Second/summaryRate))
	return nil
}
