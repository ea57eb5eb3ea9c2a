package natsconn

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/wire"
)

// How long the server keeps things for which no retention was given.
const (
	ResultTTL = 24 * 3600 // seconds, unless the job says otherwise
	resultAge = 7 * 24 * time.Hour
	deadAge   = 14 * 24 * time.Hour
	CancelAge = time.Hour
)

// AnnounceEvery is the period of the announcements of an agent.
const AnnounceEvery = 3 * time.Second

// AgentAge is how long the server keeps the record of an agent, so three announcements may be lost.
const AgentAge = 10 * time.Second

// LogSlack is how much longer than a result the server keeps the log lines of its job, because they
// are written before it.
const LogSlack = 24 * time.Hour

// Bounds of a pool's queue: behind them a submission is refused, which is what bounds the disk
// under a flood.
const (
	maxJobs  = 2_000_000
	maxBytes = 64 << 30
	// maxMemory is maxBytes of jobs in memory. The server reserves it when the stream is made.
	maxMemory = 256 << 20
	// Waiting jobs and their edges. The server keeps about 100 bytes in memory for each job that
	// was looked at.
	MaxWaiting = 500_000
	maxJoblogs = 4 << 30 // bytes of what handlers have logged
)

// Bounds of what was pushed and is not read yet. One name fills a quarter of the messages at most;
// what it fills of the bytes is bounded by the endpoint's frames alone.
const (
	maxPushed     = 16 << 30 // bytes
	maxPushedName = 32 << 10 // messages
	maxPushedAll  = 4 * maxPushedName
	pushedAge     = 14 * 24 * time.Hour
	// pushMemory is how long the server knows the key of a push. It takes about 100 bytes of its
	// memory for each: 60 MB at 1,000 pushes a second.
	pushMemory = 10 * time.Minute
)

// streams lists the streams of the protocol. The streams of logs are made with each swarm.
func (c *Conn) streams() []jetstream.StreamConfig {
	all := []jetstream.StreamConfig{{
		Name:      wire.ResultStream,
		Subjects:  []string{"exo.res.*"},
		Retention: jetstream.LimitsPolicy,
		MaxAge:    resultAge,
		// One result per job, the first: a second write is refused.
		Discard:              jetstream.DiscardNew,
		MaxMsgsPerSubject:    1,
		DiscardNewPerSubject: true,
		AllowMsgTTL:          true,
		AllowAtomicPublish:   true,
		AllowDirect:          true, // for noneAtOnce
		// Who waits for a result hears of it when it is stored.
		RePublish: &jetstream.RePublish{
			Source: "exo.res.*", Destination: "exo.done.{{wildcard(1)}}",
			HeadersOnly: true,
		},
	}, {
		Name:              wire.DeadStream,
		Subjects:          []string{"exo.dead.*.*.*.*"},
		Retention:         jetstream.LimitsPolicy,
		MaxAge:            deadAge,
		Discard:           jetstream.DiscardOld,
		MaxMsgs:           maxJobs,
		MaxMsgsPerSubject: 1,
	}, {
		Name:              wire.SchedStream,
		Subjects:          []string{"exo.sched.>", "exo.due.>"},
		Retention:         jetstream.WorkQueuePolicy,
		Discard:           jetstream.DiscardOld,
		AllowMsgSchedules: true,
		AllowMsgTTL:       true,
	}, {
		Name:      wire.WaitStream,
		Subjects:  []string{"exo.wait.*.*.*.*.*", "exo.edge.*.*", "exo.fired.*.*"},
		Retention: jetstream.LimitsPolicy,
		// A job waits once, and a full stream refuses: what waits must not be forgotten.
		Discard:              jetstream.DiscardNew,
		MaxMsgs:              MaxWaiting,
		MaxMsgSize:           jobs.MaxMessage,
		MaxMsgsPerSubject:    1,
		DiscardNewPerSubject: true,
		AllowAtomicPublish:   true,
	}}
	all = append(all, jetstream.StreamConfig{
		Name:      wire.JobLogStream,
		Subjects:  []string{"exo.joblog.*"},
		Retention: jetstream.LimitsPolicy,
		MaxAge:    resultAge + LogSlack,
		// What is too much pushes out the oldest: a log holds nothing up.
		Discard:            jetstream.DiscardOld,
		MaxBytes:           maxJoblogs,
		MaxMsgSize:         jobs.MaxLogMessage,
		MaxMsgsPerSubject:  2 * jobs.MaxLogLines,
		AllowMsgTTL:        true,
		AllowAtomicPublish: true,
	}, pushed(), audited(), emitted())
	for _, p := range wire.Pools() {
		all = append(all, queued(p, ""))
	}
	for i := range all {
		all[i].Replicas = c.Replicas
		all[i].Storage = jetstream.FileStorage
	}
	return all
}

// queued is the stream of the queued jobs of a pool and level. The caller sets the replicas and the
// storage of the default level.
func queued(p jobs.Pool, l jobs.Level) jetstream.StreamConfig {
	s := jetstream.StreamConfig{
		Name:      wire.Source{Pool: p, Level: l}.Stream(),
		Subjects:  []string{wire.AnyJob(p, l, "*", "*")},
		Retention: jetstream.WorkQueuePolicy,
		// A job id is in the queue once; a full queue refuses instead of forgetting.
		Discard:              jetstream.DiscardNew,
		MaxMsgs:              maxJobs,
		MaxBytes:             maxBytes,
		MaxMsgSize:           jobs.MaxMessage,
		MaxMsgsPerSubject:    1,
		DiscardNewPerSubject: true,
		AllowAtomicPublish:   true,
		// Idle workers hear of what was stored by these copies without a body, and of no id.
		RePublish: &jetstream.RePublish{
			Source:      wire.AnyJob(p, l, "*", "*"),
			Destination: "exo.wake." + string(p) + ".{{wildcard(1)}}.{{wildcard(2)}}.{{wildcard(3)}}",
			HeadersOnly: true,
		},
		Replicas: l.Replicas(),
	}
	if l != "" {
		s.RePublish.Destination += "." + string(l)
	}
	if l == jobs.LevelMemory {
		s.Storage, s.MaxBytes = jetstream.MemoryStorage, maxMemory
	}
	return s
}

func (c *Conn) buckets() []jetstream.KeyValueConfig {
	all := []jetstream.KeyValueConfig{
		{Bucket: wire.LeaseBucket},
		{Bucket: wire.SwarmBucket},
		{Bucket: wire.ControlBucket},
		{Bucket: wire.CronBucket},
		{Bucket: wire.TenantBucket},
		{Bucket: wire.CancelBucket, TTL: CancelAge},
		{Bucket: wire.AgentBucket, TTL: AgentAge},
	}
	for i := range all {
		all[i].Replicas = c.Replicas
	}
	return all
}

// objectsOf has no age: an object stays as long as its job (objects.Store). Apply removes the age
// of an earlier version's store.
func objectsOf(c *Conn) jetstream.ObjectStoreConfig {
	return jetstream.ObjectStoreConfig{Bucket: wire.ObjectBucket, Replicas: c.Replicas}
}

// provision creates what does not exist. What exists stays as it is: several versions of a program
// may share a server, and the last to connect must not undo what an operator has set.
func (c *Conn) provision(ctx context.Context) error {
	for _, s := range c.streams() {
		err := c.missing(ctx, s.Name, jetstream.ErrStreamNotFound,
			func(ctx context.Context) error { _, err := c.JS.Stream(ctx, s.Name); return err },
			func(ctx context.Context) error { _, err := c.JS.CreateStream(ctx, s); return err })
		if byOperators(s.Name) && errors.Is(err, jobs.ErrDenied) {
			continue // the first operator makes it
		}
		if err != nil {
			return fmt.Errorf("stream %s: %w", s.Name, err)
		}
	}
	for _, kv := range c.buckets() {
		err := c.missing(ctx, kv.Bucket, jetstream.ErrBucketNotFound,
			func(ctx context.Context) error { _, err := c.JS.KeyValue(ctx, kv.Bucket); return err },
			func(ctx context.Context) error { _, err := c.JS.CreateKeyValue(ctx, kv); return err })
		if err != nil {
			return fmt.Errorf("bucket %s: %w", kv.Bucket, err)
		}
	}
	err := c.missing(ctx, wire.ObjectBucket, jetstream.ErrBucketNotFound,
		func(ctx context.Context) error { _, err := c.JS.ObjectStore(ctx, wire.ObjectBucket); return err },
		func(ctx context.Context) error { _, err := c.JS.CreateObjectStore(ctx, objectsOf(c)); return err })
	if err != nil {
		return fmt.Errorf("object store %s: %w", wire.ObjectBucket, err)
	}
	return nil
}

// byOperators reports whether a cluster works without a stream until an operator connects: only
// operators write to the audit, and only rules of swarms emit decisions.
func byOperators(name string) bool { return name == wire.AuditStream || name == wire.EmissionStream }

// missing makes something unless it exists. Two processes may make it at the same time: it must
// only exist afterwards.
func (c *Conn) missing(ctx context.Context, name string, notFound error, look,
	create func(context.Context) error,
) error {
	err := c.Retry(ctx, "look for "+name, look)
	if !errors.Is(err, notFound) {
		return err
	}
	if err = c.Retry(ctx, "create "+name, create); err == nil {
		return nil
	}
	if ctx.Err() == nil && look(ctx) == nil {
		return nil
	}
	// The refusal of the server names a right, and another login is not what is missing.
	if errors.Is(err, jobs.ErrDenied) && !byOperators(name) {
		return ErrNoStreams
	}
	return fmt.Errorf("create %s: %w", name, err)
}

// Bounds of the audit. 256 MiB are about 300,000 actions.
const (
	auditAge   = 90 * 24 * time.Hour
	auditBytes = 256 << 20
	auditMsg   = 32 << 10
)

// audited returns the stream of what operators did. The server refuses to delete or purge its
// messages for every login: they end by age and size alone.
func audited() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:       wire.AuditStream,
		Subjects:   []string{wire.AuditSubject},
		Retention:  jetstream.LimitsPolicy,
		Discard:    jetstream.DiscardOld,
		MaxAge:     auditAge,
		MaxBytes:   auditBytes,
		MaxMsgSize: auditMsg,
		DenyDelete: true,
		DenyPurge:  true,
	}
}

// Bounds of what swarms emit. The last of a name stays, which tells what was emitted, until it is
// so old that no process emits it again.
const (
	emittedName  = 1 << 10 // messages
	emittedBytes = 1 << 30
	emittedAge   = 14 * 24 * time.Hour
)

func emitted() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:              wire.EmissionStream,
		Subjects:          []string{wire.EmissionSubject("*", "*")},
		Retention:         jetstream.LimitsPolicy,
		Discard:           jetstream.DiscardOld,
		MaxAge:            emittedAge,
		MaxBytes:          emittedBytes,
		MaxMsgSize:        jobs.MaxMessage,
		MaxMsgsPerSubject: emittedName,
	}
}

// pushed is the stream of pushes. It is a work queue: what a job has in its journal takes no room,
// and a full stream refuses.
func pushed() jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:                 wire.PushStream,
		Subjects:             []string{"exo.push.*"},
		Retention:            jetstream.WorkQueuePolicy,
		Discard:              jetstream.DiscardNew,
		MaxAge:               pushedAge,
		MaxBytes:             maxPushed,
		MaxMsgs:              maxPushedAll,
		MaxMsgSize:           jobs.MaxMessage,
		MaxMsgsPerSubject:    maxPushedName,
		DiscardNewPerSubject: true,
		AllowAtomicPublish:   true,
		Duplicates:           pushMemory,
		Compression:          jetstream.S2Compression, // rows of text: a third of their size and less
	}
}
