package doctor

import (
	"archive/zip"
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// mark is a secret that is planted in every place that may hold one.
const mark = "hunter2-PLANTED"

// fake is a cluster of two agents. One of the agents fails.
type fake struct {
	mu    sync.Mutex
	order []string
}

func (f *fake) Facts(context.Context) *Facts {
	return &Facts{State: &cluster.State{
		Frame: 1,
		Agents: []cluster.Agent{
			{Agent: jobs.Agent{Name: "a/../b"}},
			{Agent: jobs.Agent{Name: "c"}},
			{Agent: jobs.Agent{Name: "gone", Lost: &jobs.Lost{}}},
		},
		Swarms: []cluster.Swarm{{Name: "s", Spec: []byte(`{"cell":"` + mark + `"}`)}},
	}}
}

func (f *fake) Document(_ context.Context, agent, what string, seconds int) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.order = append(f.order, what)
	if agent == "c" {
		return nil, errors.New("it does not answer: nats://user:" + mark + "@host")
	}
	switch what {
	case telemetry.Log:
		return []byte(`{"msg":"rejected","error":"row 7: value \"` + mark + `\" is no number, and 'a ` + mark + `'"}` +
			"\nno json " + mark + "\n"), nil
	case telemetry.Metrics:
		return []byte("x{url=\"nats://u:" + mark + "@h\"} 1\n"), nil
	case telemetry.CPU:
		if seconds != 2 {
			return nil, errors.New("of other seconds")
		}
	}
	return []byte(what), nil
}

func (f *fake) Dead(context.Context, int) ([]jobs.DeadLetter, error) {
	return []jobs.DeadLetter{{ID: "x", Data: []byte(mark), Reason: &jobs.Error{
		Code:    jobs.CodeInput,
		Message: `value "` + mark + `"`,
	}}}, nil
}

// TestWrite: a bundle has its parts, an agent that fails leaves its reason, profiles come first,
// nothing leaves the archive's folder, and no planted secret is in it.
func TestWrite(t *testing.T) {
	var out bytes.Buffer
	c := &fake{}
	m, err := WriteBundle(t.Context(), &out, c, BundleOptions{Profile: 2 * time.Second, Version: "1"})
	if err != nil {
		t.Fatal(err)
	}
	if c.order[0] != telemetry.CPU || c.order[1] != telemetry.CPU {
		t.Errorf("the order is %v, want profiles first", c.order)
	}
	z, err := zip.NewReader(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil {
		t.Fatal(err)
	}
	files := map[string]string{}
	for _, f := range z.File {
		r, err := f.Open()
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		files[f.Name] = string(data)
		for _, secret := range []string{mark, base64.StdEncoding.EncodeToString([]byte(mark))[:16]} {
			if strings.Contains(string(data), secret) {
				t.Errorf("%s holds a planted secret: %s", f.Name, data)
			}
		}
		if strings.Contains(f.Name, "..") {
			t.Errorf("the archive has a file %s", f.Name)
		}
	}
	for _, want := range []string{
		"manifest.json", "facts.json", "doctor.json", "dead_letters.json", "agents/a____b/cpu.pprof",
		"agents/a____b/metrics.1.txt",
		"agents/a____b/metrics.2.txt", "agents/a____b/log.jsonl", "agents/c/heap.pprof.err.txt",
	} {
		if _, ok := files[want]; !ok {
			t.Errorf("%s is missing", want)
		}
	}
	if len(m.Missing) == 0 || m.Redactions == 0 {
		t.Errorf("the manifest is %+v, want missing parts and redactions", m)
	}
	f, err := BundleFacts(bytes.NewReader(out.Bytes()), int64(out.Len()))
	if err != nil || len(f.State.Agents) != 3 || len(Examine(f)) == 0 {
		t.Errorf("%+v, %v, want the facts", f, err)
	}
	// A limit leaves parts out, and says so.
	out.Reset()
	m, err = WriteBundle(t.Context(), &out, c, BundleOptions{Lite: true, Max: 100})
	if err != nil || len(m.Missing) < 5 {
		t.Errorf("%+v, %v, want many missing parts", m, err)
	}
}

// FuzzFacts: nothing that is read ends the program.
func FuzzFacts(f *testing.F) {
	var out bytes.Buffer
	if _, err := WriteBundle(f.Context(), &out, &fake{}, BundleOptions{Lite: true}); err != nil {
		f.Fatal(err)
	}
	f.Add(out.Bytes())
	f.Add([]byte("PK"))
	f.Fuzz(func(t *testing.T, data []byte) {
		facts, err := BundleFacts(bytes.NewReader(data), int64(len(data)))
		if err != nil && !errors.Is(err, ErrBundle) {
			t.Errorf("%v is no %v", err, ErrBundle)
		}
		if err == nil {
			Examine(facts)
		}
	})
}
