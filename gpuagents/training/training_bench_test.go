package training

import (
	"encoding/csv"
	"flag"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels/trainset"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var (
	benchAgents     = flag.Int("agents", 0, "agents of BenchmarkStep; 0: 1,000,000, and 1,000 on the host device")
	benchParameters = flag.Int64("parameters", 0, "weights of BenchmarkAdam; 0: 1,000,000,000, on the host 1,000,000")
	benchAnswers    = flag.String("answers", "", "answers of knowledge tracing: fold, uid, concepts, responses")
	benchFolds      = flag.Int("folds", 5, "folds of BenchmarkFolds")
)

// timer measures work on the stream of a trainer.
type timer struct {
	*testing.B
	m        *memory
	from, to device.Event
}

func newTimer(b *testing.B, d device.Device, m *memory) *timer {
	t := &timer{B: b, m: m}
	for _, e := range []*device.Event{&t.from, &t.to} {
		var err error
		*e, err = d.NewEvent()
		testkit.NoError(b, "NewEvent", err)
		testkit.Close(b, *e)
	}
	return t
}

// time returns the median time of f on the device, over b.N calls and three at least.
func (t *timer) time(f func() error) float64 {
	var all []time.Duration
	for i := range max(3, t.N) + 2 {
		testkit.NoError(t, "Record", t.m.stream.Record(t.from))
		testkit.NoError(t, "launch", f())
		testkit.NoError(t, "Record", t.m.stream.Record(t.to))
		testkit.NoError(t, "Sync", t.m.stream.Sync(t.Context()))
		took, err := t.to.Since(t.from)
		testkit.NoError(t, "Since", err)
		if i >= 2 {
			all = append(all, took)
		}
	}
	slices.Sort(all)
	return all[len(all)/2].Seconds()
}

func (t *timer) report(name string, f func() error) {
	t.ReportMetric(t.time(f)*1e3, name)
}

// fill writes random blocks over a buffer, one behind the other.
func fill[T device.Scalar](b *testing.B, to device.Buffer, draw func() T) {
	block := make([]T, 1<<20)
	for i := range block {
		block[i] = draw()
	}
	for at := int64(0); at < to.Size(); {
		part := device.Bytes(block)
		part = part[:min(int64(len(part)), to.Size()-at)]
		testkit.NoError(b, "Write", to.Write(at, part))
		at += int64(len(part))
	}
}

// BenchmarkStep: a step of many agents over 32 moments whose inputs and targets are on the device:
// the whole step and its parts.
func BenchmarkStep(b *testing.B) {
	for _, hidden := range []int{8, 16, 32} {
		b.Run(fmt.Sprintf("hidden=%d", hidden), func(b *testing.B) {
			d := opentest.Open(b, *opentest.Name, cuda.Options{})
			agents := *benchAgents
			if agents == 0 {
				if agents = 1_000_000; d.Properties().ComputeMajor == 0 {
					agents = 1_000
				}
			}
			p := part{0, agents, 0, 32}
			s := Shape{Hidden: hidden, Inputs: hidden, Candidates: 2}
			tr, err := New(b.Context(), d, Options{Shape: s, Window: 32, BatchBytes: 1 << 40}, nil)
			testkit.NoError(b, "New", err)
			testkit.Close(b, tr)
			m, r := tr.Model, rand.New(rand.NewPCG(1, 2))
			testkit.NoError(b, "reserve", m.reserve(p))
			fill(b, m.room.rows.Buffer, func() int16 { return int16(max(-32_000, min(r.NormFloat64()*2048, 32_000))) })
			fill(b, m.room.targets.Buffer, func() int32 { return r.Int32N(2) })
			fill(b, m.room.lengths.Buffer, func() uint32 { return 32 })
			t := newTimer(b, d, m.memory)
			steps := uint64(0)
			step := func() error {
				testkit.NoError(b, "Fill", m.stream.Fill(m.room.carry.Buffer, 0, m.room.carry.Size(), 0))
				testkit.NoError(b, "begin", m.begin(p.moments))
				testkit.NoError(b, "gradient", m.gradient(p, steps))
				testkit.NoError(b, "gather", tr.Optimizer.gather(p.moments, p.elements()))
				steps++
				return tr.Optimizer.step(steps)
			}
			t.report("step-ms", step)
			_, err = tr.read(b.Context(), p.elements())
			testkit.NoError(b, "read", err)
			t.report("forward-ms", func() error { return m.forward(p) })
			t.report("score-ms", func() error { return m.score(p, true, 1) })
			t.report("back-ms", func() error { return m.back(p) })
			t.report("outer-ms", func() error { return m.outer(p) })
			t.report("adam-ms", func() error { return tr.Optimizer.step(1) })
		})
	}
}

// BenchmarkLaunches: the longest launch of a batch of 64 windows of 200 moments, whole and in parts as
// pace cuts it behind some steps.
func BenchmarkLaunches(b *testing.B) {
	for _, hidden := range []int{8, 16, 32} {
		b.Run(fmt.Sprintf("hidden=%d", hidden), func(b *testing.B) {
			d := opentest.Open(b, *opentest.Name, cuda.Options{})
			s := Shape{Hidden: hidden, Inputs: hidden, Rows: 200, Items: 100}
			tr, err := New(b.Context(), d, Options{Shape: s, Window: 200}, nil)
			testkit.NoError(b, "New", err)
			testkit.Close(b, tr)
			batch := randomBatch(rand.New(rand.NewPCG(1, 3)), s, 64, 200, 0)
			for n := range batch.Lengths {
				batch.Lengths[n] = 200
			}
			var steps []time.Duration
			for range 20 + b.N {
				began := time.Now()
				_, err := tr.TrainStep(b.Context(), batch)
				testkit.NoError(b, "TrainStep", err)
				steps = append(steps, time.Since(began))
			}
			slices.Sort(steps)
			b.ReportMetric(steps[len(steps)/2].Seconds()*1e3, "step-ms")
			m, t := tr.Model, newTimer(b, d, tr.Model.memory)
			fit, err := m.pace.sequences(200)
			testkit.NoError(b, "sequences", err)
			for name, p := range map[string]part{"whole-ms": {0, 64, 0, 200}, "part-ms": {0, min(fit, 64), 0, 200}} {
				longest := 0.0
				for _, launch := range []func() error{
					func() error { return m.forward(p) },
					func() error { return m.score(p, true, 1) },
					func() error { return m.back(p) },
					func() error { return m.outer(p) },
					func() error { return m.embed(p) },
					func() error { return tr.Optimizer.gather(p.moments, p.elements()) },
					func() error { return tr.Optimizer.step(1) },
				} {
					testkit.NoError(b, "load", tr.FeatureExtractor.load(&batch, p, nil))
					longest = max(longest, t.time(launch))
				}
				b.ReportMetric(longest*1e3, name)
			}
			b.ReportMetric(float64(fit), "sequences")
		})
	}
}

// BenchmarkDevices: a step of batches of windows of 200 moments on one device and several: the devices
// of -device, or up to three host devices. exchange-ms is the part of the collective.
func BenchmarkDevices(b *testing.B) {
	names := strings.Split(*opentest.Name, ",")
	batches := []int{64, 4096, 65_536}
	if names[0] == "host" {
		names, batches = []string{"host", "host", "host"}, []int{64, 512}
	}
	for _, batch := range batches {
		for n := 1; n <= len(names); n++ {
			b.Run(fmt.Sprintf("batch=%d/devices=%d", batch, n), func(b *testing.B) {
				dev, o := spread(b, n, tracing)
				tr, err := New(b.Context(), dev, o, nil)
				testkit.NoError(b, "New", err)
				testkit.Close(b, tr)
				data := randomBatch(rand.New(rand.NewPCG(1, 3)), o.Shape, batch, 200, 0)
				step := func() time.Duration {
					began := time.Now()
					_, err := tr.TrainStep(b.Context(), data)
					testkit.NoError(b, "TrainStep", err)
					return time.Since(began)
				}
				for range 10 { // parts find their sizes
					step()
				}
				var steps, exchanges []time.Duration
				for range max(3, b.N) {
					steps = append(steps, step())
					began := time.Now()
					if n > 1 {
						testkit.NoError(b, "exchange", tr.exchange(b.Context(), data.Moments))
					}
					exchanges = append(exchanges, time.Since(began))
				}
				slices.Sort(steps)
				slices.Sort(exchanges)
				b.ReportMetric(steps[len(steps)/2].Seconds()*1e3, "step-ms")
				b.ReportMetric(exchanges[len(exchanges)/2].Seconds()*1e3, "exchange-ms")
			})
		}
	}
}

// BenchmarkAdam: Adam alone. copy-% is its rate as a share of the rate of a copy, of 28 bytes for
// each weight.
func BenchmarkAdam(b *testing.B) {
	d := opentest.Open(b, *opentest.Name, cuda.Options{})
	n := *benchParameters
	if n == 0 {
		if n = 1_000_000_000; d.Properties().ComputeMajor == 0 {
			n = 1_000_000
		}
	}
	tr, err := New(b.Context(), d, Options{Shape: Shape{Hidden: 8, Inputs: 8, Candidates: 2}, Window: 1}, nil)
	testkit.NoError(b, "New", err)
	testkit.Close(b, tr)
	r := rand.New(rand.NewPCG(1, 2))
	var buffers [4]device.Buffer
	for i := range buffers {
		buffers[i], err = tr.Model.memory.keep(4 * n)
		testkit.NoError(b, "keep", err)
		fill(b, buffers[i], func() float32 {
			if v := float32(r.NormFloat64()); i != 2 {
				return v
			}
			return r.Float32()
		})
	}
	t, p := newTimer(b, d, tr.Model.memory), tr.Optimizer
	args := &trainset.AdamArgs{
		Weights: device.Ptr(buffers[0]), Mean: device.Ptr(buffers[1]), Square: device.Ptr(buffers[2]),
		Gradient: device.Ptr(buffers[3]), Control: device.Ptr(p.control), Decay: 1e-5, FreshMean: 0.1, Beta2: 0.999,
		FreshSquare: 0.001, Rate: 1e-3, Root: 1, Epsilon: 1e-8, Count: uint64(n),
	}
	took := t.time(func() error { return p.launch(trainset.Adam, p.adamShape(n), args) })
	copied := t.time(func() error { return p.stream.Copy(buffers[0], 0, buffers[3], 0, 4*n) })
	b.ReportMetric(took*1e3, "device-ms")
	b.ReportMetric(28*float64(n)/took/1e12, "TB/s")
	b.ReportMetric(100*(28*copied/8)/took, "copy-%")
}

// answers reads students: sequences with the row of a skill and an answer, and what is asked next;
// and the fold of each.
func answers(b *testing.B) (data *Sequences, folds []int) {
	if *benchAnswers == "" {
		b.Skip("no -answers")
	}
	f, err := os.Open(*benchAnswers)
	testkit.NoError(b, "Open", err)
	testkit.Close(b, f)
	rows, err := csv.NewReader(f).ReadAll()
	testkit.NoError(b, "ReadAll", err)
	numbers := func(text string) (all []int32) {
		for part := range strings.SplitSeq(text, ",") {
			v, err := strconv.Atoi(part)
			testkit.NoError(b, "Atoi", err)
			all = append(all, int32(v))
		}
		return all
	}
	data = &Sequences{}
	for _, row := range rows[1:] {
		skills, right := numbers(row[2]), numbers(row[3])
		if len(skills) < 2 {
			continue
		}
		data.Lengths = append(data.Lengths, int32(len(skills)-1))
		folds = append(folds, int(numbers(row[0])[0]))
		for t := range skills[1:] {
			data.Numbers = append(data.Numbers, skills[t]+100*right[t])
			data.Items, data.Targets = append(data.Items, skills[t+1]), append(data.Targets, right[t+1])
		}
	}
	return data, folds
}

var tracing = Options{
	Shape: Shape{Hidden: 32, Inputs: 32, Rows: 200, Items: 100}, Window: 200, Clip: 1, Dropout: 0.2, Seed: 1,
	Adam: Adam{Rate: 4e-3, Decay: 1e-5},
}

// BenchmarkEpochs: ten epochs of knowledge tracing in batches of 64 windows, of the students
// outside of fold 0.
func BenchmarkEpochs(b *testing.B) {
	data, folds := answers(b)
	var rest []int
	for n, fold := range folds {
		if fold != 0 {
			rest = append(rest, n)
		}
	}
	tr, err := New(b.Context(), opentest.Open(b, *opentest.Name, cuda.Options{}), tracing, nil)
	testkit.NoError(b, "New", err)
	testkit.Close(b, tr)
	batcher, err := NewBatcher(tr.o.Shape, data)
	testkit.NoError(b, "NewBatcher", err)
	windows := data.Windows(rest, tracing.Window)
	b.ResetTimer()
	for range b.N {
		var loss Loss
		for epoch := range 10 {
			loss = trainEpoch(b, tr, batcher, windows, epoch)
		}
		b.ReportMetric(loss.Sum/float64(loss.Count), "loss")
	}
}

// trainEpoch returns the loss of an epoch.
func trainEpoch(b *testing.B, tr *Trainer, batcher *Batcher, windows []Window, epoch int) (sum Loss) {
	for _, batch := range Shuffle(windows, 64, tr.o.Seed, epoch) {
		loss, err := tr.TrainStep(b.Context(), batcher.Batch(batch))
		testkit.NoError(b, "TrainStep", err)
		sum.Sum, sum.Count, sum.Saturated = sum.Sum+loss.Sum, sum.Count+loss.Count, sum.Saturated+loss.Saturated
	}
	return sum
}

// judge returns the area under the curve of whole sequences.
func judge(b *testing.B, tr *Trainer, batcher *Batcher, data *Sequences, students []int) float64 {
	type answer struct {
		p     float32
		right bool
	}
	var all []answer
	for _, windows := range data.Whole(students, 512, math.MaxInt) {
		batch := batcher.Batch(windows)
		predictions := make([]float32, len(batch.Targets))
		_, err := tr.Evaluate(b.Context(), batch, nil, predictions)
		testkit.NoError(b, "Evaluate", err)
		for n, length := range batch.Lengths {
			for t := range int(length) {
				i := t*batch.Sequences + n
				all = append(all, answer{predictions[i], batch.Targets[i] == 1})
			}
		}
	}
	slices.SortFunc(all, func(a, b answer) int {
		if a.p < b.p {
			return -1
		}
		return int(math.Float32bits(a.p)) - int(math.Float32bits(b.p))
	})
	var ranks, right float64
	for i := 0; i < len(all); {
		j, equal := i, 0.0
		for ; j < len(all) && all[j].p == all[i].p; j++ {
			if all[j].right {
				equal++
			}
		}
		ranks, right = ranks+equal*float64(i+j+1)/2, right+equal
		i = j
	}
	return (ranks - right*(right+1)/2) / (right * (float64(len(all)) - right))
}

// BenchmarkFolds: the area under the curve of knowledge tracing, by fold. A tenth of the students
// of the other folds chooses the epoch.
func BenchmarkFolds(b *testing.B) {
	data, folds := answers(b)
	d := opentest.Open(b, *opentest.Name, cuda.Options{})
	mean := 0.0
	for fold := range *benchFolds {
		var train, valid, test []int
		for n, own := range folds {
			switch {
			case own == fold:
				test = append(test, n)
			case n%10 == 0:
				valid = append(valid, n)
			default:
				train = append(train, n)
			}
		}
		tr, err := New(b.Context(), d, tracing, nil)
		testkit.NoError(b, "New", err)
		batcher, err := NewBatcher(tr.o.Shape, data)
		testkit.NoError(b, "NewBatcher", err)
		windows := data.Windows(train, tracing.Window)
		best, of, at := 0.0, 0.0, 0
		var cut int64
		for epoch := range 25 {
			cut += trainEpoch(b, tr, batcher, windows, epoch).Saturated
			if v := judge(b, tr, batcher, data, valid); v > best {
				best, of, at = v, judge(b, tr, batcher, data, test), epoch
			}
			if epoch-at >= 4 {
				break
			}
		}
		b.Logf("fold %d: %.4f, epoch %d, validation %.4f, %d gradients cut off", fold, of, at+1, best, cut)
		mean += of / float64(*benchFolds)
		testkit.NoError(b, "Close", tr.Close())
	}
	b.ReportMetric(mean, "auc")
}
