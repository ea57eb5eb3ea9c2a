package serveprocess

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/detectors"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// own is a detector without sinks that this process makes and feeds. Its incidents are on the
// dashboard.
type own struct {
	conn *natsq.Conn
	spec *swarm.Spec // its name is the name of the detector and of the rows that are pushed
	log  *slog.Logger

	told time.Time // when the last failed push was logged
}

// batchSeconds is how long rows are collected for a batch. It is most of the latency of a decision.
const batchSeconds = 0.1

// make makes the detector unless it is there. One with another specification, of an earlier version,
// is replaced: it begins anew, and fresh is true as for a new one.
func (o *own) make(ctx context.Context) (fresh bool, err error) {
	name := o.spec.Name
	made, err := detectors.Spec(o.spec, []source.Series{{
		Name: name, URI: "push:" + name, Push: &source.PushSpec{BatchSeconds: batchSeconds},
	}}, nil, nil)
	if err != nil {
		return false, err
	}
	all := detectors.New(o.conn)
	switch was, err := all.Get(ctx, name); {
	case errors.Is(err, jobs.ErrNotFound):
	case err != nil:
		return false, err
	case same(was.Spec, made):
		return false, nil
	default:
		if err := all.Delete(ctx, name); err != nil {
			return false, err
		}
	}
	return true, all.Create(ctx, made)
}

func same(a, b cpuagents.DetectorSpec) bool {
	x, err := json.Marshal(a)
	y, also := json.Marshal(b)
	return err == nil && also == nil && bytes.Equal(x, y)
}

// push sends rows, in NDJSON. Rows that the servers do not take are lost, which the log says once a
// minute: the process goes on.
func (o *own) push(ctx context.Context, rows []byte) {
	_, err := o.conn.Streams.Push(ctx, o.spec.Name, "", [][]byte{rows})
	if err != nil && ctx.Err() == nil && time.Since(o.told) > time.Minute {
		o.told = time.Now()
		o.log.Warn(fmt.Sprintf("rows of detector %s are lost", o.spec.Name), "error", err)
	}
}
