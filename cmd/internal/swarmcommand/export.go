package swarmcommand

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/connect"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/internal/app/export"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// ExportHooks are the parts of the program that the command of a swarm shares with others.
type ExportHooks struct {
	// WithSwarm makes what a command runs of a function that gets the connection and the swarm of
	// its first argument.
	WithSwarm func(fn func(*cobra.Command, *natsq.Conn, *swarmclient.Swarm) error) func(*cobra.Command, []string) error
	// Open opens a place of snapshots with the keys of --key-file.
	Open func(cmd *cobra.Command, place string) (bucket.Bucket, error)
	// Operate does an action, which the audit has.
	Operate func(cmd *cobra.Command, c *natsq.Conn, r action.Request) (action.Outcome, error)
}

// flags adds the flags of both commands.
func flags(c *cobra.Command) *cobra.Command {
	c.Flags().String("variable", "", "state variable of the cell (docs/cells.md), as in potential (required)")
	c.Flags().StringP("output", "o", "", "file to write, .npy or .arrow (required)")
	return c
}

const format = `
A .npy file has the numbers, of shape [rows, elements]; rows are agents or groups in the order of
their ids. An .arrow file has the columns agent and group besides, and the key columns of the
entities of the groups. bfloat16 is written as float32. The file appears when it is complete and all
checksums are right.`

// NewExport returns exoswarm swarm export.
func NewExport(h ExportHooks) *cobra.Command {
	c := flags(&cobra.Command{
		Use:   "export NAME --variable VARIABLE -o FILE.npy|FILE.arrow --snapshots PLACE",
		Short: "Write a state variable of all agents or groups to a file", Args: cobra.ExactArgs(1),
		Long: `Write a state variable of all agents or groups to a file, as the entries of the log before
this command have left them. The GPU agents write a snapshot to their --snapshots for it, which the
command reads there and then removes. With --keep it stays, as one of exoswarm swarm snapshot does,
and --from reads one that exists. Keys are those of the moment of the command.
` + format,
	})
	f := c.Flags()
	f.String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of the snapshots, as for gpuagent "+
		"--snapshots (required)")
	f.String("key-file", "", "file with the keys of encrypted snapshots, as for gpuagent --key-file")
	f.String("from", "", "name of a snapshot of the swarm to read; empty: a new one")
	f.Bool("keep", false, "keep the new snapshot")
	f.Duration("timeout", time.Minute, "longest wait for the snapshot")
	connect.Flags(f)
	onSwarm := h.WithSwarm(func(cmd *cobra.Command, conn *natsq.Conn, s *swarmclient.Swarm) error {
		return exportSwarm(h, cmd, conn, s)
	})
	c.RunE = func(cmd *cobra.Command, args []string) error {
		// What can be wrong with flags is found before the connection is made.
		if _, _, err := output(cmd); err != nil {
			return err
		}
		if place, _ := cmd.Flags().GetString("snapshots"); place == "" {
			return command.Usage("swarm export: say with --snapshots where the GPU agents keep snapshots")
		}
		return onSwarm(cmd, args)
	}
	return c
}

// NewSnapshotExport returns exoswarm snapshot export. inBucket makes what it runs of a function that gets the
// place of its first argument and the other arguments.
func NewSnapshotExport(
	inBucket func(func(*cobra.Command, bucket.Bucket, []string) error) func(*cobra.Command, []string) error,
) *cobra.Command {
	c := flags(&cobra.Command{
		Use:   "export PLACE NAME --variable VARIABLE -o FILE.npy|FILE.arrow",
		Short: "Write a state variable of a snapshot to one file", Args: cobra.ExactArgs(2),
		RunE: inBucket(func(cmd *cobra.Command, b bucket.Bucket, names []string) error {
			if _, _, err := output(cmd); err != nil {
				return err
			}
			parts, _, err := snapshot.ReadSet(cmd.Context(), b, names[0])
			if err != nil {
				return err
			}
			return writeExport(cmd, b, parts, nil)
		}),
	})
	c.Long = "Write a state variable of all agents or groups of a snapshot to one file, also of one with several " +
		"shards.\nPLACE is a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX.\n" + format
	c.Flags().String("key-file", "", "file with the keys of encrypted snapshots, as for gpuagent --key-file")
	return c
}

// output returns the file and its format; an error of usage if a flag is missing or wrong.
func output(cmd *cobra.Command) (path string, f export.Format, err error) {
	variable, _ := cmd.Flags().GetString("variable")
	path, _ = cmd.Flags().GetString("output")
	if variable == "" || path == "" {
		return "", "", command.Usage("%s: name a state variable with --variable, and a file with -o", cmd.CommandPath())
	}
	if f, err = export.FormatOf(path); err != nil {
		return "", "", command.Usage("--output %v", err)
	}
	return path, f, nil
}

// exportSwarm takes a snapshot of a swarm, writes the variable and removes the snapshot.
func exportSwarm(h ExportHooks, cmd *cobra.Command, conn *natsq.Conn, s *swarmclient.Swarm) (err error) {
	place, _ := cmd.Flags().GetString("snapshots")
	name, _ := cmd.Flags().GetString("from")
	keep, _ := cmd.Flags().GetBool("keep")
	b, err := h.Open(cmd, place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	keys, err := keysOf(cmd.Context(), conn, s)
	if err != nil {
		return err
	}
	want := ""
	if name == "" {
		name = s.ID()[:min(len(s.ID()), 32)] + "-export-" + swarms.NewNonce()[:8]
		if want, err = take(h, cmd, conn, s, name); err != nil {
			return err
		}
		if !keep {
			defer func() { err = errors.Join(err, remove(cmd.Context(), b, s, name)) }()
		}
	}
	parts, digest, err := snapshot.ReadSet(cmd.Context(), b, name)
	switch {
	case errors.Is(err, snapshot.ErrNotFound) && want != "":
		return command.Usage("swarm export: the GPU agents have written snapshot %s, but not to --snapshots %s: name "+
			"the place that they have", name, place)
	case err != nil:
		return err
	case want != "" && digest != want || !parts[0].Swarm.Of(s.Record()):
		return command.Usage("swarm export: snapshot %s in %s is not of swarm %s: name the place that its GPU agents "+
			"have", name, place, s.ID())
	}
	return writeExport(cmd, b, parts, keys)
}

// take has the GPU agents write a snapshot and returns its digest.
func take(
	h ExportHooks, cmd *cobra.Command, conn *natsq.Conn, s *swarmclient.Swarm, name string,
) (digest string, err error) {
	if err := s.CheckSnapshotName(name); err != nil {
		return "", command.Usage("swarm export: %v", err)
	}
	out, err := h.Operate(cmd, conn, action.Request{Action: "swarm.snapshot", Object: s.ID(), Name: name, Wait: true})
	if err != nil {
		return "", err
	}
	var digests []string
	for _, part := range out.Snapshots {
		digests = append(digests, part.SHA256)
	}
	if len(digests) == 1 {
		return digests[0], nil
	}
	return snapshot.SetDigest(digests), nil
}

// remove removes a snapshot, also when the command was interrupted.
func remove(ctx context.Context, b bucket.Bucket, s *swarmclient.Swarm, name string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	n := s.Record().ShardCount()
	if n == 1 {
		return b.Remove(ctx, name)
	}
	var errs []error
	for k := range n {
		errs = append(errs, b.Remove(ctx, snapshot.PartName(name, k)))
	}
	return errors.Join(errs...)
}

// keysOf returns the keys of the entities of a swarm; nil if it has none.
func keysOf(ctx context.Context, conn *natsq.Conn, s *swarmclient.Swarm) (export.Keys, error) {
	d, err := entities.Open(conn.Swarms, s.Record(), statelog.KeyShard)
	if errors.Is(err, entities.ErrNoKey) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return d, d.Update(ctx)
}

// writeExport writes the file, and a line about it to stderr.
func writeExport(cmd *cobra.Command, b bucket.Bucket, parts []*snapshot.Manifest, keys export.Keys) error {
	path, f, err := output(cmd)
	if err != nil {
		return err
	}
	o := export.Options{Format: f, Keys: keys}
	o.Variable, _ = cmd.Flags().GetString("variable")
	if _, err := parts[0].Find(o.Variable); err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "%v", err)
	}
	var r export.Result
	err = userfile.WriteFile(path, func(w io.Writer) (err error) {
		if f == export.Npy { // it writes whole pieces, and several of them at a time
			r, err = export.Write(cmd.Context(), b, parts, o, w)
			return err
		}
		buffered := bufio.NewWriterSize(w, 1<<20)
		if r, err = export.Write(cmd.Context(), b, parts, o, buffered); err != nil {
			return err
		}
		return buffered.Flush()
	})
	if cmd.Context().Err() != nil {
		return errors.Join(err, command.ErrInterrupted)
	}
	if err != nil {
		return err
	}
	cmd.PrintErrf("%s: %s, %d %s of each of %d %ss, after entry %d of swarm %s\n", path, r.Variable, r.Width, r.DType,
		r.Rows, r.Per, parts[0].Entry, parts[0].Swarm.ID)
	return nil
}
