package transformer

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/opentest"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/quant"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// conversation is an agent with pages of its own.
type conversation struct {
	m      *Machine
	pool   device.Buffer
	frames []uint32
	at     int
}

// converse returns an agent whose frames are in a random order.
func converse(t testing.TB, m *Machine, pool device.Buffer, frames []int) *conversation {
	t.Helper()
	c := &conversation{m: m, pool: pool}
	for _, f := range frames {
		c.frames = append(c.frames, uint32(f))
	}
	return c
}

// alone returns an agent with a pool of its own.
func alone(t testing.TB, dev device.Device, m *Machine, positions int) *conversation {
	t.Helper()
	n := (positions + m.o.PagePositions - 1) / m.o.PagePositions
	return converse(t, m, alloc(t, dev, int64(n)*m.o.PageSize), rand.New(rand.NewPCG(1, 2)).Perm(n))
}

// run is the run that reads tokens next.
func (c *conversation) run(tokens ...int32) Run {
	return Run{Frames: c.frames, From: c.at, Tokens: tokens}
}

// read reads tokens and returns the logits behind them.
func (c *conversation) read(t testing.TB, tokens ...int32) []float32 {
	t.Helper()
	if err := c.m.Step(t.Context(), c.pool, []Run{c.run(tokens...)}, make([]Token, 1)); err != nil {
		t.Fatal(err)
	}
	c.at += len(tokens)
	return logits(t, c.m, 0)
}

// logits returns the logits of all tokens behind a run.
func logits(t testing.TB, m *Machine, run int) []float32 {
	t.Helper()
	all := make([]int32, m.p.Vocabulary)
	for i := range all {
		all[i] = int32(i)
	}
	out := make([]float32, len(all))
	if err := m.Logits(t.Context(), run, all, out); err != nil {
		t.Fatal(err)
	}
	return out
}

// words returns random tokens.
func words(r *rand.Rand, n, vocabulary int) []int32 {
	all := make([]int32, n)
	for i := range all {
		all[i] = r.Int32N(int32(vocabulary))
	}
	return all
}

// off is the norm of the difference over the norm of what is wanted.
func off[W float32 | float64](got []float32, want []W) float64 {
	var above, below float64
	for i, w := range want {
		d := float64(got[i]) - float64(w)
		above, below = above+d*d, below+float64(w)*float64(w)
	}
	return math.Sqrt(above / below)
}

// TestLogits compares the logits and the last state of each position with the twin in float64, for
// each family, beyond one split.
func TestLogits(t *testing.T) {
	dev := opentest.Device(t)
	for i, family := range families {
		t.Run(family, func(t *testing.T) {
			of := random(t, uint64(i), small(family), quant.F32)
			m := machine(t, dev, of, Options{PagePositions: 7, Chunk: 5})
			c, want := alone(t, dev, m, 300), newPlain(of)
			tokens := words(rand.New(rand.NewPCG(3, uint64(i))), 290, of.p.Vocabulary)
			var state, at []float64
			worst := 0.0
			for k, token := range tokens {
				state, at = want.next(token)
				if k >= 12 && k < 270 { // what is between is read in one step
					continue
				}
				got := c.read(t, tokens[c.at:k+1]...)
				last := make([]float32, of.p.Width)
				m.Last(0, last)
				worst = max(worst, off(got, at), off(last, state))
			}
			if worst > 2e-6 {
				t.Errorf("off by %.2e", worst)
			}
		})
	}
}

// TestTypes: weights of each type give the bits of the same values as F32.
func TestTypes(t *testing.T) {
	dev := opentest.Device(t)
	for _, kind := range []string{quant.BF16, quant.Q8_0} {
		of := random(t, 5, small(architecture.Qwen2), kind)
		tokens := words(rand.New(rand.NewPCG(5, 6)), 40, of.p.Vocabulary)
		o := Options{PagePositions: 16}
		got := alone(t, dev, machine(t, dev, of, o), 40)
		want := alone(t, dev, machine(t, dev, of.as(t, quant.F32), o), 40)
		if a, b := got.read(t, tokens...), want.read(t, tokens...); !slices.Equal(a, b) {
			t.Errorf("%s: off by %.2e", kind, off(a, b))
		}
	}
}

// script is what an agent says in TestCompany: prompts, and how many tokens are drawn behind each.
type script struct {
	prompt   []int32
	draws    int
	sampling Sampling
	seed     uint64
	agent    uint64
}

// say plays a script alone, with a machine's chunk, and returns the tokens and their likelihoods.
func (s *script) say(t testing.TB, c *conversation) (all []Token) {
	t.Helper()
	next, text := s.prompt, slices.Clone(s.prompt)
	for range s.draws {
		run := c.run(next...)
		run.Draw, run.Sampling, run.Seed, run.Agent = true, s.sampling, s.seed, s.agent
		run.Recent = text[max(0, len(text)-MaxRecent):]
		var out [1]Token
		if err := c.m.Step(t.Context(), c.pool, []Run{run}, out[:]); err != nil {
			t.Fatal(err)
		}
		c.at += len(next)
		all, next = append(all, out[0]), []int32{out[0].Token}
		text = append(text, out[0].Token)
	}
	return all
}

func randomScript(r *rand.Rand, agent, vocabulary int) script {
	s := script{
		prompt: words(r, 1+r.IntN(60), vocabulary), draws: 1 + r.IntN(12), seed: r.Uint64(), agent: uint64(agent),
	}
	if r.IntN(4) > 0 {
		s.sampling = Sampling{
			Temperature: 0.5 + r.Float32(), TopK: r.IntN(3) * 20, TopP: float32(r.IntN(2)) * 0.9,
			MinP: float32(r.IntN(2)) * 0.05, Repetition: 1 + r.Float32()*float32(r.IntN(2)),
		}
	}
	return s
}

// TestCompany: agents that join and leave, whose prompts are cut anywhere, say the bits of each of
// them alone, with other chunks and other pages; and again after a rewind.
func TestCompany(t *testing.T) {
	dev := opentest.Device(t)
	for round := range testkit.Of(16, 1) {
		t.Run(fmt.Sprint(round), func(t *testing.T) { company(t, dev, uint64(round)) })
	}
}

func company(t *testing.T, dev device.Device, round uint64) {
	const agents, positions = 64, 80
	of := random(t, 9, small(architecture.Qwen3), quant.Q8_0)
	together := machine(t, dev, of, Options{PagePositions: 8, Chunk: 24})
	apart := machine(t, dev, of, Options{PagePositions: 11, Chunk: 7, PageSize: 128 << 10})
	single := alone(t, dev, apart, positions)
	pages := (positions + 7) / 8
	pool := alloc(t, dev, int64(agents*pages)*together.o.PageSize)
	r := rand.New(rand.NewPCG(11, round))
	order := r.Perm(agents * pages)
	scripts, want, got := make([]script, agents), make([][]Token, agents), make([][]Token, agents)
	all, text := make([]*conversation, agents), make([][]int32, agents)
	for i := range agents {
		scripts[i] = randomScript(r, i, of.p.Vocabulary)
		single.at = 0
		want[i] = scripts[i].say(t, single)
		all[i] = converse(t, together, pool, order[i*pages:][:pages])
		text[i] = slices.Clone(scripts[i].prompt)
	}
	rewound := 0
	for left := agents; left > 0; {
		var runs []Run
		var who []int
		for _, i := range r.Perm(agents) {
			s, c := &scripts[i], all[i]
			if len(got[i]) == s.draws || r.IntN(3) == 0 {
				continue
			}
			if len(got[i]) > 1 && r.IntN(20) == 0 { // back to before its last tokens
				n := 1 + r.IntN(len(got[i])-1)
				got[i], text[i] = got[i][:len(got[i])-n], text[i][:len(text[i])-n]
				c.at = min(c.at, len(text[i])-1)
				rewound++
			}
			end := c.at + 1 + r.IntN(len(text[i])-c.at)
			if r.IntN(2) == 0 {
				end = len(text[i])
			}
			run := c.run(text[i][c.at:end]...)
			if end == len(text[i]) {
				run.Draw, run.Sampling, run.Seed, run.Agent = true, s.sampling, s.seed, s.agent
				run.Recent = text[i][max(0, end-MaxRecent):]
			}
			runs, who = append(runs, run), append(who, i)
		}
		out := make([]Token, len(runs))
		if err := together.Step(t.Context(), pool, runs, out); err != nil {
			t.Fatal(err)
		}
		for k, i := range who {
			all[i].at += len(runs[k].Tokens)
			if !runs[k].Draw {
				continue
			}
			got[i], text[i] = append(got[i], out[k]), append(text[i], out[k].Token)
			if len(got[i]) == scripts[i].draws {
				left--
			}
		}
	}
	for i := range want {
		if !slices.Equal(got[i], want[i]) {
			t.Errorf("agent %d says %v, and alone %v", i, got[i], want[i])
		}
	}
	if rewound == 0 {
		t.Error("nothing was rewound: the test proves less")
	}
}

// TestSampling: the tokens of many draws have the frequencies of a plain form of each filter.
func TestSampling(t *testing.T) {
	dev := opentest.Device(t)
	of := random(t, 13, small(architecture.Qwen2), quant.F32)
	m := machine(t, dev, of, Options{PagePositions: 8, Chunk: 512})
	const together = 400
	// The last token of the prompt begins a page: each run has that page to itself.
	prompt := words(rand.New(rand.NewPCG(13, 14)), 9, of.p.Vocabulary)
	c := converse(t, m, alloc(t, dev, (1+together)*m.o.PageSize), []int{0, 1})
	at := c.read(t, prompt...)
	for i, s := range []Sampling{
		{Temperature: 1},
		{Temperature: 0.6},
		{Temperature: 1.5, TopK: 7},
		{Temperature: 1, TopP: 0.7},
		{Temperature: 1.2, MinP: 0.1},
		{Temperature: 1, Repetition: 1.8},
		{Temperature: 1, Repetition: 1.3, TopK: 30, TopP: 0.9, MinP: 0.02},
	} {
		want := likelihoods(at, s, prompt)
		count := testkit.Of(20000, 4000)
		seen, likely := make([]int, len(want)), make([]float32, len(want))
		for done := 0; done < count; {
			runs := make([]Run, min(together, count-done))
			for k := range runs {
				runs[k] = Run{
					Frames: []uint32{0, uint32(1 + k)}, From: len(prompt) - 1, Tokens: prompt[len(prompt)-1:],
					Draw: true, Sampling: s, Recent: prompt, Seed: uint64(i), Agent: uint64(done + k),
				}
			}
			out := make([]Token, len(runs))
			if err := m.Step(t.Context(), c.pool, runs, out); err != nil {
				t.Fatal(err)
			}
			for _, o := range out {
				seen[o.Token]++
				likely[o.Token] = o.LogProb
			}
			done += len(runs)
		}
		checkFrequencies(t, fmt.Sprint(s), seen, want, count)
		raw := likelihoods(at, Sampling{Temperature: 1}, nil)
		for token, v := range likely {
			if seen[token] > 0 && math.Abs(float64(v)-math.Log(raw[token])) > 1e-4 {
				t.Errorf("%v: token %d has the logarithm %v, want %v", s, token, v, math.Log(raw[token]))
			}
		}
	}
}

// checkFrequencies is the chi-square test: a value beyond five deviations fails. Tokens that are
// expected less than five times count together.
func checkFrequencies(t *testing.T, what string, seen []int, want []float64, count int) {
	t.Helper()
	var chi, rare float64
	freedom, rareSeen := -1, 0
	for token, n := range seen {
		e := want[token] * float64(count)
		switch {
		case want[token] == 0 && n > 0:
			t.Errorf("%s: token %d was drawn %d times, and is left out", what, token, n)
		case e < 5:
			rare, rareSeen = rare+e, rareSeen+n
		default:
			chi += (float64(n) - e) * (float64(n) - e) / e
			freedom++
		}
	}
	if rare > 5 {
		chi += (float64(rareSeen) - rare) * (float64(rareSeen) - rare) / rare
		freedom++
	}
	if limit := float64(freedom) + 5*math.Sqrt(2*float64(freedom)) + 5; chi > limit || freedom < 1 {
		t.Errorf("%s: chi-square %.1f with %d degrees of freedom", what, chi, freedom)
	}
}

// likelihoods is the plain form of Sampling with a temperature.
func likelihoods(logits []float32, s Sampling, recent []int32) []float64 {
	z := make([]float64, len(logits))
	for i, v := range logits {
		z[i] = float64(v)
		if s.Repetition != 0 && slices.Contains(recent, int32(i)) {
			if v > 0 {
				z[i] /= float64(s.Repetition)
			} else {
				z[i] *= float64(s.Repetition)
			}
		}
		z[i] /= float64(s.Temperature)
	}
	order := make([]int, len(z))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int {
		if z[a] > z[b] {
			return -1
		}
		if z[a] < z[b] {
			return 1
		}
		return 0
	})
	if s.TopK > 0 {
		order = order[:s.TopK]
	}
	share := func() []float64 {
		p, sum := make([]float64, len(z)), 0.0
		for _, i := range order {
			p[i] = math.Exp(z[i] - z[order[0]])
			sum += p[i]
		}
		for i := range p {
			p[i] /= sum
		}
		return p
	}
	if s.TopP > 0 {
		p, sum := share(), 0.0
		for k, i := range order {
			if sum += p[i]; sum >= float64(s.TopP) {
				order = order[:k+1]
				break
			}
		}
	}
	p := share()
	order = slices.DeleteFunc(order, func(i int) bool { return p[i] < float64(s.MinP)*p[order[0]] })
	return share()
}

// TestRefused: what cannot be computed is refused by its name, and the machine goes on.
func TestRefused(t *testing.T) {
	dev := opentest.Device(t)
	of := random(t, 1, small(architecture.Llama), quant.F32)
	m := machine(t, dev, of, Options{PagePositions: 8, Context: 32})
	pool := alloc(t, dev, 4*m.o.PageSize)
	good := Run{Frames: []uint32{3, 1}, Tokens: []int32{1, 2, 3}}
	for name, change := range map[string]func(r *Run){
		"no tokens":        func(r *Run) { r.Tokens = nil },
		"a token":          func(r *Run) { r.Tokens = []int32{96} },
		"a negative token": func(r *Run) { r.Tokens = []int32{-1} },
		"a recent token":   func(r *Run) { r.Recent = []int32{1 << 20} },
		"many recent":      func(r *Run) { r.Recent = make([]int32, MaxRecent+1) },
		"a frame":          func(r *Run) { r.Frames = []uint32{4} },
		"few frames":       func(r *Run) { r.From = 14 },
		"beyond":           func(r *Run) { r.From = 30 },
		"a negative place": func(r *Run) { r.From = -1 },
		"a huge place":     func(r *Run) { r.From = math.MaxInt },
		"a temperature":    func(r *Run) { r.Sampling.Temperature = float32(math.NaN()) },
		"a negative top_p": func(r *Run) { r.Sampling.TopP = -1 },
		"a min_p":          func(r *Run) { r.Sampling.MinP = 2 },
		"a repetition":     func(r *Run) { r.Sampling.Repetition = -1 },
		"a negative top_k": func(r *Run) { r.Sampling.TopK = -1 },
	} {
		bad := good
		change(&bad)
		if err := m.Step(t.Context(), pool, []Run{good, bad}, make([]Token, 2)); !errors.Is(err, ErrRun) {
			t.Errorf("%s: %v, want an ErrRun", name, err)
		}
	}
	if err := m.Step(t.Context(), pool, []Run{good}, nil); !errors.Is(err, ErrRun) {
		t.Errorf("no place for a token: %v", err)
	}
	if err := m.Step(t.Context(), pool, []Run{good}, make([]Token, 1)); err != nil {
		t.Error(err)
	}
	if err := m.Logits(t.Context(), 0, []int32{96}, make([]float32, 1)); !errors.Is(err, ErrRun) {
		t.Errorf("logits of no token: %v", err)
	}
	for name, change := range map[string]func(o *Options){
		"a width":    func(o *Options) { o.Parameters.HeadWidth = 12 },
		"a context":  func(o *Options) { o.Context = 2048 },
		"no pages":   func(o *Options) { o.PagePositions = 0 },
		"a page":     func(o *Options) { o.PageSize = 16 },
		"a shape":    func(o *Options) { o.Parameters.Inner = 64 },
		"parameters": func(o *Options) { o.Parameters.Layers = 0 },
	} {
		o := Options{Parameters: of.p, PagePositions: 8}
		change(&o)
		if _, err := New(t.Context(), dev, o, of.put(t, dev)); !errors.Is(err, ErrModel) {
			t.Errorf("%s: %v, want an ErrModel", name, err)
		}
	}
}
