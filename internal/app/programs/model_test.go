package programs

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/base/httpapi"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// TestModel: a program names a model, and the server pins its digest. A name without a model is
// refused. The GPU agents here have no place of models, so they refuse the pinned one.
func TestModel(t *testing.T) {
	place, err := bucket.OpenFolder(t.TempDir())
	testkit.NoError(t, "bucket.OpenFolder", err)
	testkit.Close(t, place)
	data, err := os.ReadFile("../../../gpuagents/model/testdata/gru.safetensors")
	testkit.NoError(t, "os.ReadFile", err)
	_, _, err = model.Save(t.Context(), place, "trained", data)
	testkit.NoError(t, "model.Save", err)
	_, c := serving(t, Options{Conn: cluster(t), Snapshots: place})
	for name, want := range map[string]string{
		"gone": "model gone: model not found", "trained": "model trained: no models are read here",
	} {
		body, err := json.Marshal(NewSwarm{Spec: "name: x\naddressed: agent\nagents: 64\nagents_per_group: 8\n" +
			"features: [a, b, c]\ncell: {kind: gru, model: " + name + "}\nvote: {candidates: [x, y, z]}\n"})
		testkit.NoError(t, "json.Marshal", err)
		status, answer := c.do(t, "POST", "/swarms", httpapi.JSON, body, httpapi.JSON)
		if status < http.StatusBadRequest || status >= http.StatusInternalServerError ||
			!strings.Contains(string(answer), want) {
			t.Errorf("a swarm with the model %s: %d %s, want a refusal with %q", name, status, answer, want)
		}
	}
}
