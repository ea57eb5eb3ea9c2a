package run

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/exoswarm/exoswarm/cpuagents/feed"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// outputShard is the number of the log of written among the logs of the swarm.
const outputShard = 3

// webhookShard is the number of the log with the position of --webhook.
const webhookShard = 8

// logShard returns the number of a log of the detector. The logs of shards have the first numbers.
func logShard(record swarms.Swarm, of int) int {
	if record.ShardCount() > 1 {
		return swarms.MaxShards + of
	}
	return of
}

func logsOf(record swarms.Swarm) feed.Logs {
	return feed.Logs{
		Marks: logShard(record, 1), Keys: logShard(record, 2), Summaries: logShard(record, 4),
		States: logShard(record, 5), Order: logShard(record, 6), Collected: logShard(record, 7),
	}
}

// entryWritten is the kind of the entries of written.
const entryWritten = "written"

// written says how far the output is.
type written struct {
	Answer uint64 `json:"answer"` // the last entry of the log of answers that is written
	// File and IncidentsFile mark the files then.
	File          fileMark `json:"file,omitzero"`
	IncidentsFile fileMark `json:"incidents_file,omitzero"`
	// Size and IncidentsSize are the sizes in notes of earlier programs, whose marks have none.
	Size          int64 `json:"size,omitempty"`
	IncidentsSize int64 `json:"incidents_size,omitempty"`
}

func (w *written) decisions() fileMark {
	w.File.Bytes = max(w.File.Bytes, w.Size)
	return w.File
}

func (w *written) incidents() fileMark {
	w.IncidentsFile.Bytes = max(w.IncidentsFile.Bytes, w.IncidentsSize)
	return w.IncidentsFile
}

type notes struct {
	log  *statelog.Log
	last written
}

func openNotes(ctx context.Context, l swarms.Log) (*notes, error) {
	n := &notes{log: statelog.New(l, entryWritten)}
	if err := n.log.Open(ctx); err != nil {
		return nil, err
	}
	return n, damaged(n.log.Read(ctx, n.log.Last(), func(data []byte) error { return json.Unmarshal(data, &n.last) }))
}

// damaged returns an error of the logs of the detector, with the cure if they are damaged.
func damaged(err error) error {
	if !errors.Is(err, statelog.ErrDamaged) {
		return err
	}
	return jobs.Errorf(jobs.CodeInternal, "%v: name another --data-dir", err)
}
