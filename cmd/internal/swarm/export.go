package swarm

import (
	"bufio"
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/cmd/internal/models"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

func exportFlags(f *pflag.FlagSet) {
	f.String("variable", "", "state variable of the cell (docs/cells.md), as in potential (required)")
	f.StringP("output", "o", "", "file to write, .npy or .arrow (required)")
	f.String("key-file", "", "file with the keys of encrypted snapshots, as for gpuagent --key-file")
}

const exportHelp = `
A .npy file has the numbers, of shape [rows, elements]; rows are agents or groups in the order of
their ids. An .arrow file has the columns agent and group besides, and the key columns of the
entities of the groups. bfloat16 is written as float32. The file appears when it is complete and all
checksums are right.`

var exportVerb = cli.Verb{
	Use:   "export NAME --variable VARIABLE -o FILE.npy|FILE.arrow --snapshots PLACE",
	Short: "Write a state variable of all agents or groups to a file",
	Long: `Write a state variable of all agents or groups to a file, as the entries of the log before
this command have left them. The GPU agents write a snapshot to their --snapshots for it, which the
command reads there and then removes. With --keep it stays, as one of exoswarm snapshot create does,
and --from reads one that exists. Keys are as at the moment of the command.
` + exportHelp,
	Flags: func(f *pflag.FlagSet) {
		exportFlags(f)
		f.String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of the snapshots, as for gpuagent "+
			"--snapshots (required)")
		f.String("from", "", "name of a snapshot of the swarm to read; empty: a new one")
		f.Bool("keep", false, "keep the new snapshot")
		f.Duration("timeout", time.Minute, "longest wait for the snapshot")
	},
	Before: func(cmd *cobra.Command, _ []string) error {
		if _, _, err := output(cmd); err != nil {
			return err
		}
		if place, _ := cmd.Flags().GetString("snapshots"); place == "" {
			return command.Usage("swarm export: say with --snapshots where the GPU agents keep snapshots")
		}
		return nil
	},
	Do: withSwarm(exportSwarm),
}

var snapshotExportVerb = cli.Verb{
	Use:   "export PLACE NAME --variable VARIABLE -o FILE.npy|FILE.arrow",
	Short: "Write a state variable of a snapshot to one file",
	Long: "Write a state variable of all agents or groups of a snapshot to one file, also of one with several " +
		"shards.\nPLACE is a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX.\n" + exportHelp,
	Flags: exportFlags,
	Do: inBucket(func(cmd *cobra.Command, b bucket.Bucket, names []string) error {
		if _, _, err := output(cmd); err != nil {
			return err
		}
		parts, _, err := snapshot.ReadSet(cmd.Context(), b, names[0])
		if err != nil {
			return err
		}
		return writeExport(cmd, b, parts, nil)
	}),
}

// output returns the file and its format; an error of usage if a flag is missing or wrong.
func output(cmd *cobra.Command) (path string, f fileFormat, err error) {
	variable, _ := cmd.Flags().GetString("variable")
	path, _ = cmd.Flags().GetString("output")
	if variable == "" || path == "" {
		return "", "", command.Usage("%s: name a state variable with --variable, and a file with -o", cmd.CommandPath())
	}
	if f, err = fileFormatOf(path); err != nil {
		return "", "", command.Usage("--output %v", err)
	}
	return path, f, nil
}

// exportSwarm takes a snapshot of a swarm, writes the variable and removes the snapshot.
func exportSwarm(cmd *cobra.Command, conn *natsq.Conn, s *swarmclient.Swarm) (err error) {
	place, _ := cmd.Flags().GetString("snapshots")
	name, _ := cmd.Flags().GetString("from")
	keep, _ := cmd.Flags().GetBool("keep")
	b, err := models.OpenBucket(cmd, place)
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
		if want, err = takeSnapshot(cmd, conn, s, name); err != nil {
			return err
		}
		if !keep {
			defer func() { err = errors.Join(err, removeSnapshot(cmd.Context(), b, s, name)) }()
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

// takeSnapshot has the GPU agents write a snapshot and returns its digest.
func takeSnapshot(cmd *cobra.Command, conn *natsq.Conn, s *swarmclient.Swarm, name string) (digest string, err error) {
	if err := s.CheckSnapshotName(name); err != nil {
		return "", command.Usage("swarm export: %v", err)
	}
	out, err := cli.Operate(cmd, conn, action.Request{Action: "swarm.snapshot", Object: s.ID(), Name: name, Wait: true})
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

// removeSnapshot removes a snapshot, also when the command was interrupted.
func removeSnapshot(ctx context.Context, b bucket.Bucket, s *swarmclient.Swarm, name string) error {
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
func keysOf(ctx context.Context, conn *natsq.Conn, s *swarmclient.Swarm) (keyColumns, error) {
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
func writeExport(cmd *cobra.Command, b bucket.Bucket, parts []*snapshot.Manifest, keys keyColumns) error {
	path, f, err := output(cmd)
	if err != nil {
		return err
	}
	o := variableOptions{Format: f, Keys: keys}
	o.Variable, _ = cmd.Flags().GetString("variable")
	if _, err := parts[0].Find(o.Variable); err != nil {
		return jobs.Errorf(jobs.CodeInvalid, "%v", err)
	}
	var r variableInfo
	err = userfile.WriteFile(path, func(w io.Writer) (err error) {
		if f == npyFormat { // it writes whole pieces, and several of them at a time
			r, err = writeVariable(cmd.Context(), b, parts, o, w)
			return err
		}
		buffered := bufio.NewWriterSize(w, 1<<20)
		if r, err = writeVariable(cmd.Context(), b, parts, o, buffered); err != nil {
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
