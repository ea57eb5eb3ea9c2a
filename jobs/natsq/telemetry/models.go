package telemetry

import (
	"context"
	"fmt"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// modelPrefix begins the subjects on which GPU agents take requests about language models; the name
// of the agent follows, as in the registry. Operators alone may publish there.
const modelPrefix = "exo.agent.model."

// modelPatience bounds a request. To hold a model is to begin to load it; to check models reads the
// memory of all.
const modelPatience = 30 * time.Second

// What a request about a model asks for.
const (
	HoldModel    = "hold"    // load the model, and keep it until it is released or the agent ends
	ReleaseModel = "release" // end that
	CheckModels  = "check"   // compare the claims of all models with the devices
)

// ModelChange is a request to an agent about a model, or with CheckModels about all.
type ModelChange struct {
	Version int    `json:"v"`
	Do      string `json:"do"`
	Name    string `json:"name,omitempty"`
	SHA256  string `json:"sha256,omitempty"` // of the manifest
	// Exact has all tensors as F32, as swarms with exact: true have them.
	Exact bool `json:"exact,omitempty"`
}

// States of a model of an agent.
const (
	ModelHeld    = "held"
	ModelLoading = "loading"
	ModelFailed  = "failed"
)

// Models are the language models that a GPU agent holds, or was asked to hold.
type Models struct {
	Agent  string      `json:"agent"`
	At     time.Time   `json:"at"`
	Models []HeldModel `json:"models"` // by name and device
}

// HeldModel is a model on a device of an agent, or one that is not held yet.
type HeldModel struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
	Exact  bool   `json:"exact,omitempty"`
	Device string `json:"device,omitempty"`
	State  string `json:"state"`
	Error  string `json:"error,omitempty"` // why it is not held
	Asked  bool   `json:"asked"`           // by HoldModel; else shards alone hold it
	Users  int    `json:"users"`           // shards, and 1 if asked
	// DeviceBytes are of the layers that stay on the device, and of the two buffers through which the
	// Passing others pass in each step: from pinned memory, or from the file.
	DeviceBytes int64 `json:"device_bytes"`
	PinnedBytes int64 `json:"pinned_bytes,omitempty"`
	FileBytes   int64 `json:"file_bytes,omitempty"`
	Layers      int   `json:"layers,omitempty"`
	Passing     int   `json:"passing,omitempty"`
	// Step is how long the layers that pass took when the model was loaded; a step takes that at
	// least.
	Step    int64      `json:"step_ns,omitempty"`
	Claims  int        `json:"claims"`
	Checked *time.Time `json:"checked,omitempty"` // when all claims were last compared
}

// AnswerModels does requests about models in the name of an agent until stop is called, as
// AnswerView does. change answers with Models.
func (t *Telemetry) AnswerModels(
	agent string, change func(ctx context.Context, c ModelChange) (any, error),
) (stop func(), err error) {
	return answer(t, modelPrefix, agent, modelPatience, change)
}

// ChangeModel asks an agent about a model, and returns the models that it has then. Errors are as of
// AskView; jobs.ErrDenied: the login may not.
func (t *Telemetry) ChangeModel(ctx context.Context, agent string, c ModelChange) (m Models, err error) {
	c.Version = jobs.Version
	what := fmt.Sprintf("ask agent %s to %s models", agent, c.Do)
	err = t.conn.Retry(ctx, what, func(ctx context.Context) error {
		return t.ask(ctx, what, modelPrefix+AgentKey(agent), modelPatience, c, &m)
	})
	return m, err
}
