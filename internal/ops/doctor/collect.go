package doctor

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/ops/cluster"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/servers"
)

// collectPatience bounds Collect.
const collectPatience = 4 * time.Second

// Collect asks a cluster for the facts. What cannot be had is missing in them.
func Collect(ctx context.Context, c *natsq.Conn) *Facts {
	ctx, cancel := context.WithTimeout(ctx, collectPatience)
	defer cancel()
	w := cluster.Start(cluster.Options{Conn: c, Every: time.Second})
	defer w.Close()
	defer w.Watched()()
	s, err := w.Wait(ctx, 0)
	f := &Facts{At: time.Now().UTC()}
	if err == nil && !strings.Contains(s.Error, servers.ErrNoLeader.Error()) {
		f.Drift = Drift(ctx, c)
	}
	switch {
	case err != nil:
		f.Error = err.Error()
		return f
	case s.Error != "":
		f.Error = s.Error
		return f
	}
	f.State = s
	return f
}

// Drift lists the settings of streams that differ from what this version wants; nil: they could not
// be read.
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
