package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// Heat is a variable of the agents of a swarm as cells. The parts of its shards follow one another.
type Heat struct {
	Swarm    string `json:"swarm"` // id
	Variable string `json:"variable"`
	// Variables are the variables that can be drawn; vote is the candidate of the last vote.
	Variables []string `json:"variables"`
	Value     string   `json:"value"` // of a cell: mean, least or most
	// Least and Most are the range of the cells. A cell with a value is Least + (Most-Least) *
	// number/255.
	Least float32 `json:"least"`
	Most  float32 `json:"most"`
	// Cells has a byte for each cell.
	Cells []byte `json:"cells"`
	// States are runs of cells: a length and a state. 0: all agents of the cell are on the device;
	// 1: some of them are, and the value is over these; 2: none is, and the value is of an earlier
	// moment; 3: none is, and there is no value; 4: no agent has a value; 5: the shard does not
	// answer.
	States [][2]int   `json:"states"`
	Parts  []HeatPart `json:"parts"`
	// Grid is set if the agents are on a grid. Each cell then has agents of one row of it, and all
	// cells as many.
	Grid *Grid `json:"grid,omitempty"`
	// Map is set if the cells are places in a box, or neurons over ticks, and not consecutive agents.
	Map *Map `json:"map,omitempty"`
}

// Map is a picture whose cells are in rows. The cells are numbers of agents.
type Map struct {
	Columns int `json:"columns"`
	// Width and Height are the sides of a box, the first and the second; 0: columns are ticks.
	Width  float64 `json:"width,omitempty"`
	Height float64 `json:"height,omitempty"`
	// Tick is the number of the tick of the last column, from 1 on, and Per the most agents of a row.
	Tick int64 `json:"tick,omitempty"`
	Per  int   `json:"per,omitempty"`
}

// mapOf returns the map of a picture of a swarm; nil: its cells are consecutive agents.
func mapOf(sw Swarm, p telemetry.Picture) *Map {
	var spec swarm.Spec
	if p.Columns < 1 || json.Unmarshal(sw.Spec, &spec) != nil {
		return nil
	}
	m := &Map{Columns: p.Columns}
	if spec.Topology().Picture == swarm.PictureBox {
		sides := spec.Neighbours.Space.Sides()
		m.Width, m.Height = sides[0], sides[1]
	} else {
		m.Tick, m.Per = p.Tick, p.Per
	}
	return m
}

// Grid is the size of a grid, in agents. The height of one of three dimensions is the rows of all
// layers.
type Grid struct {
	Width  int64 `json:"width"`
	Height int64 `json:"height"`
}

// gridOf returns the grid of a swarm, and how many agents share one of at most cells cells. It is
// nil if the agents are on no grid, or a cell would have agents of several rows.
func gridOf(sw Swarm, cells int) (g *Grid, per int64) {
	var spec swarm.Spec
	if len(sw.Shards) != 1 || json.Unmarshal(sw.Spec, &spec) != nil || spec.Neighbours.Width < 1 {
		return nil, 0
	}
	g = &Grid{Width: spec.Neighbours.Width, Height: spec.Neighbours.Rows()}
	for per = (sw.Agents + int64(cells) - 1) / int64(cells); per <= g.Width; per++ {
		if g.Width%per == 0 {
			return g, per
		}
	}
	return nil, 0
}

// HeatPart is a shard in a Heat.
type HeatPart struct {
	Shard  int    `json:"shard"`
	Holder string `json:"holder,omitempty"`
	Error  string `json:"error,omitempty"` // why there is no picture of it
	// First is its first cell and Cells their number. Cell First+i has Per agents from Agent+i*Per
	// on, and the last cell the rest. Agents is the number of agents of the shard.
	First  int       `json:"first"`
	Cells  int       `json:"cells"`
	Agent  int64     `json:"agent"`
	Agents int64     `json:"agents"`
	Per    int64     `json:"per"`
	At     time.Time `json:"at,omitzero"`
	Took   int64     `json:"took_ns,omitempty"` // of the shard
}

// silent is the state of cells of a shard that does not answer.
const silent = 5

// PageMaps says where the pages of a swarm are.
type PageMaps struct {
	Swarm string      `json:"swarm"` // id
	Parts []ShardMaps `json:"parts"`
}

// ShardMaps is where the pages of a shard are.
type ShardMaps struct {
	Shard  int    `json:"shard"`
	Holder string `json:"holder,omitempty"`
	Error  string `json:"error,omitempty"` // why there is no map of it
	telemetry.PageMap
}

// Timeline is the stages of the last batches of an agent.
type Timeline struct {
	telemetry.Timeline
	// Names are the names of swarms by their keys.
	Names map[string]string `json:"names"`
}

const (
	// mostParts bounds the shards that a view of a swarm asks.
	mostParts = 256
	// viewFor bounds the answer of a shard. A shard limits the share of its time for views, so it
	// may answer late.
	viewFor = 4 * time.Second
)

// Heat returns a variable of the agents of a swarm, by its name or id, as at most size times size
// cells. An empty variable stands for the one that shows most. value is mean, least or most. The
// shards draw it, which takes at most two percent of their time. It fails with jobs.ErrNotFound if
// there is no such swarm. A part whose shard does not answer says why.
func (w *Watcher) Heat(ctx context.Context, name, variable, value string, size int) (Heat, error) {
	sw, err := w.swarm(name)
	if err != nil {
		return Heat{}, err
	}
	size = min(max(size, 1), 512)
	cells := size * size
	grid, per := gridOf(sw, cells)
	if grid != nil {
		cells = int(sw.Agents / per)
	}
	pictures := make([]telemetry.Picture, len(sw.Shards))
	errs, err := w.views(ctx, sw, cells, func(ctx context.Context, sh Shard, cells int) error {
		return w.conn.Telemetry.AskView(ctx, sh.Holder, telemetry.View{
			What: telemetry.ViewPicture, Swarm: sw.Key, Shard: sh.Shard, Variable: variable, Value: value, Cells: cells,
		}, &pictures[sh.Shard])
	})
	if err != nil {
		return Heat{}, err
	}
	h := Heat{
		Swarm: sw.ID, Value: value, Variables: []string{}, Parts: []HeatPart{}, Cells: []byte{}, States: [][2]int{},
	}
	h.merge(sw, pictures, errs)
	// A variable of groups has fewer units than agents, and no grid.
	if grid != nil && h.Parts[0].Per == per {
		h.Grid = grid
	}
	if len(pictures) == 1 && errs[0] == nil {
		h.Map = mapOf(sw, pictures[0])
	}
	return h, nil
}

// merge puts the pictures of the shards behind one another, in the range of all. errs has why a
// shard has none.
func (h *Heat) merge(sw Swarm, pictures []telemetry.Picture, errs []error) {
	first := true
	for i, p := range pictures {
		if errs[i] != nil {
			continue
		}
		if h.Variable, h.Variables = p.Variable, p.Variables; !shown(p) {
			continue
		}
		if first {
			h.Least, h.Most, first = p.Least, p.Most, false
		}
		h.Least, h.Most = min(h.Least, p.Least), max(h.Most, p.Most)
	}
	each := int64(1)
	if sw.Groups > 0 {
		each = sw.Agents / int64(sw.Groups)
	}
	for i, sh := range sw.Shards {
		part := HeatPart{
			Shard: sh.Shard, Holder: sh.Holder, First: len(h.Cells), Cells: 1, Agent: int64(sh.First) * each,
			Agents: int64(sh.End-sh.First) * each,
		}
		part.Per = part.Agents
		if err := errs[i]; err != nil {
			part.Error = err.Error()
			h.Cells = append(h.Cells, 0)
			h.state(silent)
		} else {
			p := pictures[i]
			part.Cells, part.Per, part.At, part.Took = len(p.States), int64(p.Per)*int64(p.Each), p.At, p.Took
			h.add(p)
		}
		h.Parts = append(h.Parts, part)
	}
}

func shown(p telemetry.Picture) bool {
	for _, s := range p.States {
		if s <= telemetry.CellKept {
			return true
		}
	}
	return false
}

func (h *Heat) add(p telemetry.Picture) {
	span := float64(h.Most) - float64(h.Least)
	for i, state := range p.States {
		number := byte(0)
		if state <= telemetry.CellKept && span > 0 {
			at := float64(uint16(p.Cells[2*i])|uint16(p.Cells[2*i+1])<<8) / 65535
			v := float64(p.Least) + (float64(p.Most)-float64(p.Least))*at
			number = byte(min(255, max(0, (v-float64(h.Least))/span*255+0.5)))
			if p.Columns > 0 && v > 0 {
				number = max(number, 1) // 0 is nobody
			}
		}
		h.Cells = append(h.Cells, number)
		h.state(int(state))
	}
}

// state appends a cell to the runs of states.
func (h *Heat) state(s int) {
	if n := len(h.States); n > 0 && h.States[n-1][1] == s {
		h.States[n-1][0]++
		return
	}
	h.States = append(h.States, [2]int{1, s})
}

// PageMaps returns where the pages of a swarm are, by its name or id, as at most size times size
// cells. It fails like Heat.
func (w *Watcher) PageMaps(ctx context.Context, swarm string, size int) (PageMaps, error) {
	sw, err := w.swarm(swarm)
	if err != nil {
		return PageMaps{}, err
	}
	size = min(max(size, 1), 512)
	found := make([]telemetry.PageMap, len(sw.Shards))
	errs, err := w.views(ctx, sw, size*size, func(ctx context.Context, sh Shard, cells int) error {
		return w.conn.Telemetry.AskView(ctx, sh.Holder, telemetry.View{
			What: telemetry.ViewPages, Swarm: sw.Key, Shard: sh.Shard, Cells: cells,
		}, &found[sh.Shard])
	})
	if err != nil {
		return PageMaps{}, err
	}
	m := PageMaps{Swarm: sw.ID, Parts: []ShardMaps{}}
	for i, sh := range sw.Shards {
		part := ShardMaps{Shard: sh.Shard, Holder: sh.Holder, PageMap: found[i]}
		if errs[i] != nil {
			part.Error, part.PageMap = errs[i].Error(), telemetry.PageMap{}
		}
		m.Parts = append(m.Parts, part)
	}
	return m, nil
}

// views asks the holders of all shards of a swarm for their part of the cells: several holders at a
// time, each for one shard at a time. It returns by shard why it has no part. An invalid question
// is a *jobs.Error of CodeInvalid.
func (w *Watcher) views(ctx context.Context, sw Swarm, cells int, ask func(ctx context.Context, sh Shard,
	cells int) error,
) ([]error, error) {
	if n := len(sw.Shards); n > mostParts || n > cells {
		return nil, jobs.Errorf(jobs.CodeInvalid, "swarm %s has %d shards: a view shows at most %d", sw.Name, n,
			min(mostParts, cells))
	}
	errs := make([]error, len(sw.Shards))
	holders := map[string][]Shard{}
	for i, sh := range sw.Shards {
		if sh.Holder == "" {
			errs[i] = fmt.Errorf("shard %d of swarm %s: no agent serves it: %w", sh.Shard, sw.Name, jobs.ErrNotFound)
			continue
		}
		holders[sh.Holder] = append(holders[sh.Holder], sh)
	}
	left := cells - len(sw.Shards) // each shard has one at least
	var all sync.WaitGroup
	for _, shards := range holders {
		all.Go(func() {
			for _, sh := range shards {
				own := 1 + int(int64(left)*int64(sh.End-sh.First)/int64(max(sw.Groups, 1)))
				ctx, cancel := context.WithTimeout(ctx, viewFor)
				errs[sh.Shard] = ask(ctx, sh, min(own, telemetry.MaxCells))
				cancel()
			}
		})
	}
	all.Wait()
	for _, err := range errs {
		var refused *jobs.Error
		if errors.As(err, &refused) && refused.Code == jobs.CodeInvalid {
			return nil, err // any shard refuses such a question
		}
	}
	return errs, nil
}

func (w *Watcher) swarm(name string) (Swarm, error) { return w.State().Swarm(name) }

// Swarm finds a swarm by its id, else by its name: the swarms of several runs of one specification
// have the same name. It fails with jobs.ErrNotFound.
func (s *State) Swarm(name string) (Swarm, error) {
	for _, sw := range s.Swarms {
		if sw.ID == name {
			return sw, nil
		}
	}
	for _, sw := range s.Swarms {
		if sw.Name == name {
			return sw, nil
		}
	}
	return Swarm{}, fmt.Errorf("swarm %q: %w", name, jobs.ErrNotFound)
}

// Timeline returns the stages of the batches of a GPU agent that ended within a number of seconds,
// at most 4,096. It fails with jobs.ErrNotFound if no such agent answers.
func (w *Watcher) Timeline(ctx context.Context, agent string, seconds int) (Timeline, error) {
	t, err := AskTimeline(ctx, w.conn, agent, seconds)
	if err != nil {
		return t, err
	}
	for _, sw := range w.State().Swarms {
		t.Names[sw.Key] = sw.Name
	}
	return t, nil
}

// AskTimeline is Watcher.Timeline over a connection, without the names of swarms.
func AskTimeline(ctx context.Context, c *natsq.Conn, agent string, seconds int) (Timeline, error) {
	t := Timeline{Names: map[string]string{}}
	ctx, cancel := context.WithTimeout(ctx, viewFor)
	defer cancel()
	v := telemetry.View{What: telemetry.ViewTimeline, Seconds: seconds}
	err := c.Telemetry.AskView(ctx, agent, v, &t.Timeline)
	return t, err
}
