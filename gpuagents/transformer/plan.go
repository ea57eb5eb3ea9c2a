package transformer

import (
	"fmt"
	"math"

	"github.com/exoswarm/exoswarm/cuda/device"
	set "github.com/exoswarm/exoswarm/cuda/kernels/languageset"
)

// plan is what a Step uploads and how its rows are cut.
type plan struct {
	words         []uint32
	frames, draws int64 // bytes from the start of words, multiples of device.RangeAlign
	bytes         int64 // of words
	count         int   // of rows
	drawn         int   // runs that draw: slots 0 to drawn-1, in their order
	chunks        []chunk
}

// chunk are rows that go through the layers together.
type chunk struct {
	first, count int
	most         int    // largest position
	ends         [2]end // of runs that draw, and of others
}

// end are runs whose last row is in a chunk. They have slots one behind the other.
type end struct {
	picks       int64 // bytes from the start of words: for each the row, from the start of the chunk
	slot, count int
}

// refuse returns an ErrRun about a run.
func refuse(run int, format string, args ...any) error {
	return fmt.Errorf("%w: run %d: %s", ErrRun, run, fmt.Sprintf(format, args...))
}

// checkRuns refuses runs that would leave the memory of the model or of the pool.
func (m *Machine) checkRuns(pool device.Buffer, runs []Run, out []Token) error {
	if len(out) < len(runs) {
		return fmt.Errorf("%w: %d places for the tokens of %d runs", ErrRun, len(out), len(runs))
	}
	frames := pool.Size() / m.o.PageSize
	token := func(t int32) bool { return t >= 0 && int(t) < m.p.Vocabulary }
	for i := range runs {
		r := &runs[i]
		end := r.From + len(r.Tokens)
		switch {
		case len(r.Tokens) == 0:
			return refuse(i, "no tokens: give one or more")
		case r.From < 0 || r.From > m.o.Context || end > m.o.Context:
			return refuse(i, "%d tokens at position %d: the context has %d", len(r.Tokens), r.From, m.o.Context)
		case len(r.Frames) < (end+m.o.PagePositions-1)/m.o.PagePositions:
			return refuse(i, "%d pages of %d positions for %d positions", len(r.Frames), m.o.PagePositions, end)
		case len(r.Recent) > MaxRecent:
			return refuse(i, "%d recent tokens: use at most %d", len(r.Recent), MaxRecent)
		}
		for _, f := range r.Frames {
			if int64(f) >= frames {
				return refuse(i, "frame %d: the pool has %d", f, frames)
			}
		}
		for _, of := range [][]int32{r.Tokens, r.Recent} {
			for _, t := range of {
				if !token(t) {
					return refuse(i, "token %d: the vocabulary has %d", t, m.p.Vocabulary)
				}
			}
		}
		if err := r.Sampling.Check(); err != nil {
			return fmt.Errorf("run %d: %w", i, err)
		}
	}
	return nil
}

// plan cuts the rows of runs, and gives each run a slot.
func (m *Machine) plan(runs []Run) *plan {
	p := &plan{words: m.words[:0]}
	align := func() int64 {
		for len(p.words)%(device.RangeAlign/4) != 0 {
			p.words = append(p.words, 0)
		}
		return int64(4 * len(p.words))
	}
	m.slots = m.slots[:0]
	others := 0
	for i := range runs {
		if runs[i].Draw {
			m.slots = append(m.slots, p.drawn)
			p.drawn++
		} else {
			m.slots = append(m.slots, -1-others)
			others++
		}
	}
	frames := 0
	var rows []int // the last row of each run
	for i := range runs {
		r := &runs[i]
		for k, t := range r.Tokens {
			p.words = append(p.words, uint32(t), uint32(r.From+k), uint32(frames), 0)
		}
		frames += len(r.Frames)
		p.count += len(r.Tokens)
		rows = append(rows, p.count-1)
		if m.slots[i] < 0 {
			m.slots[i] = p.drawn - 1 - m.slots[i]
		}
	}
	p.frames = align()
	for i := range runs {
		p.words = append(p.words, runs[i].Frames...)
	}
	run := 0
	for first := 0; first < p.count; first += m.o.Chunk {
		c := chunk{first: first, count: min(m.o.Chunk, p.count-first)}
		for i := range c.count {
			c.most = max(c.most, int(p.words[set.RowWords*(first+i)+1]))
		}
		next := run
		for next < len(runs) && rows[next] < first+c.count {
			next++
		}
		for k, draws := range []bool{true, false} {
			e := end{picks: align()}
			for i := run; i < next; i++ {
				if runs[i].Draw != draws {
					continue
				}
				if e.count == 0 {
					e.slot = m.slots[i]
				}
				e.count++
				p.words = append(p.words, uint32(rows[i]-first))
			}
			c.ends[k] = e
		}
		run = next
		p.chunks = append(p.chunks, c)
	}
	p.draws = align()
	for i := range runs {
		if runs[i].Draw {
			p.words = append(p.words, runs[i].draw()...)
		}
	}
	p.bytes = align()
	m.words = p.words
	return p
}

// draw returns the words of a draw.
func (r *Run) draw() []uint32 {
	s, words := &r.Sampling, make([]uint32, set.DrawWords)
	repetition := s.Repetition
	if repetition == 0 {
		repetition = 1
	}
	words[set.DrawTemperature] = math.Float32bits(s.Temperature)
	words[set.DrawTopP], words[set.DrawMinP] = math.Float32bits(s.TopP), math.Float32bits(s.MinP)
	words[set.DrawRepetition] = math.Float32bits(repetition)
	words[set.DrawTopK] = uint32(min(s.TopK, math.MaxUint32))
	words[set.DrawSeed], words[set.DrawSeed+1] = uint32(r.Seed), uint32(r.Seed>>32)
	words[set.DrawAgent], words[set.DrawAgent+1] = uint32(r.Agent), uint32(r.Agent>>32)
	words[set.DrawPosition] = uint32(r.From + len(r.Tokens))
	if repetition != 1 {
		words[set.DrawCount] = uint32(len(r.Recent))
		for i, t := range r.Recent {
			words[set.DrawRecent+i] = uint32(t)
		}
	}
	return words
}
