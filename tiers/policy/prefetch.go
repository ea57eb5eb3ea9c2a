package policy

// This file guesses the next page faults from earlier ones: runs at a constant stride, and pages
// that followed another one nearly every time. It measures how often each kind of guess was right
// and guesses less while it is not.
//
// It only guesses. The page manager decides whether a guess may take a frame.

// GuessSource is where a guess comes from.
type GuessSource uint8

// The sources.
const (
	Run         GuessSource = iota // the next pages of a run
	Correlation                    // what followed in more than four fifths of the times
	sources
)

// GuessSources is the number of sources.
const GuessSources = int(sources)

// String is the name that statistics use.
func (s GuessSource) String() string { return [...]string{"run", "correlation"}[s] }

// Guess is a page that may be asked for soon.
type Guess struct {
	Page   uint64
	Source GuessSource
}

// PredictorOptions bound a Predictor. The zero value has the defaults.
type PredictorOptions struct {
	// Depth is the most pages ahead of a run; 0 means 32, which at 2 MiB a page is 1.2 ms of the
	// bus and 30 ms of a disk.
	Depth int
	// Entries is the number of pages whose followers the correlation remembers, 72 bytes each; 0
	// means 16,384.
	Entries int
}

// DefaultPredictorEntries is Options.Entries where it is 0.
const DefaultPredictorEntries = 1 << 14

// Numbers of the throttle.
const (
	// weight is the weight of one outcome: a change of load shows after about 32 outcomes.
	weight = 1.0 / 32
	// full, half and none are the accuracies from which guesses are made to their full depth, to
	// half of it, and at all. A page that is fetched in vain costs one transfer and one frame for a
	// while, a miss saved is one wait saved: below a quarter, the transfers in vain cost more of
	// the bus than the waits are worth.
	full, half, none = 0.6, 0.4, 0.25
	// probeEvery demands, a source that is off makes one guess, so that it can come back.
	probeEvery = 64
)

// account counts the outcomes of the guesses of a source.
type account struct {
	accuracy     float64
	used, wasted uint64
	demands      uint64
}

// depth returns how many pages ahead a source may guess now, at most n.
func (a *account) depth(n int) int {
	switch {
	case a.accuracy >= full:
		return n
	case a.accuracy >= half:
		return max(n/2, 1)
	case a.accuracy >= none:
		return max(n/4, 1)
	case a.demands%probeEvery == 0:
		return 1
	}
	return 0
}

// Predictor guesses for one tier. One goroutine at a time uses it.
type Predictor struct {
	opts     PredictorOptions
	runs     runs
	temporal temporal
	accounts [sources]account
}

// NewPredictor returns an empty Predictor, whose guesses are trusted until they fail.
func NewPredictor(opts PredictorOptions) *Predictor {
	if opts.Depth <= 0 {
		opts.Depth = 32
	}
	if opts.Entries <= 0 {
		opts.Entries = DefaultPredictorEntries
	}
	p := &Predictor{opts: opts, temporal: newTemporal(opts.Entries)}
	for i := range p.accounts {
		p.accounts[i].accuracy = 1
	}
	return p
}

// Demand takes in a page that was asked for and not there, or there only because it was guessed. It
// appends to out what may come next, the nearest first; a page that is there already is the
// caller's to skip.
func (p *Predictor) Demand(page uint64, out []Guess) []Guess {
	for i := range p.accounts {
		p.accounts[i].demands++
	}
	out, running := p.runs.demand(page, p.accounts[Run].depth(p.opts.Depth), out)
	p.temporal.learn(page)
	if !running {
		out = p.temporal.guess(page, p.accounts[Correlation].depth(chain), out)
	}
	return out
}

// Outcome records whether the page of a guess was asked for while it was in the tier.
func (p *Predictor) Outcome(s GuessSource, used bool) {
	a := &p.accounts[s]
	hit := 0.0
	if used {
		hit = 1
		a.used++
	} else {
		a.wasted++
	}
	a.accuracy += (hit - a.accuracy) * weight
}

// PredictorStats are the outcomes of the guesses of one source.
type PredictorStats struct {
	// Used and Wasted count pages that were fetched, by whether they were asked for.
	Used, Wasted uint64
	// Accuracy is the recent share of fetched pages that were asked for, 1 before the first.
	Accuracy float64
}

// Stats reads a source's account.
func (p *Predictor) Stats(s GuessSource) PredictorStats {
	a := p.accounts[s]
	return PredictorStats{Used: a.used, Wasted: a.wasted, Accuracy: a.accuracy}
}
