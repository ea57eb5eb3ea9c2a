package telemetry_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// TestView: an answer comes as it was, errors keep their class, more than a few views at a time are
// refused, and stop waits for views in progress.
func TestView(t *testing.T) {
	s, c := jobstest.InProcess(t, natsq.Connect)
	cells := make([]byte, 256<<10)
	for i := range cells {
		cells[i] = byte(rand.Uint32()) // which does not compress
	}
	hold, held := make(chan struct{}), make(chan struct{}, 10)
	stop, err := jobstest.Open(t, s, natsq.Connect).Telemetry.AnswerView("host.a-1",
		func(ctx context.Context, v telemetry.View) (any, error) {
			switch v.Swarm {
			case "parked":
				return nil, errors.Join(errors.New("the shard is parked"), jobs.ErrNotFound)
			case "resting":
				return nil, errors.Join(errors.New("ask again"), jobs.ErrUnavailable)
			case "wrong":
				return nil, jobs.Errorf(jobs.CodeInvalid, "there is no variable %s", v.Variable)
			case "large":
				return make([]byte, 0), errors.New("broken\nin two lines")
			case "slow":
				held <- struct{}{}
				select {
				case <-hold:
				case <-ctx.Done():
				}
			}
			return telemetry.Picture{Variable: v.Variable, Cells: cells, Units: v.Cells}, nil
		})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var got telemetry.Picture
	ask := func(swarm string) error {
		return c.Telemetry.AskView(ctx, "host.a-1", telemetry.View{
			What: telemetry.ViewPicture, Swarm: swarm, Variable: "mood", Cells: 9,
		}, &got)
	}
	for err = ask(""); errors.Is(err, jobs.ErrNotFound); err = ask("") { // the server may hear of it later
	}
	if err != nil || got.Variable != "mood" || got.Units != 9 || string(got.Cells) != string(cells) {
		t.Errorf("an answer of %d bytes of %d: %v", len(got.Cells), len(cells), err)
	}
	if err := ask("parked"); !errors.Is(err, jobs.ErrNotFound) || !strings.Contains(err.Error(), "parked") {
		t.Errorf("a parked shard: %v", err)
	}
	if err := ask("resting"); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("a shard that rests: %v", err)
	}
	var refused *jobs.Error
	if err := ask("wrong"); !errors.As(err, &refused) || refused.Code != jobs.CodeInvalid {
		t.Errorf("a question that is wrong: %v", err)
	}
	if err := ask("large"); err == nil || !strings.Contains(err.Error(), "broken in two lines") {
		t.Errorf("a view that fails: %v", err)
	}
	err = c.Telemetry.AskView(ctx, "nobody", telemetry.View{What: telemetry.ViewPages}, &got)
	if !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("an agent that is not there: %v", err)
	}
	var slow sync.WaitGroup
	for range 4 {
		slow.Go(func() {
			var own telemetry.Picture
			v := telemetry.View{What: telemetry.ViewPicture, Swarm: "slow"}
			err := c.Telemetry.AskView(ctx, "host.a-1", v, &own)
			for errors.Is(err, jobs.ErrUnavailable) { // the view before counts until its answer is sent
				err = c.Telemetry.AskView(ctx, "host.a-1", v, &own)
			}
			if err != nil {
				t.Errorf("a slow view: %v", err)
			}
		})
	}
	for range 4 {
		select {
		case <-held:
		case <-ctx.Done():
			t.Fatal("four slow views do not begin")
		}
	}
	if err := ask(""); !errors.Is(err, jobs.ErrUnavailable) {
		t.Errorf("a fifth view at a time: %v, want jobs.ErrUnavailable", err)
	}
	close(hold)
	slow.Wait()
	stop()
	ctx, cancel = context.WithTimeout(ctx, time.Second) // nobody answers
	defer cancel()
	if err := ask(""); err == nil {
		t.Error("an agent answers after stop")
	}
}
