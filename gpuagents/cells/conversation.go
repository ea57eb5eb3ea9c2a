package cells

import (
	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TransformerName is the cell whose agents are conversations with a language model; see
// BindTransformer.
const TransformerName = "transformer"

// The variables of a conversation, which are in its record. The cache of keys and values has pages
// of its own.
const (
	ConversationProgress = iota // words: see ProgressRead and what follows
	ConversationSettings        // words: see SettingsTemperature and what follows
	ConversationText            // its tokens, as many as the context
)

// The words of the progress of a conversation.
const (
	ProgressRead   = iota // tokens that it has read
	ProgressTokens        // tokens that it has
	ProgressLeft          // tokens that it makes at most
	ProgressActive        // 1: the next tick has it read or make tokens
	ProgressEnded         // why its last answer has ended, see ConversationEnds
	ProgressWords
)

// The words of the settings of a conversation: its last prompt.
const (
	SettingsTemperature = iota // float32, as the next three
	SettingsTopP
	SettingsMinP
	SettingsRepetition
	SettingsTopK
	SettingsSeed  = 6 // and the upper half
	SettingsStops = 8 // their number, and the tokens
	SettingsWords = SettingsStops + 1 + swarms.MaxStopTokens
)

// ConversationEnds are the reasons why an answer has ended, by ProgressEnded.
var ConversationEnds = []string{"", swarms.EndedStop, swarms.EndedMax, swarms.EndedContext, swarms.EndedRead}

// MostContext is the largest context of a conversation.
const MostContext = 1 << 20

// transformerAddressed describes the cell without a model.
var transformerAddressed = &Cell{
	Name: TransformerName,
	Doc: "conversations with a language model, `cell.model`: an agent has tokens and their cache of keys and values, " +
		"a prompt gives it tokens to read, and a tick has it read `chunk` tokens or make one",
	Params: []Param{
		{
			Name: "context", Default: 2048, Min: 16, Max: MostContext, Integer: true,
			Doc: "most tokens of a conversation, no more than the model was made for",
		},
		{
			Name: "chunk", Default: 512, Min: 1, Max: 4096, Integer: true,
			Doc: "most tokens of a prompt that an agent reads in a tick",
		},
	},
	vars: func(b *Bound) []kernels.Var {
		return []kernels.Var{
			ConversationProgress: {Name: "progress", Elem: kernels.U32, Width: ProgressWords, Together: true},
			ConversationSettings: {Name: "settings", Elem: kernels.U32, Width: SettingsWords, Together: true},
			ConversationText:     {Name: "text", Elem: kernels.U32, Width: int(b.values["context"]), Together: true},
		}
	},
}

// BindTransformer returns the cell transformer with parameters by name. agents is the size of a
// group. The layout of the cell is the layout of the records of conversations. The error joins an
// ErrParameter for each mistake.
func BindTransformer(values map[string]float64, agents int, voting Voting) (*Bound, error) {
	return transformerAddressed.Bind(values, agents, 1, voting)
}
