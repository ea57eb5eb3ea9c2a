package gpuprocess

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
)

var (
	damageCount = flag.Int("damage.n", testkit.Of(16, 6), "damaged checkpoints in TestDamage")
	damageSeed  = flag.Uint64("damage.seed", 0, "seed of the damages; 0 takes one of the clock and logs it")
	damageJobs  = flag.Int("damage.jobs", 1, "damaged checkpoints at a time in TestDamage; -test.parallel bounds it "+
		"too")
)

// damages change a file, or two, of what an agent has kept.
var damages = []struct {
	name string
	do   func(r *rand.Rand, data []byte, other *[]byte) []byte // returns nil to delete the file
}{
	{"a bit flipped", func(r *rand.Rand, data []byte, _ *[]byte) []byte { flip(r, data, 0, len(data)); return data }},
	{"64 bits flipped", func(r *rand.Rand, data []byte, _ *[]byte) []byte {
		for range 64 {
			flip(r, data, 0, len(data))
		}
		return data
	}},
	{"a bit of the head flipped", func(r *rand.Rand, data []byte, _ *[]byte) []byte {
		flip(r, data, 0, min(len(data), 4096))
		return data
	}},
	{"the head overwritten", func(r *rand.Rand, data []byte, _ *[]byte) []byte {
		for i := range min(len(data), 64) {
			data[i] = byte(r.Uint32())
		}
		return data
	}},
	{"truncated", func(r *rand.Rand, data []byte, _ *[]byte) []byte { return data[:r.IntN(len(data))] }},
	{"a block zeroed", func(r *rand.Rand, data []byte, _ *[]byte) []byte {
		at := r.IntN(len(data)) &^ 4095
		clear(data[at:min(len(data), at+4096)])
		return data
	}},
	{"a block moved", func(r *rand.Rand, data []byte, _ *[]byte) []byte {
		from, to := r.IntN(len(data))&^4095, r.IntN(len(data))&^4095
		copy(data[to:], slices.Clone(data[from:min(len(data), from+4096)]))
		return data
	}},
	{"deleted", func(*rand.Rand, []byte, *[]byte) []byte { return nil }},
	{"emptied", func(_ *rand.Rand, data []byte, _ *[]byte) []byte { return data[:0] }},
	{"appended to", func(r *rand.Rand, data []byte, _ *[]byte) []byte {
		for range 1 + r.IntN(8192) {
			data = append(data, byte(r.Uint32()))
		}
		return data
	}},
	{"swapped with another", func(_ *rand.Rand, data []byte, other *[]byte) []byte {
		data, *other = *other, data
		return data
	}},
}

func flip(r *rand.Rand, data []byte, from, to int) {
	data[from+r.IntN(to-from)] ^= 1 << r.IntN(8)
}

// damagedScene is a swarm whose log is answered in full, and what an agent has kept of it at the
// half of its log.
type damagedScene struct {
	*rig
	id      string
	tiers   func(dir string) *checkpoints // over a folder
	options gpuagents.Options             // of its agents
	entries uint64
	answer  []byte            // to the question that says in what state all groups are
	pages   map[uint64][]byte // at the end of the log
	kept    map[string][]byte // files at the half of it
}

// newDamagedScene makes a scene; small leaves room for few pages in memory, so that the others are
// read from the tiers.
func newDamagedScene(t *testing.T, r *rig, id string, tiered bool) *damagedScene {
	t.Helper()
	s := &damagedScene{rig: r, id: id, tiers: func(dir string) *checkpoints { return checkpointsIn(dir) }}
	if tiered {
		s.tiers = func(dir string) *checkpoints {
			disks := newTiers(dir)
			disks[0].codec, disks[2].codec = pagestore.Codec{ID: pagestore.LZ4}, pagestore.Codec{ID: pagestore.Zstd}
			disks[0].age, disks[1].age = time.Millisecond, time.Millisecond // pages sink to the last one
			return newCheckpoints(disks...)
		}
		s.options = gpuagents.Options{PageMemory: 3 * coldPage, HostPageMemory: 2 * coldPage}
	}
	var ranges [][2]int
	for i := range 8 {
		ranges = append(ranges, [2]int{0, cold}, [2]int{3 * i % cold, cold})
	}
	all := observationsOf(ranges...)
	dir := t.TempDir()
	r.announceCold(t, id, all[:8])
	a := s.agent(t, dir)
	r.answered(t, id, 8)
	a.Stop()
	s.kept = filesBelow(t, dir)
	r.append(t, id, 8, all[8:])
	s.entries = uint64(len(all))
	// The undisturbed twin begins at the first entry and has no checkpoint.
	whole := t.TempDir()
	s.tiersOnce(t, whole, func(a *gpuagents.Agent) {
		r.answered(t, id, len(all))
		s.answer = s.ask(t)
	})
	s.pages = contents(t, checkpointsIn(whole), id)
	if len(s.pages) != cold {
		t.Fatalf("%d pages", len(s.pages))
	}
	return s
}

// agent starts an agent with what is kept in a folder.
func (s *damagedScene) agent(t *testing.T, dir string) *gpuagents.Agent {
	t.Helper()
	o := s.options
	o.Checkpoints = s.tiers(dir)
	return s.start(t, o)
}

// tiersOnce runs an agent that keeps everything in one folder and on its device.
func (s *damagedScene) tiersOnce(t *testing.T, dir string, f func(a *gpuagents.Agent)) {
	t.Helper()
	a := s.agentWith(t, checkpointsIn(dir))
	f(a)
	a.Stop()
}

// ask appends a question for the state of all groups, and returns the answer to it.
func (s *damagedScene) ask(t *testing.T) []byte {
	t.Helper()
	q := swarms.Query{Version: jobs.Version}
	for g := range uint32(cold) {
		q.Groups = append(q.Groups, g)
	}
	data, err := json.Marshal(q)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	if err := s.conn.Swarms.Log(s.id, 0, swarms.In).Append(t.Context(), s.entries,
		swarms.Entry{Kind: swarms.EntryQuery, Data: data}); err != nil {
		t.Fatalf("s.conn.Swarms.Log().Append: %v", err)
	}
	s.entries++
	s.answered(t, s.id, int(s.entries))
	last, err := s.conn.Swarms.Log(s.id, 0, swarms.Out).Last(t.Context())
	if err != nil || last.Kind != swarms.EntryState {
		t.Fatalf("the answer to a question is %s %s: %v", last.Kind, last.Data, err)
	}
	return last.Data
}

// filesBelow returns the files below a folder.
func filesBelow(t *testing.T, dir string) map[string][]byte {
	t.Helper()
	all := map[string][]byte{}
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		name, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		all[name], err = os.ReadFile(path)
		return err
	})
	if err != nil || len(all) == 0 {
		t.Fatalf("%d files: %v", len(all), err)
	}
	return all
}

// damage writes what was kept into a folder, with one damage, and says what it is.
func (s *damagedScene) damage(t *testing.T, r *rand.Rand, dir string) string {
	t.Helper()
	var names, segments []string
	for name, data := range s.kept {
		switch {
		case len(data) == 0:
		case filepath.Ext(name) == ".seg":
			segments = append(segments, name)
		default:
			names = append(names, name)
		}
	}
	slices.Sort(names)
	slices.Sort(segments)
	// pages and the index are damaged as often as each other, whatever the number of their files
	pick := func() string {
		if from := [][]string{names, segments}[r.IntN(2)]; len(from) > 0 {
			return from[r.IntN(len(from))]
		}
		return names[r.IntN(len(names))]
	}
	name, other := pick(), pick()
	d := damages[r.IntN(len(damages))]
	swapped := slices.Clone(s.kept[other])
	changed := d.do(r, slices.Clone(s.kept[name]), &swapped)
	for file, data := range s.kept {
		switch file {
		case name:
			data = changed
		case other:
			data = swapped
		}
		path := filepath.Join(dir, file)
		if data == nil {
			continue
		}
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700), os.WriteFile(path, data, 0o600)); err != nil {
			t.Fatalf("errors.Join: %v", err)
		}
	}
	return fmt.Sprintf("%s: %s", name, d.name)
}

// TestDamage damages what an agent has kept, in one folder and over three tiers, and starts an
// agent with it. It resumes or starts from the log; the state of every agent of the swarm at the
// end of the log, and the pages that it stores, are the same as of an agent that was not disturbed.
// The slice that runs with all tests is small; make damage is the campaign.
func TestDamage(t *testing.T) {
	seed := *damageSeed
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	for job := range *damageJobs {
		t.Run(fmt.Sprint(job), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, uint64(job)))
			count := (*damageCount + *damageJobs - 1) / *damageJobs
			resumed, stored := 0, 0
			began := time.Now()
			const each = 200 // a scene's log grows by a question each time
			for done := 0; done < count; done += each {
				of := min(each, count-done)
				for i, tiered := range []bool{false, true} {
					n := (of + i) / 2
					if n == 0 {
						continue
					}
					c := newRig(t)
					s := newDamagedScene(t, c, fmt.Sprintf("d%s", natsconn.NewID()[:8]), tiered)
					for range n {
						was, stores := s.survives(t, r)
						resumed, stored = resumed+was, stored+stores
					}
					c.conn.Close()
					c.server.Close()
				}
			}
			t.Logf("seed %d: %d damages, %d resumed, %d stored their pages again, wrong 0, panics 0, %.1f a second",
				seed, count, resumed, stored, float64(count)/time.Since(began).Seconds())
		})
	}
}

// survives damages what is kept once, and returns 1 when an agent resumed from it nevertheless, and
// 1 when it stored all pages at its end.
func (s *damagedScene) survives(t *testing.T, r *rand.Rand) (resumed, stored int) {
	t.Helper()
	dir := t.TempDir()
	defer os.RemoveAll(dir) // a campaign calls this thousands of times
	what := s.damage(t, r, dir)
	s.Reset()
	a := s.agent(t, dir)
	got := s.ask(t)
	a.Stop()
	log := s.String()
	if !bytes.Equal(got, s.answer) {
		t.Fatalf("%s: the state of the swarm differs from an undisturbed swarm\n%s", what, log)
	}
	if strings.Contains(log, "shard resumed from its checkpoint") {
		resumed = 1
	}
	if strings.Contains(log, "checkpoint stored") && !strings.Contains(log, "checkpoint not stored") {
		stored = 1
		left := contents(t, s.tiers(dir), s.id)
		for page, want := range s.pages {
			if !bytes.Equal(left[page], want) {
				t.Fatalf("%s: page %d differs from an undisturbed agent\n%s", what, page, log)
			}
		}
	}
	return resumed, stored
}
