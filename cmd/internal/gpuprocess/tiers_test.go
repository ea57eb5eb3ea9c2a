package gpuprocess

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/tierstest"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// childAgent in the environment makes the test program a gpuagent.
const childAgent = "EXOSWARM_TEST_GPUAGENT"

// The swarm of these tests: a group fills a page, and few pages fit into memory.
const (
	cold     = 24       // groups, and pages
	coldPage = 64 << 10 // bytes of a page
	coldText = "name: cold\nagents_per_group: 600\npage_size: 64KiB\nseed: 3\ncheckpoint: {interval: 1h, entries: 2}\n"
)

// observationsOf are batches. Each is for the groups of a range, and has at least one row for every
// group.
func observationsOf(ranges ...[2]int) (all []*batch.Observations) {
	r := rand.New(rand.NewPCG(5, 1))
	var rows [cold]uint64
	for b, g := range ranges {
		o := &batch.Observations{Width: 1}
		for i := range 2 * (g[1] - g[0]) {
			group := g[0] + i%(g[1]-g[0])
			rows[group]++
			v := math.Sin(float64(b)/3+float64(group)) + 0.1*r.NormFloat64()
			o.Group = append(o.Group, uint32(group))
			o.Row = append(o.Row, rows[group])
			o.Time = append(o.Time, int64(b*1000+i)*1e9)
			o.Read = append(o.Read, 7)
			o.Timestamp = append(o.Timestamp, "")
			o.Value = append(o.Value, v)
			o.Features = append(o.Features, float32(v))
		}
		all = append(all, o)
	}
	return all
}

// announceCold makes the logs of a swarm of these tests, puts batches into one, and then the
// record.
func (r *rig) announceCold(t *testing.T, id string, batches []*batch.Observations) {
	t.Helper()
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := r.conn.Swarms.Log(id, 0, d).Create(t.Context()); err != nil {
			t.Fatalf("r.conn.Swarms.Log().Create: %v", err)
		}
	}
	r.append(t, id, 0, batches)
	spec, err := swarm.Parse("cold.yaml", []byte(coldText))
	if err != nil {
		t.Fatalf("swarm.Parse cold.yaml: %v", err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	r.record(t, swarms.Swarm{Version: jobs.Version, ID: id, Name: spec.Name, Spec: data, Groups: cold})
}

// undisturbed is what an agent with a frame for each page answers to batches, and the pages that it
// leaves.
func (r *rig) undisturbed(t *testing.T, batches []*batch.Observations) (answers [][]byte, pages map[uint64][]byte) {
	t.Helper()
	c := checkpointsIn(t.TempDir())
	r.announceCold(t, "whole", batches)
	a := r.agentWith(t, c)
	r.answered(t, "whole", len(batches))
	a.Stop()
	answers, pages = r.decisions(t, "whole", 1, len(batches)), contents(t, c, "whole")
	if err := r.conn.Swarms.RemoveSwarm(t.Context(), swarms.Swarm{ID: "whole"}); err != nil {
		t.Fatalf("r.conn.Swarms.RemoveSwarm: %v", err)
	}
	return answers, pages
}

// same compares the answers of a swarm, and the pages that it left, with an undisturbed swarm.
func (r *rig) same(t *testing.T, id string, c *checkpoints, answers [][]byte, pages map[uint64][]byte) {
	t.Helper()
	for i, got := range r.decisions(t, id, 1, len(answers)) {
		if !bytes.Equal(got, answers[i]) {
			t.Fatalf("answer %d differs from an undisturbed agent", i+1)
		}
	}
	left := contents(t, c, id)
	for page, want := range pages {
		if !bytes.Equal(left[page], want) {
			t.Fatalf("page %d differs from an undisturbed agent", page)
		}
	}
	if len(left) != len(pages) {
		t.Errorf("%d pages, want %d", len(left), len(pages))
	}
}

// contents are the pages of a swarm as its last checkpoint has them.
func contents(t *testing.T, c *checkpoints, id string) map[uint64][]byte {
	t.Helper()
	all := map[uint64][]byte{}
	withStore(t, c, id, func(s *store) {
		for _, page := range s.Pages() {
			all[page] = make([]byte, coldPage)
			if err := s.Get(t.Context(), page, all[page]); err != nil {
				t.Fatalf("s.Get: %v", err)
			}
		}
	})
	return all
}

// withStore opens what a stopped agent has left of a swarm.
func withStore(t *testing.T, c *checkpoints, id string, f func(s *store)) {
	t.Helper()
	s, err := c.Open(id, 0, coldPage, cold)
	if err != nil {
		t.Fatalf("c.Open: %v", err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Errorf("s.Close: %v", err)
		}
	}()
	f(s.(*store))
}

// child is a gpuagent process.
type child struct {
	cmd  *exec.Cmd
	ends chan error
}

// spawn starts a gpuagent.
func (r *rig) spawn(t testing.TB, args ...string) *child {
	t.Helper()
	r.Reset()
	cmd := exec.Command(os.Args[0], append([]string{
		"--nats", r.server.URL(), "--device", "host", "--name", "agent",
		"--lease-ttl", "1s", "--log-level", "debug", "--metrics", "127.0.0.1:0",
	}, args...)...)
	cmd.Env = append(os.Environ(), childAgent+"=1")
	cmd.Stderr = r
	if err := cmd.Start(); err != nil {
		t.Fatalf("cmd.Start: %v", err)
	}
	c := &child{cmd, make(chan error, 1)}
	go func() { c.ends <- cmd.Wait() }()
	t.Cleanup(func() { c.end(syscall.SIGKILL) })
	r.logged(t, "gpuagent is ready")
	return c
}

// kill ends a process with SIGKILL. The next one takes its lease when its session was not renewed
// for its time; nobody else looks, so that no lease is lost on a busy machine.
func (r *rig) kill(t *testing.T, c *child) {
	t.Helper()
	c.end(syscall.SIGKILL)
}

// end sends a signal to the process and waits for its end.
func (c *child) end(s syscall.Signal) {
	_ = c.cmd.Process.Signal(s)
	c.ends <- <-c.ends
}

var metricsURL = regexp.MustCompile(`serving metrics" url=(\S+)`)

// tierPages waits until the metrics of the child say that a tier holds pages, or as many as it is
// asked for.
func (r *rig) tierPages(t *testing.T, met func(pages map[string]int) bool) {
	t.Helper()
	url := metricsURL.FindStringSubmatch(r.String())[1]
	sample := regexp.MustCompile(`(?m)^exoswarm_swarm_(?:stored_)?pages\{tier="(\w+)"\} (\d+)$`)
	var text []byte
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("%s", regexp.MustCompile(`(?m)^exoswarm_swarm_.*$`).FindAll(text, -1))
		}
	})
	r.wait(t, "pages in tiers", func() bool {
		resp, err := http.Get(url)
		if err != nil {
			t.Fatalf("http.Get: %v", err)
		}
		defer resp.Body.Close()
		text, err = io.ReadAll(resp.Body)
		if err != nil {
			t.Fatalf("io.ReadAll: %v", err)
		}
		pages := map[string]int{}
		for _, m := range sample.FindAllSubmatch(text, -1) {
			pages[string(m[1])], _ = strconv.Atoi(string(m[2]))
		}
		return met(pages)
	})
	http.DefaultClient.CloseIdleConnections()
}

// TestFiveTiers serves a swarm of 24 pages with five in memory, whose others sink over three disks.
// The agent is killed again and again, while it stores checkpoints too. Answers and pages are the
// same as of an agent that has all pages on the device and was not disturbed.
func TestFiveTiers(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	r := newRigAt(t, 0)
	ranges := [][2]int{{0, cold}, {0, cold}, {cold / 2, cold}, {cold / 2, cold}}
	for range 7 {
		ranges = append(ranges, [2]int{0, cold})
	}
	all := observationsOf(ranges...)
	answers, pages := r.undisturbed(t, all)
	dir := t.TempDir()
	flags := func(ages ...string) []string {
		args := []string{"--page-memory", fmt.Sprint(3 * coldPage), "--host-page-memory", fmt.Sprint(2 * coldPage)}
		for i, tier := range []string{"nvme", "ssd", "hdd"} {
			if err := os.MkdirAll(filepath.Join(dir, tier), 0o700); err != nil {
				t.Fatalf("os.MkdirAll: %v", err)
			}
			args = append(args, "--tier", tier+"="+filepath.Join(dir, tier)+",age="+ages[i])
		}
		return args
	}
	r.announceCold(t, "cold", all[:2])
	a := r.spawn(t, flags("250ms", "250ms", "0s")...)
	r.answered(t, "cold", 2)
	r.tierPages(t, func(p map[string]int) bool { return p["hdd"] >= cold-5 })
	r.kill(t, a)

	// What speaks again comes back, and sinks to the second disk only.
	a = r.spawn(t, flags("250ms", "0s", "0s")...)
	r.append(t, "cold", 2, all[2:4])
	r.answered(t, "cold", 4)
	r.tierPages(t, func(p map[string]int) bool {
		return p["gpu"] > 0 && p["cpu"] > 0 && p["nvme"] > 0 && p["ssd"] > 0 && p["hdd"] > 0
	})
	r.kill(t, a)
	last := len(all) - 1
	for n := 4; n < last; n += 3 {
		a = r.spawn(t, flags("250ms", "250ms", "0s")...)
		if !strings.Contains(r.String(), "shard resumed") {
			r.logged(t, "shard resumed from its checkpoint")
		}
		r.append(t, "cold", n, all[n:n+3])
		r.answered(t, "cold", n+1+n%3) // amid the next ones, or the checkpoint
		r.kill(t, a)
	}
	a = r.spawn(t, flags("1m", "1m", "0s")...)
	r.append(t, "cold", last, all[last:])
	r.answered(t, "cold", len(all))
	a.end(syscall.SIGTERM)
	tiers, err := parseTiers([]string{"nvme=" + filepath.Join(dir, "nvme") + ";ssd=" + filepath.Join(dir, "ssd") +
		";hdd=" + filepath.Join(dir, "hdd")})
	if err != nil {
		t.Fatalf("parseTiers: %v", err)
	}
	r.same(t, "cold", newCheckpoints(tiers...), answers, pages)
}

// TestAges: with ages for memory too, pages that nobody uses sink through all five tiers, though
// memory has room for most of them. They come back when their groups are observed again, and the
// answers are the same as of an agent that keeps them on the device. Without the ages they stay.
func TestAges(t *testing.T) {
	testkit.OnlyLong(t)
	t.Parallel()
	r := newRigAt(t, 0)
	all := observationsOf([2]int{0, cold}, [2]int{0, cold}, [2]int{0, cold}, [2]int{0, cold})
	answers, pages := r.undisturbed(t, all)
	dir := t.TempDir()
	flags := []string{
		"--page-memory", fmt.Sprint((cold - 4) * coldPage), "--host-page-memory",
		fmt.Sprint(cold * coldPage),
	}
	for _, tier := range []string{"nvme", "ssd", "hdd"} {
		if err := os.MkdirAll(filepath.Join(dir, tier), 0o700); err != nil {
			t.Fatalf("os.MkdirAll: %v", err)
		}
		flags = append(flags, "--tier", tier+"="+filepath.Join(dir, tier)+",age=250ms")
	}
	r.announceCold(t, "cold", all[:2])
	a := r.spawn(t, append(flags, "--page-age", "250ms", "--host-page-age", "500ms")...)
	r.answered(t, "cold", 2)
	// more where a checkpoint still counts
	sunk := func(p map[string]int) bool { return p["gpu"] == 0 && p["cpu"] == 0 && p["hdd"] >= cold }
	r.tierPages(t, sunk)
	r.append(t, "cold", 2, all[2:3]) // every page comes back for it
	r.answered(t, "cold", 3)
	r.tierPages(t, sunk)
	r.kill(t, a)
	a = r.spawn(t, flags...)
	r.append(t, "cold", 3, all[3:])
	r.answered(t, "cold", 4)
	r.tierPages(t, func(p map[string]int) bool { return p["gpu"] > cold/2 })
	a.end(syscall.SIGTERM)
	tiers, err := parseTiers([]string{"nvme=" + filepath.Join(dir, "nvme") + ";ssd=" + filepath.Join(dir, "ssd") +
		";hdd=" + filepath.Join(dir, "hdd")})
	if err != nil {
		t.Fatalf("parseTiers: %v", err)
	}
	r.same(t, "cold", newCheckpoints(tiers...), answers, pages)
}

// newTiers are three disks below a folder that nothing leaves by age, of pages that are stored raw.
func newTiers(dir string) []*storeTier {
	var all []*storeTier
	for _, name := range []string{"nvme", "ssd", "hdd"} {
		all = append(all, &storeTier{
			name: name, dir: filepath.Join(dir, name), capacity: 1 << 30,
			quota: pagestore.NewQuota(1 << 30),
		})
	}
	return all
}

// TestFullTiers: a tier without room passes its pages on, and nothing else changes.
func TestFullTiers(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all := observationsOf([2]int{0, cold}, [2]int{0, cold}, [2]int{0, cold})
	answers, pages := r.undisturbed(t, all)
	tiny := (pagestore.Options{PageSize: coldPage}).IndexBytes(cold) + 8*coldPage
	for name, full := range map[string][]int{"first": {0, 1}, "slow": {1}} {
		disks := newTiers(t.TempDir())
		disks[0].age = 250 * time.Millisecond
		for _, i := range full {
			disks[i].capacity, disks[i].quota = tiny, pagestore.NewQuota(tiny)
		}
		c := newCheckpoints(disks...)
		r.Reset()
		r.announceCold(t, name, all)
		reg := prometheus.NewRegistry()
		a := r.start(t, gpuagents.Options{
			Checkpoints: c, PageMemory: 3 * coldPage, HostPageMemory: coldPage,
			Metrics: metricsOf(t, reg),
		})
		r.answered(t, name, len(all))
		if name == "slow" { // as much as it has room for has sunk
			r.wait(t, "pages in the slow tier", func() bool {
				return gauge(t, reg, "exoswarm_swarm_stored_pages", "ssd") > 0
			})
		}
		a.Stop()
		if strings.Contains(r.String(), "checkpoint not stored") || strings.Contains(r.String(), "shard failed") {
			t.Errorf("%s: a full tier has stopped something:\n%s", name, r.String())
		}
		withStore(t, c, name, func(s *store) {
			for i, d := range disks {
				if used := d.quota.Used(); used > d.capacity {
					t.Errorf("%s: %s takes %d of %d bytes", name, d.name, used, d.capacity)
				}
				n := s.Usage(i).Used
				if full := d.capacity == tiny; full && n > 8 || i == 2 && name == "first" && n < cold-16 {
					t.Errorf("%s: %s holds %d of %d pages", name, d.name, n, cold)
				}
			}
		})
		r.same(t, name, c, answers, pages)
		if err := r.conn.Swarms.RemoveSwarm(t.Context(), swarms.Swarm{ID: name}); err != nil {
			t.Fatalf("r.conn.Swarms.RemoveSwarm: %v", err)
		}
	}
}

// coldUntilFailing starts an agent over tiers, waits until pages of two batches are on the last
// disk, lets the disk fail and has the agent answer the others.
func (r *rig) coldUntilFailing(
	t *testing.T, c *checkpoints, all []*batch.Observations, failing *atomic.Bool,
) *gpuagents.Agent {
	t.Helper()
	reg := prometheus.NewRegistry()
	a := r.start(t, gpuagents.Options{
		Checkpoints: c, PageMemory: 3 * coldPage, HostPageMemory: coldPage,
		Metrics: metricsOf(t, reg),
	})
	r.announceCold(t, "cold", all[:2])
	r.answered(t, "cold", 2)
	r.wait(t, "pages on the last disk", func() bool {
		return gauge(t, reg, "exoswarm_swarm_stored_pages", "hdd") >= cold-4
	})
	failing.Store(true)
	r.append(t, "cold", 2, all[2:])
	r.answered(t, "cold", len(all))
	return a
}

// TestUnreadTier: a shard goes back to its checkpoint when a disk does not read a page, and the
// third time to its log.
func TestUnreadTier(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all := observationsOf([2]int{0, cold}, [2]int{0, cold}, [2]int{0, cold})
	answers, pages := r.undisturbed(t, all)
	disks := newTiers(t.TempDir())
	disks[0].age, disks[1].age = 250*time.Millisecond, 250*time.Millisecond
	c := newCheckpoints(disks...)
	const thrownAway = "checkpoint not used, the shard starts from its log"
	var failing atomic.Bool
	c.fs = &tierstest.Inject{FS: vfs.OS{}, Before: func(op tierstest.Op) error {
		// What is longer than a block is a record; headers of files are read when the store is
		// opened.
		if failing.Load() && op.Kind == tierstest.OpRead && op.Len > vfs.BlockSize && within(op.Name, disks[2].dir) &&
			!strings.Contains(r.String(), thrownAway) {
			return syscall.EIO
		}
		return nil
	}}
	a := r.coldUntilFailing(t, c, all, &failing)
	a.Stop()
	n := strings.Count(r.String(), "shard failed, starting again")
	if n != 3 || !strings.Contains(r.String(), thrownAway) {
		t.Errorf("the shard failed %d times, want 3:\n%s", n, r.String())
	}
	r.same(t, "cold", c, answers, pages)
}

// TestFailingTier: a disk that fails costs its shard a replay at most, and the others go on without
// it; there is nothing of the shard left in any tier once its swarm is gone.
func TestFailingTier(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	all := observationsOf([2]int{0, cold}, [2]int{0, cold}, [2]int{0, cold}, [2]int{0, cold})
	answers, pages := r.undisturbed(t, all)
	disks := newTiers(t.TempDir())
	disks[0].age, disks[1].age = 250*time.Millisecond, 250*time.Millisecond
	disks[0].codec, disks[2].codec = pagestore.Codec{ID: pagestore.LZ4}, pagestore.Codec{ID: pagestore.Zstd}
	c := newCheckpoints(disks...)
	var failing atomic.Bool
	var failed atomic.Int64
	c.fs = &tierstest.Inject{FS: vfs.OS{}, Before: func(op tierstest.Op) error {
		if failing.Load() && within(op.Name, disks[2].dir) {
			failed.Add(1)
			return syscall.EIO
		}
		return nil
	}}
	a := r.coldUntilFailing(t, c, all, &failing)
	r.logged(t, "checkpoint not used, the shard starts from its log")
	r.logged(t, "a tier cannot be used, the shard does without it")
	a.Stop()
	r.same(t, "cold", c, answers, pages) // without the last disk
	if failed.Load() == 0 {
		t.Error("nothing failed")
	}
	// The disk is back, with what is left of a store that does not count.
	failing.Store(false)
	a = r.agentOf(t, c, 3*coldPage, coldPage)
	r.append(t, "cold", len(all), observationsOf([2]int{0, cold}))
	r.answered(t, "cold", len(all)+1)
	if ids, err := c.Shards(); len(ids) != 1 || err != nil {
		t.Errorf("shards %v, error %v; want one", ids, err)
	}
	if err := r.conn.Swarms.RemoveSwarm(t.Context(), swarms.Swarm{ID: "cold"}); err != nil {
		t.Fatalf("r.conn.Swarms.RemoveSwarm: %v", err)
	}
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := r.conn.Swarms.Log("cold", 0, d).Delete(t.Context()); err != nil {
			t.Fatalf("r.conn.Swarms.Log().Delete: %v", err)
		}
	}
	r.wait(t, "removal", func() bool {
		ids, err := c.Shards()
		return err == nil && len(ids) == 0
	})
	a.Stop()
	for _, d := range disks {
		if used := d.quota.Used(); used != 0 {
			t.Errorf("%s: %d bytes are accounted for when nothing is left", d.name, used)
		}
	}
}

// metricsOf are an agent's metrics in a registry.
func metricsOf(t *testing.T, reg *prometheus.Registry) *gpuagents.Metrics {
	t.Helper()
	m, err := gpuagents.NewMetrics(reg)
	if err != nil {
		t.Fatalf("gpuagents.NewMetrics: %v", err)
	}
	return m
}

// gauge is the value of a metric of a tier, 0 while there is none.
func gauge(t *testing.T, reg *prometheus.Registry, name, tier string) float64 {
	t.Helper()
	families, err := reg.Gather()
	if err != nil {
		t.Fatalf("reg.Gather: %v", err)
	}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			if f.GetName() == name && len(m.GetLabel()) == 1 && m.GetLabel()[0].GetValue() == tier {
				return m.GetGauge().GetValue()
			}
		}
	}
	return 0
}

// TestTierFlags: what --tier says, and the sentences for what it must not.
func TestTierFlags(t *testing.T) {
	dir := t.TempDir()
	got, err := parseTiers([]string{
		"nvme=" + dir + "/a,capacity=2TiB;ssd=" + dir + "/b,age=5m,codec=raw",
		"cellar=" + dir + "/c,age=1h",
	})
	if err != nil {
		t.Fatalf("parseTiers: %v", err)
	}
	var text []string
	for _, d := range got {
		text = append(text, fmt.Sprintf("%s %s %v %v %d", d.name, strings.TrimPrefix(d.dir, dir), d.codec, d.age,
			d.capacity))
	}
	want := "nvme /a lz4 1m0s 2199023255552, ssd /b raw 5m0s 0, cellar /c raw 0s 0"
	if got := strings.Join(text, ", "); got != want {
		t.Errorf("%s, want %s", got, want)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), nil, 0o600); err != nil {
		t.Fatalf("os.WriteFile: %v", err)
	}
	for value, want := range map[string]string{
		"nvme":                              `--tier "nvme": use NAME=DIR`,
		"NVMe=/x":                           "with a name of a-z",
		"gpu=/x":                            "gpu is a tier of memory: see --page-memory",
		"a=" + dir + ";a=/x":                "there are two tiers of this name",
		"a=" + dir + ";b=" + dir + "/b":     "a tier has a folder of its own",
		"a=/x,codec=gzip":                   `codec "gzip": want raw, lz4, zstd or zstd:LEVEL`,
		"a=/x,capacity=2 parsecs":           `size "2 parsecs"`,
		"a=/x,capacity=1MiB":                "use at least",
		"a=/x,age=-1s":                      "age -1s: use a duration",
		"a=/x,age=soon":                     "invalid duration",
		"a=/x,size=3":                       `"size=3" is none of codec=, capacity= and age=`,
		"hdd=" + dir + "/none":              "there is no such folder: mount its disk, or make the folder if it is new",
		"hdd=" + filepath.Join(dir, "file"): "it is no folder",
	} {
		cmd := Command()
		cmd.SetArgs([]string{"--nats", "nats://127.0.0.1:1", "--tier", value})
		var stderr bytes.Buffer
		if code := command.Run(t.Context(), cmd, &stderr); code != command.ExitUsage ||
			!strings.Contains(stderr.String(), want) {
			t.Errorf("%s: exit code %d, %q, want %q", value, code, &stderr, want)
		}
	}
}

// TestDataDir: a data folder that cannot be made or written to is an error of usage that names it.
func TestDataDir(t *testing.T) {
	dir := t.TempDir()
	owned := folders{}
	if err := openDataDir(filepath.Join(dir, "new"), owned); err != nil {
		t.Errorf("a new folder: %v", err)
	}
	left, err := os.ReadDir(filepath.Join(dir, "new"))
	if err != nil || len(left) != 2 || left[0].Name() != kernelsFolder || left[1].Name() != "lock" {
		t.Errorf("a new folder has %v, error %v; want %s and lock", left, err, kernelsFolder)
	}
	if err := openDataDir("", owned); err != nil {
		t.Errorf("no folder: %v", err)
	}
	if err := openDataDir("/proc/self", owned); err == nil ||
		!strings.Contains(err.Error(), "--data-dir: mkdir /proc/self/") {
		t.Errorf("/proc/self: error %v, want a refusal", err)
	}
	if os.Getuid() == 0 {
		return // may write everywhere: deploy/systemd has the test of a read-only folder
	}
	if err := owned.Close(); err != nil {
		t.Errorf("owned.Close: %v", err)
	}
	if err := os.Chmod(filepath.Join(dir, "new"), 0o500); err != nil {
		t.Fatal(err)
	}
	err = openDataDir(filepath.Join(dir, "new"), folders{})
	if err == nil || !strings.Contains(err.Error(), "may not write there") {
		t.Errorf("a folder without the right to write: error %v, want a refusal", err)
	}
}
