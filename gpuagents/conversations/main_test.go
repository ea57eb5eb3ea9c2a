package conversations

import (
	"context"
	"encoding/binary"
	"hash/fnv"
	"slices"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/transformer"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { testkit.CheckLeaks(m) }

// vocabulary is the number of tokens of a hashes.
const vocabulary = 50

// hashes is a machine whose model is a hash: the cache of a position is the hash of all tokens up to
// it. What it draws depends on a position of each page, so that a page which is lost is noticed.
type hashes struct {
	t    testing.TB
	o    Options
	runs int // of all steps
}

func (h *hashes) Parameters() *architecture.Parameters {
	return &architecture.Parameters{Vocabulary: vocabulary}
}

func (*hashes) Last(int, []float32) {}

func (*hashes) Logits(context.Context, int, []int32, []float32) error { return nil }

func (*hashes) Close() error { return nil }

func (h *hashes) Step(_ context.Context, pool device.Buffer, runs []transformer.Run, out []transformer.Token) error {
	h.runs += len(runs)
	var frames []uint32
	for i, run := range runs {
		end := run.From + len(run.Tokens)
		if want := (end + h.o.positions() - 1) / h.o.positions(); len(run.Frames) != want || len(run.Tokens) == 0 {
			h.t.Errorf("a run from %d on of %d tokens has %d frames, want %d", run.From, len(run.Tokens),
				len(run.Frames), want)
		}
		frames = append(frames, run.Frames...)
		at := func(position int) int64 {
			frame := run.Frames[position/h.o.positions()]
			return int64(frame)*int64(h.o.Layout.PageBytes) + int64(position%h.o.positions())*h.o.CacheBytes
		}
		read := func(position int) uint64 {
			word := make([]byte, 8)
			testkit.NoError(h.t, "pool.Read", pool.Read(at(position), word))
			return binary.LittleEndian.Uint64(word)
		}
		last := uint64(0)
		if run.From > 0 {
			last = read(run.From - 1)
		}
		for k, token := range run.Tokens {
			last = chained(last, token)
			testkit.NoError(h.t, "pool.Write", pool.Write(at(run.From+k),
				binary.LittleEndian.AppendUint64(nil, last)))
		}
		if !run.Draw {
			continue
		}
		var firsts []uint64
		for position := 0; position < end; position += h.o.positions() {
			firsts = append(firsts, read(position))
		}
		out[i].Token = drawn(last, firsts, run)
	}
	slices.Sort(frames)
	if n := len(frames); len(slices.Compact(frames)) != n {
		h.t.Error("two runs of a step share a frame")
	}
	return nil
}

func chained(last uint64, token int32) uint64 {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, []uint64{last, uint64(token) + 1})
	return h.Sum64()
}

func drawn(last uint64, firsts []uint64, run transformer.Run) int32 {
	h := fnv.New64a()
	_ = binary.Write(h, binary.LittleEndian, append(slices.Clone(firsts), last))
	if run.Sampling.Temperature > 0 {
		_ = binary.Write(h, binary.LittleEndian, []uint64{run.Seed, run.Agent})
		_ = binary.Write(h, binary.LittleEndian, run.Recent)
		_ = binary.Write(h, binary.LittleEndian, run.Sampling.Temperature)
	}
	return int32(h.Sum64() % vocabulary)
}
