package cluster

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

// Tiers returns exoswarm tier. Its commands open the page store of one shard, which no agent
// may have open. The folder of a shard is KEY.SHARD in the folder of each tier.
func Tiers() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "tier",
		Short: "Check and compact the page stores of a machine while no agent has them open",
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	verify := tierSubcommand("verify DIR...", "Read every page and every checksum of a store, and list damaged "+
		"pages", tierVerify)
	// The store is locked meanwhile, so no agent can open the shard.
	verify.Flags().Int64("rate", 0, "most bytes to read per second; 0: no limit")
	stats := tierSubcommand("stats DIR...", "Show the pages and bytes of a store, tier by tier", tierStats)
	compact := tierSubcommand("compact DIR...", "Give the space of deleted and replaced pages back to the disks",
		tierCompact)
	cmd.AddCommand(verify, stats, compact)
	return cmd
}

// tierSubcommand returns a command on the directories of one store, the fastest first, which
// withStore opens for run.
func tierSubcommand(use, short string, run func(*cobra.Command, *pagestore.Store) error) *cobra.Command {
	cmd := &cobra.Command{
		Use: use, Short: short,
		Long: short + ".\n\nDIR are the directories of the store's tiers, the fastest first.",
		RunE: func(cmd *cobra.Command, dirs []string) error { return withStore(cmd, dirs, run) },
	}
	command.OutputFlag(cmd.Flags(), "table", "json")
	cmd.Flags().String("key-file", "", "file with the key of an encrypted store: 16, 24 or 32 bytes, or in hexadecimal")
	return cmd
}

// withStore opens the store of some directories, calls run and closes the store. Directories of
// different stores and a wrong key are errors of usage; a store that an agent has open is not.
func withStore(cmd *cobra.Command, dirs []string, run func(*cobra.Command, *pagestore.Store) error) (err error) {
	// The directories tell the size of pages, the codecs and the number of tiers; the user names
	// only the key.
	opts, err := pagestore.Discover(nil, dirs)
	switch {
	case errors.Is(err, tiers.ErrInvalid):
		return command.Usage("%v: name the directories of the tiers of one store", err)
	case err != nil:
		return err
	}
	if file, _ := cmd.Flags().GetString("key-file"); file != "" {
		b, err := os.ReadFile(filepath.Clean(file))
		if err != nil {
			return command.Usage("--key-file: %v", err)
		}
		if opts.Key, err = pagestore.ParseKey(b); err != nil {
			return command.Usage("--key-file %s: %v", file, err)
		}
	}
	// Open repairs what a crash has left, as an agent would. It takes the lock of the store.
	s, err := pagestore.Open(opts)
	switch {
	case errors.Is(err, tiers.ErrLocked):
		return fmt.Errorf("%w: stop the agent that uses it first", err)
	case errors.Is(err, tiers.ErrMismatch):
		return command.Usage("%v: give every tier of the store in its order, the fastest first, and its key with "+
			"--key-file if it has one", err)
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	return run(cmd, s)
}

// emit prints a value as indented JSON, or as the table that a function writes. The cells of a line
// end with tabs, and columns are aligned to the right.
func emit(cmd *cobra.Command, v any, table func(w io.Writer)) error {
	if out, _ := cmd.Flags().GetString("output"); out == "json" {
		e := json.NewEncoder(cmd.OutOrStdout())
		e.SetIndent("", "  ")
		return e.Encode(v)
	}
	t := tabwriter.NewWriter(cmd.OutOrStdout(), 0, 0, 2, ' ', tabwriter.AlignRight)
	table(t)
	return t.Flush()
}

// tierReport is the result of tier verify: the pages and bytes that were read, the ids of the
// damaged pages, and a text for each problem.
type tierReport struct {
	Pages    int      `json:"pages"`
	Bytes    int64    `json:"bytes"`
	Bad      []uint64 `json:"bad"`
	Problems []string `json:"problems"`
}

// tierVerify reads every page of a store, and prints a tierReport. It changes nothing, and fails
// with tiers.ErrCorrupt when it has found damage.
//
// --rate bounds the reads in bytes per second, so that a verification leaves the disk to others.
func tierVerify(cmd *cobra.Command, s *pagestore.Store) error {
	rate, _ := cmd.Flags().GetInt64("rate")
	if rate < 0 {
		return command.Usage("--rate %d: use a number of bytes a second, or 0 for no bound", rate)
	}
	r, err := s.VerifyWith(cmd.Context(), rate, verifyProgress(cmd.ErrOrStderr()))
	if err != nil {
		return fmt.Errorf("verify: %w", errors.Join(err, interrupted(cmd)))
	}
	// Lists are never null in JSON.
	out := tierReport{Pages: r.Pages, Bytes: r.Bytes, Bad: append([]uint64{}, r.Bad...), Problems: []string{}}
	for _, p := range r.Problems {
		out.Problems = append(out.Problems, p.Error())
	}
	err = emit(cmd, out, func(w io.Writer) {
		fmt.Fprintf(w, "%d pages, %s read, %d bad\n", out.Pages, command.Size(out.Bytes), len(out.Bad))
		for _, p := range out.Problems {
			fmt.Fprintf(w, "%s\n", p)
		}
	})
	if err == nil && len(out.Problems) > 0 {
		err = fmt.Errorf("%d problems found: %w", len(out.Problems), tiers.ErrCorrupt)
	}
	return err
}

// interrupted returns command.ErrInterrupted when a signal has ended the context of a command.
// Joined with the error of the interrupted call it gives the exit code 130.
func interrupted(cmd *cobra.Command) error {
	if cmd.Context().Err() != nil {
		return command.ErrInterrupted
	}
	return nil
}

// verifyProgress returns the function that shows the progress of tierVerify: one line on a
// terminal, rewritten twice a second. It returns nil when w is no terminal. The caller passes the
// number of all pages with each report.
func verifyProgress(w io.Writer) func(*pagestore.Report, int) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return nil
	}
	last := time.Now()
	return func(r *pagestore.Report, total int) {
		if now := time.Now(); now.Sub(last) > time.Second/2 || r.Pages == total {
			last = now
			fmt.Fprintf(w, "\r\033[K%d of %d pages, %s, %d bad", r.Pages, total, command.Size(r.Bytes), len(r.Bad))
			// The last line stays on the screen.
			if r.Pages == total {
				fmt.Fprintln(w)
			}
		}
	}
}

// tierStats prints for each tier of a store the pages, and the bytes of the pages, of their stored
// form and of the files.
//
// The JSON is pagestore.Stats, with the names of its Go fields. It reads the index only, and no
// page.
func tierStats(cmd *cobra.Command, s *pagestore.Store) error {
	st := s.Stats()
	return emit(cmd, st, func(w io.Writer) {
		fmt.Fprintf(w, "tier\tpages\tlogical\tstored\tfiles\tratio\tsegments\tretired\t\n")
		for _, t := range st.Tiers {
			ratio := "-"
			if t.LiveBytes > 0 {
				ratio = fmt.Sprintf("%.2f", float64(t.LogicalBytes)/float64(t.LiveBytes))
			}
			fmt.Fprintf(w, "%s\t%d\t%s\t%s\t%s\t%s\t%d\t%d\t%s\n", t.Name, t.Pages, command.Size(t.LogicalBytes),
				command.Size(t.LiveBytes),
				command.Size(t.FileBytes), ratio, t.Segments, t.Retired, t.Unavailable)
		}
		fmt.Fprintf(w, "\nepoch %d, %d pages, %d lost, index %s\n", st.Epoch, st.Pages, st.Lost,
			command.Size(st.IndexBytes))
		if st.Healed {
			fmt.Fprintln(w, "damage to one copy of the index or of a header was made good")
		}
	})
}

// tierCompact gives the space of deleted and replaced pages back to the disks, and prints the
// number of bytes. The store stays usable after an interrupt: compaction moves pages one after the
// other.
func tierCompact(cmd *cobra.Command, s *pagestore.Store) error {
	freed, err := s.Compact(cmd.Context())
	if err != nil {
		return fmt.Errorf("compact: %w", errors.Join(err, interrupted(cmd)))
	}
	return emit(cmd, map[string]int64{"freed_bytes": freed},
		func(w io.Writer) { fmt.Fprintf(w, "%s given back\n", command.Size(freed)) })
}
