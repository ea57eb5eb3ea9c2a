package swarm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/cmd/internal/models"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/ops/action"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Snapshots returns exoswarm snapshot. All its commands but create read a place of snapshots, and
// need no cluster. A place may be read while agents write to it: an incomplete snapshot has no
// manifest.
func Snapshots() *cobra.Command {
	verb := func(use, short string, do cli.Action) cli.Verb {
		return cli.Verb{
			Use: use, Short: short, Lists: true, Flags: models.KeyFileFlag, Do: do,
			Long: short + ".\n\nPLACE is a folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX, as the GPU agents " +
				"have it (gpuagent --snapshots).",
		}
	}
	// list, show and verify read manifests; only verify reads the files of the state.
	return cli.Noun{
		Use: "snapshot", Short: "Save the state of swarms; list, show, verify and export what was saved",
		Verbs: []cli.Verb{
			snapshotVerb("create NAME"),
			verb("list PLACE", "List the snapshots in a folder or bucket", inBucket(snapshotList)),
			verb("show PLACE NAME", "Show the variables of a snapshot, their types and files", inBucket(snapshotShow)),
			verb("verify PLACE [NAME...]", "Read every file and every checksum of the named snapshots, or of all",
				inBucket(snapshotVerify)),
			snapshotExportVerb,
		},
	}.Command()
}

// inBucket returns the action of a function that needs the place of snapshots that the first
// argument names. names are the other arguments.
func inBucket(fn func(cmd *cobra.Command, b bucket.Bucket, names []string) error) cli.Action {
	return cli.Here(func(cmd *cobra.Command, args []string) (err error) {
		if !strings.Contains(args[0], "://") { // a command that reads makes no folder
			if _, err := os.Stat(args[0]); err != nil {
				return command.Usage("PLACE: %v: name the folder of the snapshots", err)
			}
		}
		b, err := models.OpenBucket(cmd, args[0])
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, b.Close()) }()
		return fn(cmd, b, args[1:])
	})
}

// snapshotNames returns the sorted names of the folders of a place that may be snapshots. Some may
// have no manifest yet. The caller reads each manifest and leaves out names without one.
func snapshotNames(ctx context.Context, b bucket.Bucket) ([]string, error) {
	all, err := b.Folders(ctx)
	if err != nil {
		return nil, err
	}
	all = slices.DeleteFunc(all, func(name string) bool { return jobs.CheckID("snapshot", name) != nil })
	slices.Sort(all)
	return all, nil
}

// snapshotItem is an item of snapshot list.
type snapshotItem struct {
	Name   string          `json:"name"`
	Swarm  snapshot.Origin `json:"swarm,omitzero"`
	Shard  *snapshot.Shard `json:"shard,omitempty"`
	Entry  uint64          `json:"entry,omitempty"`
	Cell   string          `json:"cell,omitempty"`
	Agents int64           `json:"agents,omitempty"`
	Groups int             `json:"groups,omitempty"`
	Bytes  int64           `json:"bytes,omitempty"`
	SHA256 string          `json:"sha256,omitempty"`
	Error  string          `json:"error,omitempty"`
}

var snapshotTable = cli.Table[snapshotItem]{
	Columns: []string{
		"SNAPSHOT", "SWARM", "SHARD", "ENTRY", "CELL", "AGENTS", "GROUPS", "BYTES", "DIGEST", "ERROR",
	},
	Row: func(s snapshotItem) []any {
		if s.Error != "" {
			return []any{s.Name, "", "", "", "", "", "", "", "", s.Error}
		}
		of := ""
		if s.Shard != nil {
			of = fmt.Sprintf("%d of %d", s.Shard.Number, s.Shard.Of)
		}
		return []any{
			s.Name, s.Swarm.ID, of, s.Entry, s.Cell, s.Agents, s.Groups, command.Size(s.Bytes), s.SHA256, "",
		}
	},
}

// snapshotList prints the complete snapshots of a place by name, one item for each; every shard of
// a swarm has its own part. A manifest that cannot be read is an item with an error. Snapshots that
// are being written are left out.
//
// Fields: name, swarm with its id and time of creation, shard of several, entry (the last one in
// the state), cell, agents, groups, bytes, sha256 of the manifest, and error.
func snapshotList(cmd *cobra.Command, b bucket.Bucket, _ []string) error {
	names, err := snapshotNames(cmd.Context(), b)
	if err != nil {
		return err
	}
	return snapshotTable.Stream(cmd, 0, func(fn func(snapshotItem) bool) error {
		for _, name := range names {
			item := snapshotItem{Name: name}
			m, digest, err := snapshot.ReadManifest(cmd.Context(), b, name)
			switch {
			// The manifest is written last, so a folder without one is being written, or was given up.
			case errors.Is(err, snapshot.ErrNotFound):
				continue
			case err != nil:
				item.Error = err.Error()
			default:
				item = snapshotItem{
					name, m.Swarm, m.Shard, m.Entry, m.Cell, m.Agents, m.Groups, m.Bytes(), digest, "",
				}
			}
			if !fn(item) {
				break
			}
		}
		return nil
	})
}

// variableTable has the variables of a snapshot.
var variableTable = cli.Table[snapshot.Variable]{
	Columns: []string{"VARIABLE", "TYPE", "PER", "SHAPE", "FILES", "BYTES"},
	Row: func(v snapshot.Variable) []any {
		// The rows of a variable are spread over its files; the table shows the whole.
		rows, bytes := int64(0), int64(0)
		for _, f := range v.Files {
			rows, bytes = rows+f.Rows, bytes+f.Bytes
		}
		return []any{
			v.Name, v.DType, v.Per, fmt.Sprintf("[%d, %d]", rows, v.Width), len(v.Files), command.Size(bytes),
		}
	},
}

// snapshotShow prints one item for each variable of a snapshot, and a summary to stderr.
//
// Fields of a variable: name, dtype, per (agent, group or swarm), width and files, each with its
// rows and bytes.
func snapshotShow(cmd *cobra.Command, b bucket.Bucket, names []string) error {
	m, digest, err := snapshot.ReadManifest(cmd.Context(), b, names[0])
	if err != nil {
		return err
	}
	if err := variableTable.Print(cmd, m.Variables...); err != nil {
		return err
	}
	cmd.PrintErrf("%s: entry %d of swarm %s, cell %s, seed %d, %d agents in %d groups, digest %s\n", m.Name, m.Entry,
		m.Swarm.ID, m.Cell, m.Seed, m.Agents, m.Groups, digest)
	return nil
}

// snapshotVerify reads every file of the named snapshots, or of all of them, and compares the
// checksums. It prints an item for each snapshot, and fails in the end when one is damaged or
// incomplete. It transfers all bytes of the snapshots, and changes none.
//
// Fields: name, bytes of all parts, and error. Progress is a line on a terminal.
func snapshotVerify(cmd *cobra.Command, b bucket.Bucket, names []string) error {
	// Without names all complete snapshots are verified; a named one without a manifest is an
	// error.
	if len(names) == 0 {
		all, err := snapshotNames(cmd.Context(), b)
		if err != nil {
			return err
		}
		for _, name := range all {
			if _, _, err := snapshot.ReadManifest(cmd.Context(), b, name); !errors.Is(err, snapshot.ErrNotFound) {
				names = append(names, name)
			}
		}
	}
	p, err := command.NewPrinter(cmd.OutOrStdout(), cmd.Flags(), "SNAPSHOT", "BYTES", "ERROR")
	if err != nil {
		return err
	}
	var bad []error
	for _, name := range names {
		item := struct {
			Name  string `json:"name"`
			Bytes int64  `json:"bytes"`
			Error string `json:"error,omitempty"`
		}{Name: name}
		parts, _, err := snapshot.ReadSet(cmd.Context(), b, name)
		for _, m := range parts {
			item.Bytes += m.Bytes()
		}
		for i := 0; i < len(parts) && err == nil; i++ {
			err = snapshot.Verify(cmd.Context(), b, parts[i], bytesProgress(cmd.ErrOrStderr(), parts[i].Bytes()))
		}
		// After an interrupt no item is printed for the snapshot that was read in part.
		if cmd.Context().Err() != nil {
			return errors.Join(err, command.ErrInterrupted)
		}
		if err != nil {
			item.Error = err.Error()
			bad = append(bad, err)
		}
		if err := p.Item(item, name, command.Size(item.Bytes), item.Error); err != nil {
			return err
		}
	}
	if err := p.End(); err != nil {
		return err
	}
	return errors.Join(bad...)
}

// bytesProgress returns a function that shows the number of bytes done: one line on a terminal,
// rewritten twice a second. The function may be called from several goroutines. It is nil when w is
// no terminal. The caller passes sums that only grow. A sum that is the total ends the line.
func bytesProgress(w io.Writer, total int64) func(done int64) {
	f, ok := w.(*os.File)
	// A log or a pipe gets no progress.
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	var mu sync.Mutex
	last := time.Now()
	return func(done int64) {
		mu.Lock()
		defer mu.Unlock()
		if now := time.Now(); now.Sub(last) > time.Second/2 || done == total {
			last = now
			fmt.Fprintf(w, "\r\033[K%s of %s", command.Size(done), command.Size(total))
			if done == total {
				fmt.Fprintln(w)
			}
		}
	}
}

// snapshotOf returns the reference to the snapshot with which a new swarm begins, and the
// specification of the swarm of the snapshot. The specification is nil without --snapshots: then
// --digest must identify the snapshot, and its files are not read. Only manifests are read; the
// files are read by the GPU agents.
func snapshotOf(cmd *cobra.Command, name string) (from *swarms.SnapshotRef, spec *swarm.Spec, err error) {
	place, _ := cmd.Flags().GetString("snapshots")
	digest, _ := cmd.Flags().GetString("digest")
	from = &swarms.SnapshotRef{Name: name, SHA256: digest}
	if place == "" {
		if digest == "" {
			return nil, nil, command.Usage("swarm create: --from %s: give --snapshots, or --digest of its manifest",
				name)
		}
		return from, nil, from.Validate()
	}
	b, err := models.OpenBucket(cmd, place)
	if err != nil {
		return nil, nil, err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	// A snapshot of several shards is a set, whose digest covers all parts.
	parts, found, err := snapshot.ReadSet(cmd.Context(), b, name)
	if err != nil {
		return nil, nil, err
	}
	if digest != "" && digest != found {
		return nil, nil, command.Usage("swarm create: snapshot %s has another digest than --digest: %s", name, found)
	}
	from.SHA256 = found
	// The swarm of a run has no number of groups in its specification; the snapshot knows it.
	if spec, err = swarm.FromJSON(parts[0].Spec); err == nil && spec.OfRun() {
		spec.GroupCount = parts[0].Groups
	}
	if adopted := parts[0].Model; err == nil && adopted != nil {
		spec.Cell.Model, spec.Cell.ModelSHA256 = adopted.Name, adopted.SHA256
	}
	return from, spec, err
}

// swarmSnapshot takes a snapshot of all shards. It prints one item with the digest that exoswarm
// swarm create --digest takes or, with --wait=false, with the entries that ask for it.
//
// Fields: name, entry or, of several shards, entries, agents, groups, bytes and sha256. The digest
// of several shards is the digest of the digests of their parts.
func swarmSnapshot(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm) error {
	name, _ := cmd.Flags().GetString("name")
	// The default name sorts by time and tells the swarm.
	if name == "" {
		name = action.SnapshotName(s.ID(), time.Now())
	}
	if err := s.CheckSnapshotName(name); err != nil {
		return command.Usage("--name: %v", err)
	}
	columns := []string{"SNAPSHOT", "ENTRY", "AGENTS", "GROUPS", "BYTES", "DIGEST"}
	// Without --wait the entries are in the logs; the agents write the snapshot when they reach
	// them.
	wait, _ := cmd.Flags().GetBool("wait")
	out, err := cli.Operate(cmd, c, action.Request{Action: "swarm.snapshot", Object: s.ID(), Name: name, Wait: wait})
	if err != nil {
		return err
	}
	if entries := out.Entries; !wait {
		item := map[string]any{"name": name, "entry": entries[0]}
		// A swarm of one shard has one number, and no list.
		if len(entries) > 1 {
			item = map[string]any{"name": name, "entries": entries}
		}
		return cli.PrintOne(cmd, columns, item, name, entryList(entries))
	}
	// One item for the whole swarm, with the fields of one shard where they can be added up.
	all := out.Snapshots
	type whole struct {
		swarms.Snapshotted
		Entry   uint64   `json:"entry,omitempty"`
		Entries []uint64 `json:"entries,omitempty"` // by shard, of several
	}
	done := whole{Snapshotted: all[0], Entry: all[0].Entry}
	entries := []uint64{done.Entry}
	if len(all) > 1 {
		done = whole{Snapshotted: swarms.Snapshotted{Version: jobs.Version, Name: name}}
		entries = nil
		var digests []string
		for _, part := range all {
			done.Agents, done.Groups, done.Bytes = done.Agents+part.Agents, done.Groups+part.Groups,
				done.Bytes+part.Bytes
			entries, digests = append(entries, part.Entry), append(digests, part.SHA256)
		}
		done.Entries, done.SHA256 = entries, snapshot.SetDigest(digests)
	}
	return cli.PrintOne(cmd, columns, done, done.Name, entryList(entries), done.Agents, done.Groups,
		command.Size(done.Bytes), done.SHA256)
}

// entryList returns the numbers of entries with commas between.
func entryList(all []uint64) string {
	return strings.Trim(strings.ReplaceAll(fmt.Sprint(all), " ", ","), "[]")
}

// swarmTrim trims the logs of a swarm to a snapshot, which it reads and checks whole first. The
// entries before it are lost; the snapshot must stay.
//
// A second trim to the same snapshot changes nothing, and one to an earlier snapshot is an error
// of usage.
func swarmTrim(cmd *cobra.Command, s *swarmclient.Swarm) (err error) {
	name, _ := cmd.Flags().GetString("to")
	place, _ := cmd.Flags().GetString("snapshots")
	// Both are required: a trim cannot be undone, so the snapshot is named and read first.
	if name == "" || place == "" {
		return command.Usage("swarm trim: name a snapshot with --to, and where it is with --snapshots")
	}
	b, err := models.OpenBucket(cmd, place)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Close()) }()
	// Trim reads the snapshot whole before it removes the first entry.
	bases, err := s.Trim(cmd.Context(), b, name, func(total int64) func(int64) {
		return bytesProgress(cmd.ErrOrStderr(), total)
	})
	if err != nil {
		return err
	}
	// Each shard has its own log and position.
	if len(bases) == 1 {
		cmd.PrintErrf("swarm %s: the log begins with entry %d, behind snapshot %s\n", s.ID(), bases[0].Entry, name)
		return nil
	}
	var entries []uint64
	for _, base := range bases {
		entries = append(entries, base.Entry)
	}
	cmd.PrintErrf("swarm %s: the logs of its shards begin with entries %s, behind snapshot %s\n", s.ID(),
		entryList(entries), name)
	return nil
}
