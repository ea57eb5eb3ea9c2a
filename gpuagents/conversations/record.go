package conversations

import (
	"fmt"
	"math"
	"slices"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pager"
)

// record is a conversation in host memory. Its pages have the same behind each call, see keep.
type record struct {
	tokens []int32 // of the conversation
	read   int     // the first ones, which are in the cache
	left   int     // tokens that it makes at most
	active bool    // it reads or makes tokens in the next step
	ended  string  // why the last answer has ended; see swarms.TokenRow
	prompt settings

	kept    int  // tokens that the pages have
	changed bool // the progress is not in the pages
	set     bool // the settings are not
}

// settings are what a conversation keeps of its last prompt.
type settings struct {
	sampling swarms.Sampling
	stop     []int32
}

// word returns where a word of a variable of an agent stands: its page, and its first byte there.
func word(l kernels.Layout, agent, variable, w int) (page uint64, off int64) {
	group := agent / l.Agents
	slot := group % l.Slots
	unit := slot*l.Agents + agent%l.Agents
	return uint64(group / l.Slots), int64(l.Offsets[variable]) + 4*int64(unit*l.Vars[variable].Width+w)
}

// part is words of a variable of an agent in its page.
func part(l kernels.Layout, agent, variable, w int, words []uint32) pager.Part {
	page, off := word(l, agent, variable, w)
	return pager.Part{Page: page, Off: off, Bytes: device.Bytes(words)}
}

// parts appends what the pages of an agent lack, and notes that they have it.
func (r *record) parts(to []pager.Part, l kernels.Layout, agent int) []pager.Part {
	if r.changed {
		active := uint32(0)
		if r.active {
			active = 1
		}
		to = append(to, part(l, agent, cells.ConversationProgress, 0, []uint32{
			cells.ProgressRead: uint32(r.read), cells.ProgressTokens: uint32(len(r.tokens)),
			cells.ProgressLeft: uint32(r.left), cells.ProgressActive: active,
			cells.ProgressEnded: uint32(slices.Index(cells.ConversationEnds, r.ended)),
		}))
	}
	if r.set {
		to = append(to, part(l, agent, cells.ConversationSettings, 0, r.prompt.words()))
	}
	if r.kept < len(r.tokens) {
		words := make([]uint32, len(r.tokens)-r.kept)
		for i, t := range r.tokens[r.kept:] {
			words[i] = uint32(t)
		}
		to = append(to, part(l, agent, cells.ConversationText, r.kept, words))
	}
	r.changed, r.set, r.kept = false, false, len(r.tokens)
	return to
}

func (s settings) words() []uint32 {
	w := make([]uint32, cells.SettingsWords)
	w[cells.SettingsTemperature] = math.Float32bits(s.sampling.Temperature)
	w[cells.SettingsTopP] = math.Float32bits(s.sampling.TopP)
	w[cells.SettingsMinP] = math.Float32bits(s.sampling.MinP)
	w[cells.SettingsRepetition] = math.Float32bits(s.sampling.Repetition)
	w[cells.SettingsTopK] = uint32(s.sampling.TopK)
	w[cells.SettingsSeed], w[cells.SettingsSeed+1] = uint32(s.sampling.Seed), uint32(s.sampling.Seed>>32)
	w[cells.SettingsStops] = uint32(len(s.stop))
	for i, t := range s.stop {
		w[cells.SettingsStops+1+i] = uint32(t)
	}
	return w
}

// decode reads a record from its words. Words of a damaged page are an error.
func (r *record) decode(progress, set, text []uint32) error {
	read, tokens := progress[cells.ProgressRead], progress[cells.ProgressTokens]
	stops := set[cells.SettingsStops]
	if read > tokens || int(tokens) > len(text) || progress[cells.ProgressActive] > 1 ||
		progress[cells.ProgressLeft] > math.MaxInt32 || stops > swarms.MaxStopTokens ||
		int(progress[cells.ProgressEnded]) >= len(cells.ConversationEnds) {
		return fmt.Errorf("words %d and %d stop tokens", progress, stops)
	}
	*r = record{
		read: int(read), left: int(progress[cells.ProgressLeft]), active: progress[cells.ProgressActive] == 1,
		kept: int(tokens), tokens: make([]int32, tokens), ended: cells.ConversationEnds[progress[cells.ProgressEnded]],
	}
	for i := range r.tokens {
		r.tokens[i] = int32(text[i])
	}
	r.prompt.sampling = swarms.Sampling{
		Temperature: math.Float32frombits(set[cells.SettingsTemperature]),
		TopP:        math.Float32frombits(set[cells.SettingsTopP]),
		MinP:        math.Float32frombits(set[cells.SettingsMinP]),
		Repetition:  math.Float32frombits(set[cells.SettingsRepetition]),
		TopK:        int(set[cells.SettingsTopK]),
		Seed:        uint64(set[cells.SettingsSeed]) | uint64(set[cells.SettingsSeed+1])<<32,
	}
	for _, t := range set[cells.SettingsStops+1:][:stops] {
		r.prompt.stop = append(r.prompt.stop, int32(t))
	}
	return nil
}

// shorten leaves the first n tokens. The last of them is read again, so that an answer can follow it.
func (r *record) shorten(n int) {
	r.tokens, r.kept = r.tokens[:n], min(r.kept, n)
	r.read = min(r.read, max(0, n-1))
	r.left, r.active, r.ended, r.changed = 0, false, "", true
}

// copyTo makes a conversation of the first n tokens.
func (r *record) copyTo(n int) *record {
	c := &record{tokens: slices.Clone(r.tokens[:n]), read: min(r.read, max(0, n-1)), changed: true, set: true}
	return c
}
