package swarm

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/base/memory"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

var pagesVerb = cli.Verb{
	Use: "pages NAME", Short: "Show where the pages of a swarm are, and how they move", Lists: true,
	Long: `Show the tiers that the pages of each shard are in, from the fastest on. The counters
begin when the GPU agent opens the shard. HIT RATE is the part of the accesses to a tier of memory
that found the page there; pages that all fit on the device are held there, and not counted. IN and
OUT are pages that came into the tier and left it, by reason: demand, room and watermark for want of
a frame, share for another swarm, age, heat, run and correlation as guesses, and hint. It moves no
page. A parked shard has no page in memory, and is not woken.`,
	Flags: timeoutFlag, Do: withSwarm(swarmPages),
}

// tierItem is one tier of a shard in the answer of swarm pages.
type tierItem struct {
	Shard  int    `json:"shard"`
	Holder string `json:"holder"`
	State  string `json:"state,omitempty"` // why there is no more
	Tier   string `json:"tier,omitempty"`
	Pages  int    `json:"pages"`
	Bytes  int64  `json:"bytes"`
	*telemetry.PageMemory
	HitRate *float64          `json:"hit_rate,omitempty"`
	In      map[string]uint64 `json:"in,omitempty"`
	Out     map[string]uint64 `json:"out,omitempty"`
}

// swarmPages prints an item for each tier of each shard: shard, holder, tier, pages and bytes;
// frames, free, hits, misses, hit_rate, prefetched, used and wasted of tiers of memory; in and out
// by reason. A shard without pages in memory has one item with state.
func swarmPages(cmd *cobra.Command, c *natsq.Conn, s *swarmclient.Swarm) error {
	var rows []cli.Row
	census, err := c.Swarms.Census(cmd.Context())
	if err != nil {
		return err
	}
	record := s.Record()
	for _, st := range swarmclient.ShardStates(record, census.Holders, census) {
		one := tierItem{Shard: st.Shard, Holder: st.Holder}
		if st.Holder == "" {
			one.State = "no agent serves it"
		} else {
			m, err := pageMap(cmd, c, st.Holder, telemetry.View{
				What: telemetry.ViewPages, Swarm: record.Key(), Shard: st.Shard, Cells: 1,
			})
			if err == nil {
				rows = append(rows, tierRows(one, m)...)
				continue
			}
			if !errors.Is(err, jobs.ErrNotFound) {
				return err
			}
			one.State = "parked, or not open yet"
		}
		rows = append(rows, cli.NewRow(one, one.Shard, one.State, "", "", "", "", ""))
	}
	return cli.PrintRows(cmd, []string{"SHARD", "TIER", "PAGES", "SIZE", "HIT RATE", "IN", "OUT"}, rows...)
}

// pageMap asks an agent where the pages of a shard are, until the shard has rested from other looks
// or the time of --timeout is over.
func pageMap(cmd *cobra.Command, c *natsq.Conn, holder string, v telemetry.View) (m telemetry.PageMap, err error) {
	patience, _ := cmd.Flags().GetDuration("timeout")
	ctx, cancel := context.WithTimeout(cmd.Context(), patience)
	defer cancel()
	for {
		if err = c.Telemetry.AskView(ctx, holder, v, &m); !errors.Is(err, jobs.ErrUnavailable) {
			return m, err
		}
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return m, err
		}
	}
}

func tierRows(of tierItem, m telemetry.PageMap) (rows []cli.Row) {
	for i, tier := range m.Tiers {
		one := of
		one.Tier, one.Pages, one.Bytes = tier, m.Counts[i], int64(m.Counts[i])*int64(m.PageBytes)
		rate := ""
		for _, t := range m.Memory {
			if t.Tier != tier {
				continue
			}
			one.PageMemory = &t
			if all := t.Hits + t.Misses; all > 0 {
				part := float64(t.Hits) / float64(all)
				one.HitRate, rate = &part, fmt.Sprintf("%.1f%%", 100*part)
			}
		}
		var in, out []string
		one.In, one.Out = map[string]uint64{}, map[string]uint64{}
		for _, v := range m.Moves { // in the order of tiers and reasons
			if v.To == tier {
				if one.In[v.Reason] += v.Pages; !slices.Contains(in, v.Reason) {
					in = append(in, v.Reason)
				}
			}
			if v.From == tier {
				if one.Out[v.Reason] += v.Pages; !slices.Contains(out, v.Reason) {
					out = append(out, v.Reason)
				}
			}
		}
		rows = append(rows, cli.NewRow(one, one.Shard, tier, one.Pages, memory.Text(one.Bytes), rate,
			movesText(in, one.In), movesText(out, one.Out)))
	}
	return rows
}

// movesText returns the moves of reasons, as in "demand 12, age 3".
func movesText(reasons []string, by map[string]uint64) string {
	var parts []string
	for _, why := range reasons {
		parts = append(parts, fmt.Sprintf("%s %d", why, by[why]))
	}
	return strings.Join(parts, ", ")
}
