package cluster

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/base/redact"
	"github.com/exoswarm/exoswarm/jobs"
)

// screenView is a page of the terminal.
type screenView int

// The pages, by the keys 1 to 3.
const (
	agentsView screenView = iota
	queuesView
	swarmsView
)

type screenOptions struct {
	View screenView
	// Sort names the column that rows are ordered by, from the largest; empty: by name.
	Sort string
	// Width and Height are the size of the terminal in characters; 0: not cut.
	Width, Height int
	// Local shows times of this zone.
	Local *time.Location
}

// writeStatus writes a summary of the cluster: a line for each part, and what needs attention.
func writeStatus(out io.Writer, s *cluster.State) error {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	if s.Error != "" {
		fmt.Fprintf(w, "cluster\tnot reachable since %s: %s\n", stamp(s.Since, time.UTC), redact.Line(s.Error))
	}
	n := s.NATS
	fmt.Fprintf(w, "nats\t%s, version %s, %s, %s stored\n", clean(cmp.Or(n.Server, n.URL)), clean(n.Version),
		serverCount(s), size(float64(n.Store)))
	for _, p := range s.Pools {
		var waiting uint64
		running := 0
		for _, c := range p.Sources {
			waiting += c.Waiting
			running += c.Running
		}
		text := fmt.Sprintf("%d jobs wait, %d run", waiting, running)
		if p.Delayed > 0 {
			text += fmt.Sprintf(", %d are delayed", p.Delayed)
		}
		if p.Dependent > 0 {
			text += fmt.Sprintf(", %d wait for other jobs", p.Dependent)
		}
		if p.Paused {
			text += ", paused"
		}
		fmt.Fprintf(w, "pool %s\t%s\n", p.Pool, text)
	}
	alive, lost := 0, 0
	for _, a := range s.Agents {
		if a.Lost == nil {
			alive++
		} else {
			lost++
		}
	}
	agents := fmt.Sprintf("%d alive", alive)
	if lost > 0 {
		agents += fmt.Sprintf(", %d lost", lost)
	}
	fmt.Fprintf(w, "agents\t%s\n", agents)
	served := 0
	for _, sw := range s.Swarms {
		if sw.State == cluster.StateServed {
			served++
		}
	}
	fmt.Fprintf(w, "swarms\t%d, %d served\n", len(s.Swarms), served)
	if err := w.Flush(); err != nil {
		return err
	}
	for _, line := range attention(s) {
		if _, err := fmt.Fprintln(out, "! "+line); err != nil {
			return err
		}
	}
	return nil
}

// attention lists what an operator should look at, one sentence each with the command that tells
// more.
func attention(s *cluster.State) (all []string) {
	if s.NATS.Refuses {
		all = append(all, "the NATS server refuses to store: its disk is nearly full")
	}
	for _, st := range s.NATS.Streams {
		if st.Leaderless {
			all = append(all, fmt.Sprintf("stream %s has no leader: start the NATS servers that are missing",
				clean(st.Name)))
		} else if len(st.Behind) > 0 {
			all = append(all, fmt.Sprintf("stream %s has replicas behind: %s", clean(st.Name),
				clean(strings.Join(st.Behind, ", "))))
		}
	}
	for _, p := range s.Pools {
		if p.Paused {
			all = append(all, fmt.Sprintf("pool %s is paused: exoswarm queue resume %s", p.Pool, p.Pool))
		}
		for _, k := range p.Unserved {
			all = append(all, fmt.Sprintf("no agent of pool %s handles kind %s, which has jobs", p.Pool, clean(k)))
		}
	}
	for _, a := range s.Agents {
		switch {
		case a.Lost != nil:
			all = append(all, fmt.Sprintf("agent %s is lost since %s: %d shards are not taken over", clean(a.Name),
				stamp(a.Lost.Since, time.UTC), len(a.Lost.Shards)))
		case a.State != "serving" && a.State != "full" && a.State != "draining":
			all = append(all, fmt.Sprintf("agent %s: %s", clean(a.Name), clean(a.State)))
		}
	}
	for _, sw := range s.Swarms {
		if sw.Error != "" {
			all = append(all, fmt.Sprintf("swarm %s: %s", clean(sw.Name), clean(sw.Error)))
		} else if sw.State == cluster.StateWaiting || sw.State == cluster.StateReplaying {
			all = append(all, fmt.Sprintf("swarm %s is %s: exoswarm swarm explain %s", clean(sw.Name), sw.State,
				clean(sw.Name)))
		}
	}
	if n := s.Numbers[cluster.DeadLetters]; n > 0 {
		all = append(all, fmt.Sprintf("%.0f dead letters: exoswarm dlq list", n))
	}
	return all
}

// frame draws a page of the terminal: a line about the cluster, the table of the view, and the
// keys.
func frame(s *cluster.State, o screenOptions) []byte {
	var b bytes.Buffer
	zone := cmp.Or(o.Local, time.UTC)
	fmt.Fprintf(&b, "exoswarm top  %s  %s  %s\n", s.At.In(zone).Format(time.TimeOnly),
		clean(cmp.Or(s.NATS.Server, s.NATS.URL)),
		health(s))
	n := s.Numbers
	fmt.Fprintf(&b, "jobs %s waiting, %s running, %s/s ended   entries %s/s, %s waiting   observations %s/s   device "+
		"%s   dead %s\n",
		number(n, cluster.JobsWaiting), number(n, cluster.JobsRunning), number(n, cluster.JobsEnded),
		number(n, cluster.EntryRate), number(n, cluster.EntriesWaiting), number(n, cluster.ObservationRate),
		percent(n, cluster.DeviceBusy), number(n, cluster.DeadLetters))
	b.WriteByte('\n')
	w := tabwriter.NewWriter(&b, 0, 8, 2, ' ', 0)
	switch o.View {
	case queuesView:
		drawQueues(w, s, o.Sort)
	case swarmsView:
		drawSwarms(w, s, o.Sort)
	default:
		drawAgents(w, s, o.Sort)
	}
	_ = w.Flush() // to memory
	for _, line := range attention(s) {
		b.WriteString("! " + line + "\n")
	}
	return cut(b.Bytes(), o.Width, o.Height)
}

func health(s *cluster.State) string {
	switch {
	case s.Error != "":
		return "NOT REACHABLE since " + stamp(s.Since, time.UTC) + ": " + redact.Line(s.Error)
	case len(attention(s)) > 0:
		return fmt.Sprintf("%d to look at", len(attention(s)))
	}
	return "ok"
}

func drawAgents(w io.Writer, s *cluster.State, by string) {
	fmt.Fprintln(w, "AGENT\tPOOL\tSTATE\tRUNNING\tBUSY\tCPU\tMEMORY\tPAGES GPU/CPU/DISK\tLAG\tDEVICE")
	rows := slices.Clone(s.Agents)
	slices.SortStableFunc(rows, func(a, b cluster.Agent) int {
		switch by {
		case "running":
			return cmp.Compare(b.Running, a.Running)
		case "memory":
			return cmp.Compare(value(b, "process_resident_memory_bytes"), value(a, "process_resident_memory_bytes"))
		case "lag":
			return cmp.Compare(value(b, "exoswarm_swarm_lag_entries"), value(a, "exoswarm_swarm_lag_entries"))
		}
		return 0
	})
	for _, a := range rows {
		running := fmt.Sprint(a.Running)
		if limit := max(a.Concurrency, a.MaxShards); limit > 0 {
			running += fmt.Sprintf("/%d", limit)
		}
		memory, cpu, lag, pages, busy := "-", "-", "-", "-", "-"
		if a.Telemetry != nil {
			memory, cpu = size(value(a, "process_resident_memory_bytes")),
				fmt.Sprintf("%.0f s", value(a, "process_cpu_seconds_total"))
			if a.Pool == jobs.PoolGPU {
				lag = fmt.Sprintf("%.0f", value(a, "exoswarm_swarm_lag_entries"))
				pages = fmt.Sprintf("%.0f/%.0f/%.0f", of(a, "exoswarm_swarm_pages", "tier", "gpu"),
					of(a, "exoswarm_swarm_pages", "tier", "cpu"), value(a, "exoswarm_swarm_stored_pages"))
				if v, ok := has(a, "exoswarm_device_busy_ratio"); ok {
					busy = fmt.Sprintf("%.0f %%", 100*v)
				}
			}
		}
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\t%s\n", clean(a.Name), a.Pool, agentState(a), running, busy,
			cpu,
			memory, pages, lag, clean(a.Device))
	}
	if len(rows) == 0 {
		fmt.Fprintln(w, "no agent is connected: start cpuagent and gpuagent, or exoswarm serve")
	}
}

func agentState(a cluster.Agent) string {
	switch {
	case a.Lost != nil:
		return fmt.Sprintf("lost, %d shards", len(a.Lost.Shards))
	case len(a.Recovering) > 0:
		return clean(a.Recovering[0].String())
	}
	return clean(a.State)
}

func drawQueues(w io.Writer, s *cluster.State, by string) {
	fmt.Fprintln(w, "POOL\tKIND\tLANE\tTENANT\tLEVEL\tWAITING\tRUNNING\tRETRIED\tAGENTS\tPAUSED")
	type row struct {
		pool   jobs.Pool
		paused bool
		jobs.SourceStats
	}
	var rows []row
	for _, p := range s.Pools {
		for _, c := range p.Sources {
			rows = append(rows, row{p.Pool, p.Paused || c.Paused, c})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		switch by {
		case "waiting":
			return cmp.Compare(b.Waiting, a.Waiting)
		case "running":
			return cmp.Compare(b.Running, a.Running)
		}
		return 0
	})
	for _, r := range rows {
		fmt.Fprintf(w, "%s\t%s\t%s\t%s\t%s\t%d\t%d\t%d\t%d\t%v\n", r.pool, clean(r.Kind), r.Lane, clean(r.Tenant),
			cmp.Or(r.Level, "default"), r.Waiting, r.Running, r.Retried, r.Agents, r.paused)
	}
	if len(rows) == 0 {
		fmt.Fprintln(w, "no job is queued or running: exoswarm submit --help")
	}
}

func drawSwarms(w io.Writer, s *cluster.State, by string) {
	fmt.Fprintln(w, "SWARM\tCELL\tAGENTS\tSHARD\tHOLDER\tSTATE\tENTRIES\tWAITING\tRATE")
	type row struct {
		sw cluster.Swarm
		sh cluster.Shard
	}
	var rows []row
	for _, sw := range s.Swarms {
		for _, sh := range sw.Shards {
			rows = append(rows, row{sw, sh})
		}
	}
	slices.SortStableFunc(rows, func(a, b row) int {
		switch by {
		case "waiting":
			return cmp.Compare(b.sh.Entries-b.sh.Answered, a.sh.Entries-a.sh.Answered)
		case "rate":
			return cmp.Compare(b.sh.EntriesPerSecond, a.sh.EntriesPerSecond)
		}
		return 0
	})
	for _, r := range rows {
		state := r.sh.State
		if r.sh.Recovering != nil {
			state = clean(r.sh.Recovering.String())
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d/%d\t%s\t%s\t%d\t%d\t%.1f/s\n", clean(r.sw.Name), clean(r.sw.Cell), r.sw.Agents,
			r.sh.Shard,
			len(r.sw.Shards), clean(r.sh.Holder), state, r.sh.Entries, r.sh.Entries-r.sh.Answered,
			r.sh.EntriesPerSecond)
	}
	if len(rows) == 0 {
		fmt.Fprintln(w, "no swarm: exoswarm run or exoswarm swarm create -f SPEC")
	}
}

// sortsOf lists the columns that a view is ordered by; the first is the name.
func sortsOf(v screenView) []string {
	switch v {
	case queuesView:
		return []string{"", "waiting", "running"}
	case swarmsView:
		return []string{"", "waiting", "rate"}
	}
	return []string{"", "running", "memory", "lag"}
}

func value(a cluster.Agent, name string) float64 { v, _ := has(a, name); return v }

func has(a cluster.Agent, name string) (sum float64, ok bool) {
	if a.Telemetry == nil {
		return 0, false
	}
	for _, s := range a.Telemetry.Samples {
		if s.Name == name {
			sum, ok = sum+s.Value, true
		}
	}
	return sum, ok
}

func of(a cluster.Agent, name, label, want string) (sum float64) {
	for _, s := range a.Telemetry.Samples {
		if s.Name == name && s.Labels[label] == want {
			sum += s.Value
		}
	}
	return sum
}

func serverCount(s *cluster.State) string {
	if n := len(s.NATS.Servers); n > 1 {
		return fmt.Sprintf("%d servers", n)
	}
	return "1 server"
}

// clean makes text of the cluster safe for a terminal: anybody may have written it.
func clean(text string) string { return redact.Line(text) }

func stamp(t time.Time, zone *time.Location) string { return t.In(zone).Format(time.RFC3339) }

func number(n map[string]float64, name string) string {
	v, ok := n[name]
	switch {
	case !ok:
		return "-"
	case v >= 1e9:
		return fmt.Sprintf("%.1fG", v/1e9)
	case v >= 1e6:
		return fmt.Sprintf("%.1fM", v/1e6)
	case v >= 1e4:
		return fmt.Sprintf("%.1fk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}

func percent(n map[string]float64, name string) string {
	v, ok := n[name]
	if !ok {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*v)
}

func size(bytes float64) string {
	for _, u := range []string{"B", "KiB", "MiB", "GiB"} {
		if bytes < 1024 {
			return fmt.Sprintf("%.4g %s", bytes, u)
		}
		bytes /= 1024
	}
	return fmt.Sprintf("%.4g TiB", bytes)
}

// cut shortens a frame to a terminal: whole characters of each line, and the last line says how
// many are missing.
func cut(frame []byte, width, height int) []byte {
	lines := strings.Split(strings.TrimSuffix(string(frame), "\n"), "\n")
	if height > 0 && len(lines) > height {
		missing := len(lines) - height + 1
		lines = append(lines[:height-1], fmt.Sprintf("(%d more lines)", missing))
	}
	for i, l := range lines {
		if r := []rune(l); width > 0 && len(r) > width {
			lines[i] = string(r[:width])
		}
	}
	return []byte(strings.Join(lines, "\n") + "\n")
}
