package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// collectPatience bounds Collect. It is less than the timeout of a poll, so a cluster that is too
// slow to observe is reported as one that does not answer.
const collectPatience = 4 * time.Second

// Collect asks a cluster for the facts, and takes at most collectPatience. It polls the cluster
// once, with the metrics of the agents. It never fails: the Facts lack what could not be read, and
// Error has the cause. The caller fills in URL, Local and Version.
func Collect(ctx context.Context, c *natsq.Conn) *Facts {
	ctx, cancel := context.WithTimeout(ctx, collectPatience)
	defer cancel()
	w := cluster.Start(cluster.Options{Conn: c, Every: time.Second})
	defer w.Close()
	defer w.Watched()()
	s, err := w.Wait(ctx, 0)
	f := &Facts{At: time.Now().UTC()}
	// Without a leader of JetStream, reading the streams would wait until the end of ctx. If Drift
	// was read, the server answers although the poll has failed, and reachable says so.
	if err == nil && !strings.Contains(s.Error, telemetry.ErrNoLeader.Error()) {
		f.Drift = Drift(ctx, c)
	}
	switch {
	case err != nil:
		f.Error = err.Error()
		return f
	// The poll has failed: its State has nothing but the error.
	case s.Error != "":
		f.Error = s.Error
		return f
	}
	f.State = s
	return f
}

// Drift returns the settings of streams that differ from what this version wants, one line each. An
// empty list means that all agree; nil means that they could not be read. It changes nothing.
func Drift(ctx context.Context, c *natsq.Conn) *[]string {
	plan, err := c.Plan(ctx)
	if err != nil {
		return nil
	}
	all := []string{}
	for _, p := range plan {
		if p.Field == "num_replicas" {
			continue // the number that is wanted is not known here: see nats-replicas
		}
		if p.Field == "" {
			all = append(all, p.Stream+" is missing")
		} else {
			all = append(all, fmt.Sprintf("%s: %s is %s, and should be %s", p.Stream, p.Field, p.Have, p.Want))
		}
	}
	return &all
}
