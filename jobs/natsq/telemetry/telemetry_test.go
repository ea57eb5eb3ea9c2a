package telemetry_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	testkit.CheckLeaks(m)
}

// TestAsk: one question reaches all agents, an agent that does not answer holds up nobody longer
// than the asker waits, and nothing that others publish stops an agent from answering.
func TestAsk(t *testing.T) {
	s, c := jobstest.InProcess(t, natsq.Connect)
	for _, name := range []string{"a", "b"} {
		stop, err := jobstest.Open(t, s, natsq.Connect).Telemetry.Answer(name, func(names []string) []jobs.Sample {
			var all []jobs.Sample
			for _, n := range names {
				all = append(all, jobs.Sample{Name: n, Labels: map[string]string{"of": name}, Value: 1.5})
			}
			return all
		})
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	for _, junk := range []string{"", "{", `{"names":[]}`, `{"names":["` + strings.Repeat(`x","`, 300) + `"]}`} {
		if err := c.NC.PublishRequest("exo.agent.telemetry", c.NC.NewInbox(), []byte(junk)); err != nil {
			t.Fatal(err)
		}
	}
	ask := func(wait time.Duration, agents ...string) map[string]jobs.Telemetry {
		t.Helper()
		ctx, cancel := context.WithTimeout(t.Context(), wait)
		defer cancel()
		got, err := c.Telemetry.Ask(ctx, []string{"x", "y"}, agents)
		if err != nil {
			t.Fatalf("ask %v: %v", agents, err)
		}
		return got
	}
	got := ask(time.Minute, "a", "b")
	for _, name := range []string{"a", "b"} {
		if have := fmt.Sprint(got[name].Samples); have != fmt.Sprintf("[{x map[of:%s] 1.5} {y map[of:%[1]s] 1.5}]",
			name) {
			t.Errorf("agent %s answered %s", name, have)
		}
	}
	if got := ask(300*time.Millisecond, "a", "gone"); len(got) == 0 || got["a"].Agent != "a" {
		t.Errorf("with an agent that is gone: %v, want the answer of a", got)
	}
	if got := ask(time.Minute); len(got) != 0 {
		t.Errorf("nobody is asked, and %v answered", got)
	}
	if _, err := c.Telemetry.Ask(t.Context(), make([]string, 201), []string{"a"}); err == nil {
		t.Error("201 names are taken, want an error")
	}
}

// TestLongAnswer: an answer that is larger than a message says how much it leaves out.
func TestLongAnswer(t *testing.T) {
	_, c := jobstest.InProcess(t, natsq.Connect)
	const samples = 100_000
	stop, err := c.Telemetry.Answer("a", func([]string) []jobs.Sample {
		all := make([]jobs.Sample, samples)
		for i := range all {
			all[i] = jobs.Sample{Name: "x", Labels: map[string]string{"i": fmt.Sprint(i)}, Value: float64(i)}
		}
		return all
	})
	if err != nil {
		t.Fatal(err)
	}
	defer stop()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	got, err := c.Telemetry.Ask(ctx, []string{"x"}, []string{"a"})
	if err != nil {
		t.Fatal(err)
	}
	a := got["a"]
	if len(a.Samples) == 0 || a.Omitted == 0 || len(a.Samples)+a.Omitted != samples {
		t.Errorf("%d samples and %d omitted, want %d together and some of each", len(a.Samples), a.Omitted, samples)
	}
}

// TestTwins: two processes of one name are noticed, and one alone is not.
func TestTwins(t *testing.T) {
	s, c := jobstest.InProcess(t, natsq.Connect)
	for _, name := range []string{"twin", "alone", "twin"} {
		c := jobstest.Open(t, s, natsq.Connect)
		stop, err := c.Telemetry.Answer(name, func([]string) []jobs.Sample { return nil })
		if err != nil {
			t.Fatal(err)
		}
		defer stop()
	}
	testkit.Until(t, "both processes answer in time", func() bool {
		got, err := c.Telemetry.Ask(t.Context(), []string{"x"}, []string{"twin", "alone"})
		if err != nil || len(got) != 2 || got["alone"].Twins != 0 || got["twin"].Twins > 1 {
			t.Fatalf("%v, %v", got, err)
		}
		return got["twin"].Twins == 1
	})
}
