// Package cluster has the commands about a cluster, its agents, detectors, tenants and logins:
// status, top, explain, doctor, debug, nats, init, auth, tenant, audit, agent, detector and tier.
package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"golang.org/x/term"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	ops "github.com/exoswarm/exoswarm/internal/app/ops/cluster"
	"github.com/exoswarm/exoswarm/internal/app/ops/doctor"
	"github.com/exoswarm/exoswarm/internal/base/redact"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

// Status returns exoswarm status: one look at the cluster, for people and scripts. An
// unreachable cluster is jobs.ErrUnavailable. It connects like every command, so it also creates
// missing streams.
func Status() *cobra.Command {
	return cli.Verb{
		Use: "status", Short: "Show the cluster in a few lines, and what needs attention", Flags: textOrJSON,
		Do: cli.Queue(func(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
			s, err := lookTwice(cmd.Context(), c, 0)
			if err != nil {
				return err
			}
			return writeState(cmd, s, func(w io.Writer) error { return writeStatus(w, s) })
		}),
	}.Command()
}

// textOrJSON adds -o of commands whose output is no list.
func textOrJSON(f *pflag.FlagSet) { command.OutputFlag(f, "text", "json") }

// lookTwice returns the state of the cluster with rates over the time between two looks. With apart
// 0 it looks once, and the state has no rates. A state with an error is returned together with
// jobs.ErrUnavailable.
func lookTwice(ctx context.Context, c *natsq.Conn, apart time.Duration) (*ops.State, error) {
	w := ops.Start(ops.Options{Conn: c, Every: max(apart, time.Millisecond)})
	defer w.Close()
	defer w.Watched()()
	s, err := w.Wait(ctx, 0)
	if err == nil && apart > 0 {
		s, err = w.Wait(ctx, s.Frame)
	}
	if err == nil && s.Error != "" {
		err = fmt.Errorf("look at the cluster: %s: %w", s.Error, jobs.ErrUnavailable)
	}
	return s, err
}

// writeState writes a state as indented JSON with -o json, else as the text that a function writes.
// The JSON has the fields of the HTTP API of the dashboard.
func writeState(cmd *cobra.Command, s *ops.State, text func(io.Writer) error) error {
	if format, _ := cmd.Flags().GetString("output"); format != "json" {
		return text(cmd.OutOrStdout())
	}
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	_, err = cmd.OutOrStdout().Write(append(data, '\n'))
	return err
}

// Top returns exoswarm top. It changes no job, agent or swarm.
func Top() *cobra.Command {
	return cli.Verb{
		Use: "top", Short: "Watch agents, queues and swarms in the terminal",
		Long: `Watch the cluster in the terminal. The keys 1, 2 and 3 show agents, queues and swarms. s sorts
by the next column, p pauses and q quits. With --once, or if the output is not a terminal, the
command writes one frame and ends.`,
		Flags: func(f *pflag.FlagSet) {
			textOrJSON(f)
			f.Bool("once", false, "write one frame and end")
			f.Duration("interval", time.Second, "time between two frames, 100ms or more")
			f.String("view", "agents", "agents, queues or swarms")
		},
		Do: cli.Queue(top),
	}.Command()
}

// top watches the cluster until the user quits. If the input or the output is no terminal it writes
// one frame, so that it can be used in a pipe. A single frame looks twice, --interval apart, so
// that it has rates.
func top(cmd *cobra.Command, _ []string, c *natsq.Conn) error {
	interval, _ := cmd.Flags().GetDuration("interval")
	if interval < 100*time.Millisecond {
		return command.Usage("--interval %v: use 100ms or more", interval)
	}
	// A screen has local times; JSON has UTC.
	o := screenOptions{Local: time.Local}
	switch name, _ := cmd.Flags().GetString("view"); name {
	case "agents":
	case "queues":
		o.View = queuesView
	case "swarms":
		o.View = swarmsView
	default:
		return command.Usage("--view %q: use agents, queues or swarms", name)
	}
	once, _ := cmd.Flags().GetBool("once")
	format, _ := cmd.Flags().GetString("output")
	// Keys need a terminal for the input, and frames one for the output.
	in, isFile := cmd.InOrStdin().(*os.File)
	out, toFile := cmd.OutOrStdout().(*os.File)
	if once || format == "json" || !isFile || !toFile || !term.IsTerminal(int(in.Fd())) ||
		!term.IsTerminal(int(out.Fd())) {
		s, err := lookTwice(cmd.Context(), c, interval)
		if err != nil {
			return err
		}
		return writeState(cmd, s, func(w io.Writer) error {
			_, err := w.Write(frame(s, o))
			return err
		})
	}
	return watchTerminal(cmd.Context(), c, in, out, interval, o)
}

// watchTerminal draws frames until the user quits or ctx ends. It uses the second screen of the
// terminal in raw mode, and restores the terminal before it returns. While it is paused it receives
// states and draws the last frame. The goroutine that reads keys may outlive it, because a read of
// a terminal cannot be interrupted.
func watchTerminal(ctx context.Context, c *natsq.Conn, in, out *os.File, interval time.Duration,
	o screenOptions,
) error {
	old, err := term.MakeRaw(int(in.Fd()))
	if err != nil {
		return fmt.Errorf("terminal: %w", err)
	}
	defer func() { _ = term.Restore(int(in.Fd()), old) }()
	fmt.Fprint(out, "\x1b[?1049h\x1b[?25l")
	defer fmt.Fprint(out, "\x1b[?25h\x1b[?1049l")
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	keys := make(chan byte)
	go func() { // ends with the process: a read of a terminal cannot be interrupted
		one := make([]byte, 1)
		for {
			if n, err := in.Read(one); err != nil || n == 0 {
				return
			}
			select {
			case keys <- one[0]:
			case <-ctx.Done():
				return
			}
		}
	}()
	w := ops.Start(ops.Options{Conn: c, Every: interval})
	defer w.Close()
	defer w.Watched()()
	// One goroutine waits for states and passes them on; a state that is not drawn in time is
	// replaced by the next.
	states := make(chan *ops.State)
	go func() {
		defer close(states)
		for frame := uint64(0); ; {
			s, err := w.Wait(ctx, frame)
			if err != nil {
				return
			}
			frame = s.Frame
			select {
			case states <- s:
			case <-ctx.Done():
				return
			}
		}
	}()
	var shown *ops.State
	paused, order := false, 0
	for {
		select {
		// The channel is closed when ctx has ended.
		case s, ok := <-states:
			if !ok {
				return nil
			}
			if paused {
				continue
			}
			shown = s
		case k := <-keys:
			switch k {
			case 'q', 3, 4: // Ctrl-C and Ctrl-D come as bytes in raw mode
				return nil
			case '1', '2', '3':
				o.View, order = screenView(k-'1'), 0
			case 's':
				// The order begins again with the first column after the last.
				order++
			case 'p':
				paused = !paused
			}
			// Every key but p redraws; an unknown key redraws the same frame.
			sorts := sortsOf(o.View)
			o.Sort = sorts[order%len(sorts)]
		}
		if shown == nil {
			continue
		}
		// The last line of the terminal shows the keys.
		if width, height, err := term.GetSize(int(out.Fd())); err == nil {
			o.Width, o.Height = width, height-1
		}
		draw(out, frame(shown, o), paused, o.Sort)
	}
}

// draw replaces the content of the terminal by a frame and a line of keys. It overwrites in place
// and does not clear the screen first, which would flicker. A terminal in raw mode needs a carriage
// return before each line.
func draw(out io.Writer, frame []byte, paused bool, sort string) {
	text := []byte("\x1b[H")
	for _, b := range frame {
		if b == '\n' {
			text = append(text, "\x1b[K\r\n"...)
		} else {
			text = append(text, b)
		}
	}
	foot := "1 agents  2 queues  3 swarms  s order  p pause  q quit"
	if sort != "" {
		foot += "   by " + sort
	}
	if paused {
		foot += "   PAUSED"
	}
	_, _ = out.Write(append(text, "\x1b[J\x1b[7m"+foot+"\x1b[0m"...))
}

// Explain returns job explain, swarm explain or detect explain; why finds the reason for a name.
// An unreachable cluster is a reason like any other, and no failure to connect. It waits no longer
// than its connection and the limits of package cluster allow, a few seconds in all.
func Explain(
	use, short string, why func(ctx context.Context, c *natsq.Conn, name string) (doctor.Reason, error),
) cli.Verb {
	return cli.Verb{
		Use: use, Short: short,
		Long: short + `. The answer is one sentence, what it rests on, and what to do.
It fails with exit status 1 where nothing changes unless somebody acts.`,
		Flags: textOrJSON,
		Do: cli.Link(func(cmd *cobra.Command, args []string) error {
			o, err := cli.Options(cmd, nil)
			if err != nil {
				return err
			}
			o.Bare = true // it changes nothing, and a viewer may not
			c, err := natsq.Connect(cmd.Context(), o)
			switch {
			case errors.Is(err, jobs.ErrUnavailable):
				// No cluster is the cause, so there are no facts about the job or swarm.
				return printReason(
					cmd,
					doctor.JobReason(doctor.JobFacts{ID: args[0], Servers: doctor.ServerFacts{Error: err}}),
				)
			case err != nil:
				return err
			}
			defer c.Close()
			r, err := why(cmd.Context(), c, args[0])
			if err != nil {
				return err
			}
			return printReason(cmd, r)
		}),
	}
}

// errStuck ends a command whose answer is that somebody must act. The answer is printed before.
var errStuck = errors.New("it does not progress unless somebody acts")

// printReason prints a reason as JSON, or as lines for people. Names in it come from the cluster,
// so they are cleaned for a terminal. It returns errStuck if nothing changes by itself.
func printReason(cmd *cobra.Command, r doctor.Reason) error {
	w := cmd.OutOrStdout()
	if format, _ := cmd.Flags().GetString("output"); format == "json" {
		data, err := json.MarshalIndent(r, "", "  ")
		if err != nil {
			return err
		}
		if _, err := w.Write(append(data, '\n')); err != nil {
			return err
		}
	} else {
		fmt.Fprintf(w, "%s\n", redact.Line(r.Sentence))
		for _, e := range r.Evidence {
			fmt.Fprintf(w, "  %s\n", redact.Line(e))
		}
		if r.Cure != "" {
			fmt.Fprintf(w, "what to do: %s\n", redact.Line(r.Cure))
		}
	}
	if r.Stuck {
		return errStuck
	}
	return nil
}
