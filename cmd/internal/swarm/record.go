package swarm

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// shortest is the smallest --interval. A question is an entry of the log.
const shortest = 10 * time.Millisecond

type watchPlan struct {
	out           string
	format        fileFormat
	agents        []uint32 // empty: compute
	variables     []string // of the agents; empty: all
	compute       string
	ticks, every  int           // 0 ticks: the command steps nobody
	lasts, pauses time.Duration // without ticks: how long it records, and the time between frames
}

var watchVerb = cli.Verb{
	Use:   "watch NAME -o FILE.arrow|FILE.npy (--agents IDS | --compute TEXT) (--ticks N | --for TIME)",
	Short: "Record what agents are, or a computation over them, by tick or by time",
	Long: `Record what agents are over time, in a file for pandas, Polars or NumPy.

--agents records agents: their vote and state if the agents of the swarm are addressed, and else their
embedding and the state variables of the cell (docs/cells.md). --variables chooses some of them.
--compute records the results of a text of exoswarm swarm compute, such as a mean over all agents.

--ticks steps the swarm that many times, and records before the first step and after each --every of them.
The steps stay, as after exoswarm swarm tick. --for steps nobody, and records once an
--interval what others do to the swarm. Ctrl-C ends it early, and the file has what was recorded.

An .arrow file has the columns tick or time, agent (or group, or candidate) and one for each
variable. A vote of nobody and a result of nothing are null. A .npy file has one variable of shape
[frames, rows] or [frames, rows, elements], and needs --ticks.

The file appears when it is complete.`,
	Flags: func(f *pflag.FlagSet) {
		f.StringP("output", "o", "", "file to write, .arrow or .npy (required)")
		f.String("agents", "", "ids and ranges of agents, as in 1,5-9")
		f.StringSlice("variables", nil, "variables of the agents, as in vote,state; default: all")
		f.String("compute", "", "text to compute, as in 'mean(potential) by group'")
		f.Int("ticks", 0, "steps of the swarm by this command")
		f.Int("every", 1, "steps between two frames")
		f.Duration("for", 0, "time to record for, without steps by this command")
		f.Duration("interval", time.Second, "time between two frames of --for")
		timeoutFlag(f)
	},
	Do: onPlan(watchPlanOf, watch),
}

// watchPlanOf reads and checks the flags, as far as they can be checked without the swarm.
func watchPlanOf(cmd *cobra.Command) (p watchPlan, err error) {
	f := cmd.Flags()
	p.out, _ = f.GetString("output")
	p.variables, _ = f.GetStringSlice("variables")
	p.compute, _ = f.GetString("compute")
	p.ticks, _ = f.GetInt("ticks")
	p.every, _ = f.GetInt("every")
	p.lasts, _ = f.GetDuration("for")
	p.pauses, _ = f.GetDuration("interval")
	agents, _ := f.GetString("agents")
	if p.format, err = fileFormatOf(p.out); err != nil {
		return p, command.Usage("swarm watch: -o %q: name a file that ends with .arrow or .npy", p.out)
	}
	switch {
	case (agents == "") == (p.compute == ""):
		return p, command.Usage("swarm watch: use one of --agents and --compute, as in --agents 0-99")
	case len(p.variables) > 0 && agents == "":
		return p, command.Usage("swarm watch: --variables are of --agents: name the outputs in the text of --compute")
	case f.Changed("ticks") == f.Changed("for"):
		return p, command.Usage("swarm watch: use one of --ticks, which steps the swarm, and --for, which does not")
	case f.Changed("for") && p.lasts < shortest:
		return p, command.Usage("swarm watch: --for %v: use %v or more", p.lasts, shortest)
	case f.Changed("for") && p.format == npyFormat:
		return p, command.Usage("swarm watch: -o %s: a .npy file has a fixed number of frames: use --ticks, or .arrow",
			p.out)
	case f.Changed("for") && f.Changed("every"):
		return p, command.Usage("swarm watch: --every is for --ticks: use --interval")
	case f.Changed("interval") && (p.pauses < shortest || f.Changed("ticks")):
		return p, command.Usage("swarm watch: --interval %v: use %v or more, with --for", p.pauses, shortest)
	case f.Changed("ticks") && p.ticks < 1:
		return p, command.Usage("swarm watch: --ticks %d: use 1 or more", p.ticks)
	case p.every < 1 || p.every > swarms.MaxTicks:
		return p, command.Usage("swarm watch: --every %d: use 1 to %d", p.every, swarms.MaxTicks)
	case p.ticks%p.every != 0:
		return p, command.Usage("swarm watch: --ticks %d: use a multiple of --every, %d", p.ticks, p.every)
	}
	if p.compute != "" {
		if err := (swarms.Compute{Text: p.compute}).Validate(); err != nil {
			return p, command.Usage("swarm watch: --%v", err)
		}
		return p, nil
	}
	if p.agents, err = parseIDs(agents); err != nil {
		return p, command.Usage("swarm watch: --agents: %v", err)
	}
	return p, nil
}

func watch(cmd *cobra.Command, s *swarmclient.Swarm, p watchPlan) error {
	if p.ticks > 0 && !s.Spec().Topology().ByAgent {
		return command.Usage("swarm watch: --ticks: agents of %s do not tick: its groups are addressed: use --for",
			s.ID())
	}
	look := p.looker(s)
	frames := 0
	err := userfile.WriteFile(p.out, func(w io.Writer) (err error) {
		// The first frame tells what has a row, so the recording begins with it.
		first, id, err := look(cmd.Context())
		if err != nil {
			return err
		}
		o := recordingOptions{Format: p.format, IDName: id, Timed: p.ticks == 0, Frames: 1 + p.ticks/p.every}
		r, err := newRecorder(w, o)
		if err != nil {
			return err
		}
		if err := r.Add(first); err != nil {
			return refusal(err)
		}
		if p.ticks > 0 {
			err = byTick(cmd.Context(), s, p, look, r)
		} else {
			err = byTime(cmd.Context(), p, look, r)
		}
		frames = r.Frames()
		return errors.Join(err, r.Close())
	})
	if err != nil {
		return err
	}
	cmd.PrintErrf("%s: %d frames\n", p.out, frames)
	return nil
}

// refusal makes an error of usage of an error of a recording that the user's choice of variables
// causes.
func refusal(err error) error {
	if errors.Is(err, errRecordingFormat) {
		return command.Usage("swarm watch: %v", err)
	}
	return err
}

// byTick steps the swarm, and adds a frame after each p.every steps.
func byTick(ctx context.Context, s *swarmclient.Swarm, p watchPlan, look looker, r *recorder) error {
	for done := p.every; done <= p.ticks; done += p.every {
		if _, err := s.Tick(ctx, p.every); err != nil {
			return fmt.Errorf("after %d of %d ticks: %w", done-p.every, p.ticks, err)
		}
		f, _, err := look(ctx)
		if err != nil {
			return fmt.Errorf("after %d of %d ticks: %w", done, p.ticks, err)
		}
		f.Tick = uint64(done)
		if err := r.Add(f); err != nil {
			return err
		}
	}
	return nil
}

// byTime adds a frame once an interval, until the time is over or ctx ends. A question that ctx has
// cut off is no frame.
func byTime(ctx context.Context, p watchPlan, look looker, r *recorder) error {
	over := time.NewTimer(p.lasts)
	defer over.Stop()
	next := time.NewTicker(p.pauses)
	defer next.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-over.C:
			return nil
		case <-next.C:
		}
		f, _, err := look(ctx)
		if err != nil && ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if err := r.Add(f); err != nil {
			return err
		}
	}
}

// looker asks the swarm once, and returns a frame with the name of what has a row, such as agent.
type looker func(ctx context.Context) (recordFrame, string, error)

// looker returns what asks for the frames of the plan.
func (p watchPlan) looker(s *swarmclient.Swarm) looker {
	return func(ctx context.Context) (f recordFrame, id string, err error) {
		switch {
		case p.compute != "":
			f, id, err = computed(ctx, s, p.compute)
		case s.Spec().Topology().ByAgent:
			f, err = watchStates(ctx, s, p)
			id = "agent"
		default:
			f, err = variables(ctx, s, p)
			id = "agent"
		}
		f.Time = time.Now()
		return f, id, err
	}
}

// watchStates returns a frame of agents that are addressed.
func watchStates(ctx context.Context, s *swarmclient.Swarm, p watchPlan) (f recordFrame, err error) {
	all, err := s.AgentStates(ctx, p.agents)
	if err != nil {
		return f, err
	}
	valid := make([]bool, len(all.Vote))
	for i, v := range all.Vote {
		valid[i] = int(v) < len(s.Spec().Vote.Candidates)
	}
	f.IDs = all.Agent
	f.Columns = []recordColumn{{Name: "vote", Values: all.Vote, Width: 1, Valid: valid}}
	if all.Width > 0 {
		f.Columns = append(f.Columns, recordColumn{Name: "state", Values: all.State, Width: all.Width})
	}
	f.Columns, err = p.choose(f.Columns)
	return f, err
}

// variables returns a frame of agents whose groups are addressed.
func variables(ctx context.Context, s *swarmclient.Swarm, p watchPlan) (f recordFrame, err error) {
	all, err := s.AgentVariables(ctx, p.agents)
	if err != nil {
		return f, err
	}
	f.IDs = all.Agent
	if all.Width > 0 {
		f.Columns = append(f.Columns, recordColumn{Name: "embedding", Values: all.Embedding, Width: all.Width})
	}
	for _, v := range all.Vars {
		f.Columns = append(f.Columns, recordColumn{Name: v.Name, Values: v.Values, Width: v.Width})
	}
	f.Columns, err = p.choose(f.Columns)
	return f, err
}

// choose returns the columns that --variables names, in its order.
func (p watchPlan) choose(all []recordColumn) ([]recordColumn, error) {
	if len(p.variables) == 0 {
		return all, nil
	}
	chosen := make([]recordColumn, len(p.variables))
	for i, name := range p.variables {
		names := make([]string, len(all))
		for j, c := range all {
			names[j] = c.Name
			if c.Name == name {
				chosen[i] = c
			}
		}
		if chosen[i].Name == "" {
			return nil, command.Usage("swarm watch: --variables %s: there are %v", name, names)
		}
		for _, earlier := range chosen[:i] {
			if earlier.Name == name {
				return nil, command.Usage("swarm watch: --variables: %s is named twice", name)
			}
		}
	}
	return chosen, nil
}

// computed returns a frame of the results of a text.
func computed(ctx context.Context, s *swarmclient.Swarm, text string) (f recordFrame, id string, err error) {
	c, err := s.Compute(ctx, swarms.Compute{Text: text})
	if err != nil {
		return f, "", err
	}
	switch c.By {
	case swarms.ByGroup:
		id = "group"
	case swarms.ByVote:
		id = "candidate"
	}
	f.IDs = make([]uint32, c.Nodes)
	for i := range f.IDs {
		f.IDs[i] = uint32(c.First + i)
	}
	for _, o := range c.Outputs {
		f.Columns = append(f.Columns, columnOf(o, c.Nodes))
	}
	return f, id, nil
}

// columnOf returns the results of one output. Integers stay exact.
func columnOf(o swarmclient.Output, nodes int) recordColumn {
	c := recordColumn{Name: o.Name, Width: 1, Valid: make([]bool, nodes)}
	floats, ints, words, bytes := []float64(nil), []int64(nil), []uint64(nil), []uint8(nil)
	for i := range nodes {
		v, exists := o.Number(i)
		c.Valid[i] = exists
		switch o.Kind {
		case "i64":
			ints = append(ints, int64(o.Bits(i)))
		case "u64":
			words = append(words, o.Bits(i))
		case "bool":
			bytes = append(bytes, uint8(v))
		default:
			if !exists {
				v = math.NaN()
			}
			floats = append(floats, v)
		}
	}
	switch o.Kind {
	case "i64":
		c.Values = ints
	case "u64":
		c.Values = words
	case "bool":
		c.Values = bytes
	default:
		c.Values = floats
	}
	return c
}
