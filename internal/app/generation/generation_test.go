package generation_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/internal/app/generation"
	"github.com/exoswarm/exoswarm/internal/app/generation/generationtest"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

// numbers writes a token as its number and a comma.
type numbers struct{}

func (numbers) Add(id int32) string { return fmt.Sprintf("%d,", id) }
func (numbers) Flush() string       { return "." }

func opened(t *testing.T, a *generationtest.Agent, agents int) *generation.Generator {
	t.Helper()
	g, err := generation.Open(t.Context(), generation.Options{
		In: a.In, Out: a.Out, Keys: statelog.NewKeys(a.Conn.Swarms.Log(a.Key, statelog.KeyShard, swarms.In)),
		Agents: agents, Context: a.Context, Decoder: func() generation.Decoder { return numbers{} },
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Close)
	return g
}

// row returns n tokens, which depend on a seed.
func row(seed, n int) (all []int32) {
	for i := range n {
		all = append(all, generationtest.Hash([]int32{int32(i)}, uint64(seed), 256))
	}
	return all
}

// twin returns the answer to a request, as the double of a model makes it.
func twin(r generation.Request, seed uint64) (text string) {
	all := slices.Clone(r.Tokens)
	for range r.Max {
		all = append(all, generationtest.Hash(all, seed, 256))
		text += numbers{}.Add(all[len(all)-1])
	}
	return text + "."
}

func start(t *testing.T, g *generation.Generator, r generation.Request) *generation.Stream {
	t.Helper()
	s, err := g.Start(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// rest reads a stream to its end, and closes it.
func rest(t *testing.T, s *generation.Stream) (text string, pieces []generation.Piece) {
	t.Helper()
	defer s.Close()
	for {
		p, err := s.Next(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		text += p.Text
		if pieces = append(pieces, p); p.Finish != "" {
			return text, pieces
		}
	}
}

// TestAnswers: many conversations at a time have the answers that each has alone, and eight ticks
// are in flight.
func TestAnswers(t *testing.T) {
	a := generationtest.Start(t, 8, 512)
	g := opened(t, a, 8)
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			for n := range 3 {
				r := generation.Request{
					Conversation: fmt.Sprint("c", i), Tokens: row(10*i+n, 3+17*i+n), Max: 5 + 9*n, Seeded: true,
				}
				r.Sampling.Seed = uint64(i + 1)
				s, err := g.Start(t.Context(), r)
				if err != nil {
					t.Error(err)
					return
				}
				text := ""
				var p generation.Piece
				for p.Finish == "" {
					if p, err = s.Next(t.Context()); err != nil {
						t.Error(err)
						break
					}
					text += p.Text
				}
				if want := twin(r, uint64(i+1)); text != want || p.At != len(r.Tokens)+r.Max ||
					p.Finish != generation.FinishLength || s.Drawn() != r.Max {
					t.Errorf("conversation %d: %v, %d tokens: %q, want %q", i, p, s.Drawn(), text, want)
				}
				s.Close()
			}
		})
	}
	all.Wait()
	testkit.Until(t, "no agent is active", func() bool { return a.Active() == 0 })
	s := start(t, g, generation.Request{Tokens: row(1, 3)})
	a.Stop()
	inFlight := func() uint64 {
		in, err := a.In.Last(t.Context())
		out, also := a.Out.Last(t.Context())
		if err != nil || also != nil {
			t.Fatal(err, also)
		}
		return in.Seq - out.Ref
	}
	testkit.Until(t, "eight ticks are in flight", func() bool { return inFlight() >= 8 })
	if n := inFlight(); n > 8 {
		t.Errorf("%d ticks are in flight", n)
	}
	a.Run(t) // another process takes the swarm over
	if text, _ := rest(t, s); strings.Count(text, ",") != 512-3 {
		t.Errorf("behind a takeover there are %d tokens", strings.Count(text, ","))
	}
}

// TestPrefix: a conversation reads only what is new in it, and what another one has read is a fork.
func TestPrefix(t *testing.T) {
	a := generationtest.Start(t, 3, 1024)
	g := opened(t, a, 3)
	system := row(1, 200)
	ask := func(conversation string, tokens []int32, cached int) *generation.Stream {
		t.Helper()
		r := generation.Request{Conversation: conversation, Tokens: tokens, Max: 4, Seeded: true}
		s := start(t, g, r)
		if text, _ := rest(t, s); text != twin(r, 0) || s.Cached() != cached {
			t.Errorf("%s: %q with %d known tokens, want %q with %d", conversation, text, s.Cached(), twin(r, 0), cached)
		}
		return s
	}
	first := slices.Concat(system, row(2, 10))
	s := ask("a", first, 0)
	// The last token was made and not read.
	ask("a", slices.Concat(a.Tokens(int(s.Agent())), row(3, 7)), 213)
	other := ask("b", slices.Concat(system, row(4, 10)), 200)
	if other.Agent() == s.Agent() {
		t.Error("two conversations have one agent")
	}
	// A repeated question reads its last token again.
	ask("b", slices.Concat(system, row(4, 10)), 209)
	ask("b", row(5, 3), 0)
	// Without an id the agent with the same beginning goes on.
	s = ask("", row(6, 80), 0)
	if s2 := ask("", slices.Concat(row(6, 80), row(7, 9)), 80); s2.Agent() != s.Agent() {
		t.Errorf("agents %d and %d", s.Agent(), s2.Agent())
	}
	// The agents of conversations come last.
	if c := ask("c", row(8, 5), 0); c.Agent() != s.Agent() {
		t.Errorf("agent %d of a conversation was taken", c.Agent())
	}
	ask("d", row(9, 5), 0) // instead of a, which was not used for the longest time
	ask("b", row(5, 3), 2)
	ask("a", first, 0)
}

// TestResume: a stream that is left and continued has the same pieces, also in another process, and
// an agent without a reader is cancelled.
func TestResume(t *testing.T) {
	a := generationtest.Start(t, 4, 1<<20)
	g := opened(t, a, 4)
	r := generation.Request{Conversation: "a", Tokens: row(1, 40), Max: 60}
	text, pieces := rest(t, start(t, g, r))
	r.Conversation = "b"
	long := r
	long.Max = 0
	s := start(t, g, long)
	for range 10 {
		if _, err := s.Next(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	s.Close()
	testkit.Until(t, "the agent is cancelled", func() bool { return a.Active() == 0 })
	g.Close()
	g = opened(t, a, 4)
	r.Resume = true
	again, same := rest(t, start(t, g, r))
	if again == text || len(same) != len(pieces) {
		t.Fatalf("b has %q, as a", again)
	}
	r.Conversation = "a"
	if again, same := rest(t, start(t, g, r)); again != text || !slices.Equal(pieces, same) {
		t.Errorf("continued: %q, want %q", again, text)
	}
	// Every cut, while the former stream is still open, is closed, or the process is new.
	for cut := range 25 {
		r := generation.Request{Conversation: fmt.Sprint("cut", cut), Tokens: row(1, 20), Max: 30}
		s := start(t, g, r)
		var head []generation.Piece
		for range cut {
			p, err := s.Next(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			head = append(head, p)
		}
		switch cut % 3 {
		case 0:
			s.Close()
		case 1:
			g.Close()
			s.Close()
			g = opened(t, a, 4)
		default:
			defer s.Close()
		}
		r.Resume = true
		got, pieces := rest(t, start(t, g, r))
		if cut%3 == 2 {
			for {
				if _, err := s.Next(t.Context()); err != nil {
					if !errors.Is(err, generation.ErrTaken) {
						t.Errorf("the former stream: %v", err)
					}
					break
				}
			}
		}
		if !slices.Equal(head, pieces[:cut]) || strings.Count(got, ",") != 30 {
			t.Errorf("cut %d: %q", cut, got)
		}
		r.Resume, r.Conversation = false, r.Conversation+"x"
	}
	// A conversation that went on has the stream of its last request alone.
	r = generation.Request{Conversation: "on", Tokens: row(1, 20), Max: 5}
	rest(t, start(t, g, r))
	on := r
	on.Tokens = append(row(1, 20), row(2, 20)...)
	rest(t, start(t, g, on))
	r.Resume = true
	if _, err := g.Start(t.Context(), r); !errors.Is(err, generation.ErrResume) {
		t.Errorf("an earlier stream: %v", err)
	}
	// Other beginnings and conversations have no stream.
	for _, r := range []generation.Request{
		{Tokens: row(1, 40)}, {Conversation: "nobody", Tokens: row(1, 40)}, {Conversation: "a", Tokens: row(2, 40)},
	} {
		r.Resume = true
		if _, err := g.Start(t.Context(), r); !errors.Is(err, generation.ErrResume) {
			t.Errorf("%s: %v", r.Conversation, err)
		}
	}
}

// TestEnds: stop texts and ends end an answer, and are no part of its text.
func TestEnds(t *testing.T) {
	a := generationtest.Start(t, 2, 64)
	g := opened(t, a, 2)
	r := generation.Request{Conversation: "a", Tokens: row(1, 10), Max: 20, Seeded: true}
	all := strings.SplitAfter(strings.TrimSuffix(twin(r, 0), "."), ",")
	r.Stops = []string{"none", all[3][1:] + all[4] + all[5][:1]}
	text, pieces := rest(t, start(t, g, r))
	if want := strings.Join(all[:3], "") + all[3][:1]; text != want ||
		pieces[len(pieces)-1].Finish != generation.FinishStop {
		t.Errorf("until a text: %q, want %q", text, want)
	}
	r.Stops = nil
	var end int32
	fmt.Sscan(all[7], &end)
	r.Ends = []int32{end}
	s := start(t, g, r)
	if text, pieces := rest(t, s); text != strings.Join(all[:7], "")+"." ||
		pieces[len(pieces)-1].Finish != generation.FinishStop || s.Drawn() != 8 {
		t.Errorf("until a token: %q, %d tokens", text, s.Drawn())
	}
	r.Ends, r.Max = nil, 0
	s = start(t, g, r)
	if _, pieces := rest(t, s); pieces[len(pieces)-1].At != 64 || s.Drawn() != 54 {
		t.Errorf("until the end of the context: %v", pieces[len(pieces)-1])
	}
	s = start(t, g, generation.Request{Tokens: row(3, 50), Read: true})
	if _, pieces := rest(t, s); len(pieces) != 1 || s.Drawn() != 0 || len(a.Tokens(int(s.Agent()))) != 50 {
		t.Errorf("read alone: %v", pieces)
	}
}

// TestRefusals: what cannot be served is refused by the right error, and takes no agent.
func TestRefusals(t *testing.T) {
	a := generationtest.Start(t, 2, 64)
	g := opened(t, a, 2)
	if _, err := g.Start(t.Context(), generation.Request{Tokens: row(1, 64)}); !errors.Is(err, generation.ErrTooLong) {
		t.Errorf("a prompt as long as the context: %v", err)
	}
	var refused *jobs.Error
	if _, err := g.Start(t.Context(), generation.Request{}); !errors.As(err, &refused) {
		t.Errorf("no prompt: %v", err)
	}
	bad := generation.Request{Tokens: row(1, 3)}
	bad.Sampling.Temperature = -1
	if _, err := g.Start(t.Context(), bad); !errors.As(err, &refused) || refused.Code != jobs.CodeInvalid {
		t.Errorf("a prompt that the agent refuses: %v", err)
	}
	a.Stop()
	ctx, cancel := context.WithCancel(t.Context())
	var waits sync.WaitGroup
	for _, c := range []string{"a", "b"} {
		before, err := a.In.Last(ctx)
		if err != nil {
			t.Fatal(err)
		}
		waits.Go(func() {
			if _, err := g.Start(ctx, generation.Request{Conversation: c, Tokens: row(1, 3)}); !errors.Is(err,
				context.Canceled) {
				t.Errorf("%s: %v", c, err)
			}
		})
		testkit.Until(t, "the prompt is in the log", func() bool {
			last, err := a.In.Last(ctx)
			return err == nil && last.Seq > before.Seq
		})
	}
	if _, err := g.Start(t.Context(), generation.Request{Conversation: "a", Tokens: row(1, 3)}); !errors.Is(err,
		generation.ErrBusy) {
		t.Errorf("a conversation that is being answered: %v", err)
	}
	if _, err := g.Start(t.Context(), generation.Request{Tokens: row(1, 3)}); !errors.Is(err, generation.ErrFull) {
		t.Errorf("a third conversation of two agents: %v", err)
	}
	cancel()
	waits.Wait()
	a.Run(t)
	r := generation.Request{Conversation: "a", Tokens: row(1, 3), Max: 5, Seeded: true}
	if text, _ := rest(t, start(t, g, r)); text != twin(r, 0) {
		t.Errorf("behind a request that was given up: %q", text)
	}
}

// TestOthers: entries of other clients are followed, and end the streams of the conversations that
// they change.
func TestOthers(t *testing.T) {
	a := generationtest.Start(t, 2, 1<<20)
	g := opened(t, a, 2)
	r := generation.Request{Conversation: "a", Tokens: row(1, 40), Max: 10, Seeded: true}
	rest(t, start(t, g, r))
	s := start(t, g, generation.Request{Conversation: "b", Tokens: row(2, 40), Seeded: true})
	defer s.Close()
	say := func(kind, data string) {
		t.Helper()
		last := uint64(0)
		if err := statelog.Append(t.Context(), a.In, &last, swarms.Entry{Kind: kind, Data: []byte(data)},
			func(swarms.Entry) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	say(swarms.EntryTick, `{"v":1,"count":1}`)
	say(swarms.EntryCancel, fmt.Sprintf(`{"v":1,"agent":%d}`, s.Agent()))
	for {
		if _, err := s.Next(t.Context()); err != nil {
			if !errors.Is(err, generation.ErrTaken) {
				t.Errorf("a stream that another client has cancelled: %v", err)
			}
			break
		}
	}
	say(swarms.EntryPrompt, fmt.Sprintf(`{"v":1,"agent":%d,"tokens":[1,2],"max":1}`, 1-s.Agent()))
	testkit.Until(t, "the prompt of another client is there", func() bool {
		return len(a.Tokens(1-int(s.Agent()))) >= 52
	})
	again := start(t, g, r)
	if text, _ := rest(t, again); text != twin(r, 0) {
		t.Errorf("behind the prompt of another client: %q, want %q", text, twin(r, 0))
	}
}
