// Command quantum cuts a random graph in two, so that as many edges as possible are cut: by QAOA in
// the simulator of a GPU agent, whose readings a swarm votes about, by simulated annealing, and by
// trying all cuts. It prints what each finds and how long it takes.
//
//	exoswarm serve --data-dir /tmp/exoswarm &
//	go run -C examples ./quantum -nodes 16 -layers 3
//
// A job runs the circuit for many rows of angles at once. The simulator computes 2^nodes amplitudes
// for each row, so it does more work than the trial of all cuts: QAOA is here to be studied. On the
// host device 16 nodes take a minute, and 20 nodes need gpuagent --gpu-job-timeout 10m.
package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math"
	"math/bits"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/gpuagents/swarmclient"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

func main() {
	url := flag.String("nats", "nats://127.0.0.1:4222", "URL of the NATS server")
	nodes := flag.Int("nodes", 16, "nodes of the graph: an even number, 12 to 20")
	layers := flag.Int("layers", 3, "layers of the circuit, 1 to 8")
	seed := flag.Uint64("seed", 1, "seed of the graph, the angles and the shots")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	if err := run(ctx, *url, *nodes, *layers, *seed, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// run cuts a graph in all three ways, and prints a line for each.
func run(ctx context.Context, url string, nodes, layers int, seed uint64, out io.Writer) error {
	if nodes < 12 || nodes > 20 || nodes%2 != 0 || layers < 1 || layers > 8 {
		return fmt.Errorf("%d nodes, %d layers: use an even number from 12 to 20, and 1 to 8 layers", nodes, layers)
	}
	random := rand.New(rand.NewPCG(seed, 0))
	g := newGraph(nodes, random)
	fmt.Fprintf(out, "%d nodes, %d edges\n", nodes, len(g.edges))

	began := time.Now()
	best := g.all()
	fmt.Fprintf(out, "all cuts:            %d edges, %.6f s\n", g.cut(best), time.Since(began).Seconds())

	began = time.Now()
	found := g.anneal(random, 200)
	fmt.Fprintf(out, "simulated annealing: %d edges, %.6f s\n", g.cut(found), time.Since(began).Seconds())

	conn, err := natsq.Connect(ctx, natsconn.Options{URL: url, Name: "example"})
	if err != nil {
		return err
	}
	defer conn.Close()
	began = time.Now()
	q := &qaoa{graph: g, layers: layers, seed: seed, random: random, conn: conn}
	angles, mean, err := q.search(ctx)
	if err != nil {
		return err
	}
	readings, err := q.read(ctx, angles)
	if err != nil {
		return err
	}
	found = slices.MaxFunc(readings, g.compare)
	fmt.Fprintf(out, "QAOA:                %d edges in the best of %d shots, %.1f in the mean, %.6f s\n", g.cut(found),
		shots, mean, time.Since(began).Seconds())
	fmt.Fprintf(out, "  %d runs of the circuit; the simulator took %.6f s\n", q.runs, q.seconds)

	began = time.Now()
	found, votes, err := g.vote(ctx, conn, readings)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "the vote of a swarm: %d edges, by %d of %d agents, %.6f s\n", g.cut(found), votes, readers,
		time.Since(began).Seconds())
	return nil
}

// compare orders cuts by their edges and, of as many, by their masks.
func (g *graph) compare(a, b uint64) int {
	return cmp.Or(cmp.Compare(g.cut(a), g.cut(b)), cmp.Compare(b, a))
}

// readers are the agents of the swarm that votes. Each reads as many of the shots.
const readers = 50

// readersSpec is a swarm of agents with four qubits, which an observation sets to the number of a
// cut: an angle of pi turns a qubit from 0 to 1. The circuit measures alone, so an agent votes for
// that number.
const readersSpec = `
name: readers
addressed: agent
agents: 50
features: [bit0, bit1, bit2, bit3]
cell:
  kind: quantum
  circuit: qubit[4] q; bit[4] c; c = measure q;
`

// vote makes a swarm whose agents each know some of the readings and vote for the best of them, and
// returns the cut that most have voted for, and their number. The candidates are the 16 best cuts
// of all.
func (g *graph) vote(ctx context.Context, conn *natsq.Conn, readings []uint64) (cut uint64, votes uint64, err error) {
	candidates := slices.Compact(slices.SortedFunc(slices.Values(readings), func(a, b uint64) int {
		return g.compare(b, a)
	}))
	candidates = candidates[:min(len(candidates), 16)]
	client, err := swarmclient.New(swarmclient.Options{Swarms: conn.Swarms, Agents: conn.Registry, Jobs: conn.Queue})
	if err != nil {
		return 0, 0, err
	}
	spec, err := swarm.Parse("readers.yaml", []byte(readersSpec))
	if err != nil {
		return 0, 0, err
	}
	s, err := client.Create(ctx, spec, nil)
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, client.Delete(context.WithoutCancel(ctx), s.ID(), nil)) }()
	seen := &batch.AgentObservations{Width: 4}
	for agent := range readers {
		known := readings[agent*shots/readers : (agent+1)*shots/readers]
		number := slices.Index(candidates, slices.MaxFunc(known, g.compare))
		if number < 0 { // none of the candidates: it abstains
			continue
		}
		seen.Agent = append(seen.Agent, uint32(agent))
		for bit := range 4 {
			seen.Features = append(seen.Features, float32(number>>bit&1)*math.Pi)
		}
	}
	if _, err := s.Observe(ctx, seen, func(*batch.AgentDecisions) error { return nil }); err != nil {
		return 0, 0, err
	}
	of, err := s.Vote(ctx, swarms.Vote{})
	if err != nil {
		return 0, 0, err
	}
	if of.Winner == nil {
		return 0, 0, errors.New("the swarm has no winner")
	}
	return candidates[*of.Winner], of.Counts[*of.Winner], nil
}

// graph has three edges at each node. A cut is a mask: the nodes of one side.
type graph struct {
	nodes int
	edges [][2]int
}

// newGraph returns a ring with a random chord at each node.
func newGraph(nodes int, random *rand.Rand) *graph {
	for {
		g := &graph{nodes: nodes}
		for i := range nodes {
			g.edges = append(g.edges, [2]int{i, (i + 1) % nodes})
		}
		for order := random.Perm(nodes); len(order) > 0; order = order[2:] {
			a, b := order[0], order[1]
			if d := (b - a + nodes) % nodes; d != 1 && d != nodes-1 { // no edge of the ring
				g.edges = append(g.edges, [2]int{a, b})
			}
		}
		if len(g.edges) == 3*nodes/2 {
			return g
		}
	}
}

// cut returns the number of edges between the sides.
func (g *graph) cut(side uint64) (n int) {
	for _, e := range g.edges {
		n += int((side>>e[0] ^ side>>e[1]) & 1)
	}
	return n
}

// all tries all cuts and returns the best one.
func (g *graph) all() (best uint64) {
	masks := make([]uint64, len(g.edges))
	for i, e := range g.edges {
		masks[i] = 1<<e[0] | 1<<e[1]
	}
	most := 0
	for side := range uint64(1) << (g.nodes - 1) { // the last node is always on the same side
		n := 0
		for _, m := range masks {
			n += bits.OnesCount64(side&m) & 1
		}
		if n > most {
			best, most = side, n
		}
	}
	return best
}

// anneal moves nodes to the other side at random, ever less often where that cuts fewer edges, and
// returns the best cut that it has seen.
func (g *graph) anneal(random *rand.Rand, sweeps int) (best uint64) {
	side := random.Uint64N(1 << g.nodes)
	best = side
	cut := g.cut(side)
	most := cut
	for sweep := range sweeps {
		temperature := 2 * math.Pow(0.01, float64(sweep)/float64(sweeps))
		for range g.nodes {
			next := side ^ 1<<random.IntN(g.nodes)
			n := g.cut(next)
			if n >= cut || random.Float64() < math.Exp(float64(n-cut)/temperature) {
				side, cut = next, n
			}
			if cut > most {
				best, most = side, cut
			}
		}
	}
	return best
}

// Sizes of the search.
const (
	rows   = 256  // runs of a job
	rounds = 8    // jobs of a layer
	shots  = 1000 // of the last job
)

// qaoa searches the angles of a circuit whose readings are good cuts.
type qaoa struct {
	*graph
	layers int
	seed   uint64
	random *rand.Rand
	conn   *natsq.Conn

	runs    int
	seconds float64
}

// search adds layer after layer. Each round draws angles around the best ones, in one job. It
// returns the angles with the largest mean cut, and that mean.
func (q *qaoa) search(ctx context.Context) (best []float64, mean float64, err error) {
	for layer := 1; layer <= q.layers; layer++ {
		best = append(best, 0, 0) // a layer that changes nothing
		width := 1.0
		for range rounds {
			all := append([]float64(nil), best...)
			for len(all) < rows*len(best) {
				for _, a := range best {
					all = append(all, a+width*q.random.NormFloat64())
				}
			}
			means, err := q.means(ctx, layer, all)
			if err != nil {
				return nil, 0, err
			}
			at := 0
			for i, m := range means {
				if m > means[at] {
					at = i
				}
			}
			best, mean = all[at*len(best):(at+1)*len(best):(at+1)*len(best)], means[at]
			width *= 0.6
		}
	}
	return best, mean, nil
}

// means returns the mean cut for each row of angles, in one job.
func (q *qaoa) means(ctx context.Context, layers int, angles []float64) ([]float64, error) {
	var out gpujob.CircuitOutput
	parameters := gpujob.From(angles, rows, int64(2*layers))
	s := &gpujob.CircuitSpec{QASM: q.text(layers), Parameters: &parameters}
	for _, e := range q.edges {
		letters := []byte(strings.Repeat("I", q.nodes))
		letters[q.nodes-1-e[0]], letters[q.nodes-1-e[1]] = 'Z', 'Z'
		s.Expect = append(s.Expect, string(letters))
	}
	if err := q.do(ctx, s, &out); err != nil {
		return nil, err
	}
	values := gpujob.Decode[float64](out.Expect.Data)
	means := make([]float64, rows)
	for i, zz := range values {
		means[i/len(q.edges)] += (1 - zz) / 2
	}
	return means, nil
}

// read returns the cuts of the shots of a circuit. Of the two masks of a cut it has the one with
// the last node on side 0.
func (q *qaoa) read(ctx context.Context, angles []float64) ([]uint64, error) {
	var out gpujob.CircuitOutput
	parameters := gpujob.From(angles, 1, int64(len(angles)))
	s := &gpujob.CircuitSpec{
		QASM: q.text(q.layers), Parameters: &parameters, Shots: shots, Seed: q.seed,
		Return: []string{gpujob.ReturnSamples},
	}
	if err := q.do(ctx, s, &out); err != nil {
		return nil, err
	}
	readings := gpujob.Decode[uint64](out.Samples.Data)
	for i, side := range readings {
		if side>>(q.nodes-1) != 0 {
			readings[i] = side ^ (1<<q.nodes - 1)
		}
	}
	return readings, nil
}

// text returns the circuit: all cuts at once, and in each layer a phase for each edge that is cut
// and a turn of each node.
func (q *qaoa) text(layers int) string {
	var b strings.Builder
	b.WriteString("OPENQASM 3.0;\ninclude \"stdgates.inc\";\n")
	for l := range layers {
		fmt.Fprintf(&b, "input float gamma%d;\ninput float beta%d;\n", l, l)
	}
	fmt.Fprintf(&b, "qubit[%d] q;\nbit[%d] c;\nh q;\n", q.nodes, q.nodes)
	for l := range layers {
		for _, e := range q.edges {
			fmt.Fprintf(&b, "cx q[%d], q[%d]; rz(gamma%d) q[%d]; cx q[%d], q[%d];\n", e[0], e[1], l, e[1], e[0], e[1])
		}
		fmt.Fprintf(&b, "rx(beta%d) q;\n", l)
	}
	b.WriteString("c = measure q;\n")
	return b.String()
}

func (q *qaoa) do(ctx context.Context, s *gpujob.CircuitSpec, out *gpujob.CircuitOutput) error {
	job, err := gpujob.NewJob(natsconn.NewID(), s)
	if err != nil {
		return err
	}
	if err := q.conn.Queue.Submit(ctx, job); err != nil {
		return err
	}
	result, err := q.conn.Results.Result(ctx, job.ID)
	if err != nil {
		return err
	}
	if result.Error != nil {
		return result.Error
	}
	if err := json.Unmarshal(result.Output, out); err != nil {
		return err
	}
	q.runs += int(s.Runs())
	q.seconds += out.Seconds
	return nil
}
