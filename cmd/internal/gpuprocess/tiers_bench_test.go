package gpuprocess

import (
	"encoding/json"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/tiers"
	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

var (
	tierDirs = flag.String("tier-dirs", "", "folders of the tiers of BenchmarkTierZipf, between commas; by default "+
		"three in one temporary folder")
	zipfRuns       = flag.Int("zipf-entries", 150, "entries of BenchmarkTierZipf, of 4,096 observations each")
	defaultsPower  = flag.Float64("defaults-power", 1.2, "the power of BenchmarkTierDefaults, as of zipf-power")
	defaultsPause  = flag.Duration("defaults-pause", 1500*time.Millisecond, "the pause before an entry")
	defaultsSetups = flag.String("defaults-setups", "off,on", "setups of BenchmarkTierDefaults: off, on, ages and "+
		"prefetch")
	defaultsRows = flag.Int("defaults-rows", 24, "the observations of an entry of the zipf of BenchmarkTierDefaults")
	scattered    = flag.Bool("scattered", false, "the hot groups of BenchmarkTierDefaults are in all pages")
	zipfPower    = flag.Float64("zipf-power", 2, "the frequency of a group in BenchmarkTierZipf is its rank to the "+
		"power of minus this")
)

// grownText are swarms with a few pages of 2 MiB.
var grownText = map[string]string{
	"leaky": "name: x\naddressed: agent\nagents: 1000000\nagents_per_group: 50\nfeatures: [a, b]\ncell: {kind: " +
		"leaky}\nvote: {rule: majority}\nseed: 7\n",
	"gru": "name: x\naddressed: agent\nagents: 200000\nagents_per_group: 50\nfeatures: [a, b]\ncell: {kind: gru, " +
		"params: {hidden: 8}}\n" +
		"vote: {candidates: [a, b, c], rule: majority}\nseed: 7\n",
	"predictor": "name: x\nagents_per_group: 600\nseed: 3\n",
}

const grownGroups = 96 // of the predictor

// grown is what a swarm's pages hold after some life: for agents, 16 entries of 50,000 observations
// with a tick behind each; for the predictor, 40 rows of noisy waves of each group.
func grown(b *testing.B, cell string) (pages [][]byte) {
	b.Helper()
	r := newRig(b)
	spec, err := swarm.Parse("grown.yaml", []byte(grownText[cell]))
	if err != nil {
		b.Fatalf("swarm.Parse grown.yaml: %v", err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		b.Fatalf("json.Marshal: %v", err)
	}
	record := swarms.Swarm{Version: jobs.Version, ID: cell, Name: spec.Name, Spec: data, Groups: grownGroups}
	rng := rand.New(rand.NewPCG(1, 1))
	var entries []swarms.Entry
	if spec.Topology().ByAgent {
		record.Groups = spec.Groups()
		for range 16 {
			o := &batch.AgentObservations{Width: 2}
			for range 50_000 {
				o.Agent = append(o.Agent, uint32(rng.Int64N(spec.Agents)))
				o.Features = append(o.Features, 2*rng.Float32()-0.5, rng.Float32())
			}
			body, err := o.Encode()
			if err != nil {
				b.Fatalf("o.Encode: %v", err)
			}
			entries = append(entries, swarms.Entry{Kind: swarms.EntryObserve, Data: body},
				swarms.Entry{Kind: swarms.EntryTick, Data: []byte(`{"v":1,"count":1}`)})
		}
	} else {
		for row := range 40 {
			o := &batch.Observations{Width: 1}
			for g := range uint32(grownGroups) {
				v := math.Sin(float64(row)/5+float64(g)) + 0.1*rng.NormFloat64()
				o.Group, o.Row, o.Time, o.Read = append(o.Group, g), append(o.Row, uint64(row+1)),
					append(o.Time, int64(row)*1e9), append(o.Read, 7)
				o.Timestamp, o.Value, o.Features = append(o.Timestamp, ""), append(o.Value, v),
					append(o.Features, float32(v))
			}
			body, err := o.Encode()
			if err != nil {
				b.Fatalf("o.Encode: %v", err)
			}
			entries = append(entries, swarms.Entry{Kind: swarms.EntryObserve, Data: body})
		}
	}
	for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
		if err := r.conn.Swarms.Log(cell, 0, d).Create(b.Context()); err != nil {
			b.Fatalf("r.conn.Swarms.Log().Create: %v", err)
		}
	}
	for i, e := range entries {
		e.Ref = uint64(i + 1)
		if err := r.conn.Swarms.Log(cell, 0, swarms.In).Append(b.Context(), uint64(i), e); err != nil {
			b.Fatalf("r.conn.Swarms.Log().Append: %v", err)
		}
	}
	r.record(b, record)
	c := checkpointsIn(b.TempDir())
	a := r.agentWith(b, c)
	r.answered(b, cell, len(entries))
	a.Stop()
	s, err := c.Open(cell, 0, int(spec.PageSize), 64)
	if err != nil {
		b.Fatalf("c.Open: %v", err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			b.Errorf("s.Close: %v", err)
		}
	}()
	for _, page := range s.Pages() {
		content := vfs.Buffer(int(spec.PageSize))
		if err := s.Get(b.Context(), page, content); err != nil {
			b.Fatalf("s.Get: %v", err)
		}
		pages = append(pages, content)
	}
	return pages
}

// BenchmarkCheckpointCodec stores pages of swarms as a checkpoint does, four at a time and with a
// commit: MB/s of state and how many times shorter it is on the medium, then how fast it is read.
// The pages of the swarm are stored again and again, up to 32.
func BenchmarkCheckpointCodec(b *testing.B) {
	for _, cell := range []string{"leaky", "gru", "predictor"} {
		pages := grown(b, cell)
		for i := 0; len(pages) < 32; i++ {
			pages = append(pages, pages[i])
		}
		size := len(pages[0])
		for _, spec := range []pagestore.Codec{
			{},
			{ID: pagestore.LZ4},
			{ID: pagestore.Zstd, Level: 1},
			{ID: pagestore.Zstd, Level: 3},
			{ID: pagestore.Zstd, Level: 9},
		} {
			b.Run(cell+"/"+spec.String(), func(b *testing.B) {
				s, err := pagestore.Open(pagestore.Options{
					PageSize: size,
					Tiers:    []pagestore.Tier{{Dir: b.TempDir(), Capacity: 2 << 30, Codec: spec}},
				})
				if err != nil {
					b.Fatalf("pagestore.Open: %v", err)
				}
				defer s.Close()
				each := func(f func(i int) error) {
					var wg sync.WaitGroup
					for w := range 4 {
						wg.Go(func() {
							for i := w; i < len(pages); i += 4 {
								if err := f(i); err != nil {
									b.Errorf("f: %v", err)
								}
							}
						})
					}
					wg.Wait()
				}
				var stored, read time.Duration
				for b.Loop() {
					began := time.Now()
					each(func(i int) error { return s.Put(b.Context(), 0, uint64(i), pages[i], tiers.Kind{Elem: 4}) })
					if _, err := s.Commit(b.Context(), nil); err != nil {
						b.Fatalf("s.Commit: %v", err)
					}
					stored += time.Since(began)
					began = time.Now()
					each(func(i int) error { return s.Get(b.Context(), uint64(i), vfs.Buffer(size)) })
					read += time.Since(began)
				}
				state := float64(b.N*len(pages)*size) / 1e6
				u := s.Usage(0)
				b.ReportMetric(state/stored.Seconds(), "stored-MB/s")
				b.ReportMetric(state/read.Seconds(), "read-MB/s")
				b.ReportMetric(float64(u.Used*size)/float64(u.LiveBytes), "x-shorter")
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// BenchmarkTierZipf is observations of agents of groups by zipf, those near one another that are
// observed most, of a gru swarm of 300 pages of 64 KiB with frames for 32 on the device and 32 in
// host memory, through the queue: over one folder and over three tiers from which pages sink after
// half a second, raw and with the codecs of their names. obs/s are of all entries; on-disk are the
// bytes of all pages.
func BenchmarkTierZipf(b *testing.B) {
	const page, pages, rows = 64 << 10, 256, 4096
	text := "name: x\naddressed: agent\nagents: 300000\nagents_per_group: 50\nfeatures: [a, b]\ncell: {kind: gru, " +
		"params: {hidden: 8}}\n" +
		"vote: {candidates: [a, b, c], rule: majority}\nseed: 7\npage_size: 64KiB\ncheckpoint: {interval: 1s, " +
		"entries: 16}\n"
	spec, err := swarm.Parse("zipf.yaml", []byte(text))
	if err != nil {
		b.Fatalf("swarm.Parse zipf.yaml: %v", err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		b.Fatalf("json.Marshal: %v", err)
	}
	rng := rand.New(rand.NewPCG(1, 1))
	zipf := rand.NewZipf(rng, *zipfPower, 1, uint64(spec.Agents/50-1))
	var entries [][]byte
	for range *zipfRuns {
		o := &batch.AgentObservations{Width: 2}
		for range rows {
			o.Agent = append(o.Agent, uint32(zipf.Uint64()*50+rng.Uint64N(50)))
			o.Features = append(o.Features, 2*rng.Float32()-0.5, rng.Float32())
		}
		body, err := o.Encode()
		if err != nil {
			b.Fatalf("o.Encode: %v", err)
		}
		entries = append(entries, body)
	}
	for _, setup := range []string{"folder raw", "folder lz4", "tiers raw", "tiers"} {
		b.Run(strings.ReplaceAll(setup, " ", "-"), func(b *testing.B) {
			var took time.Duration
			var onDisk int64
			var sunk int // pages that are not on the first tier in the end
			for n := range b.N {
				r, dir := newRig(b), b.TempDir()
				folders := []string{filepath.Join(dir, "nvme"), filepath.Join(dir, "ssd"), filepath.Join(dir, "hdd")}
				if *tierDirs != "" {
					folders = strings.Split(*tierDirs, ",")
				}
				var disks []*storeTier
				for i, name := range []string{"nvme", "ssd", "hdd"} {
					t := &storeTier{
						name: name, dir: folders[i], codec: codecs[name], capacity: 8 << 30,
						quota: pagestore.NewQuota(8 << 30), age: time.Second / 2,
					}
					if strings.HasSuffix(setup, "raw") {
						t.codec = pagestore.Codec{}
					}
					if err := os.MkdirAll(t.dir, 0o700); err != nil {
						b.Fatalf("os.MkdirAll: %v", err)
					}
					disks = append(disks, t)
				}
				disks[2].age = 0
				if strings.HasPrefix(setup, "folder") {
					disks = disks[:1]
				}
				c := newCheckpoints(disks...)
				id := fmt.Sprintf("zipf%d", n)
				for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
					if err := r.conn.Swarms.Log(id, 0, d).Create(b.Context()); err != nil {
						b.Fatalf("r.conn.Swarms.Log().Create: %v", err)
					}
				}
				add := func(i int, kind string, body []byte) {
					if err := r.conn.Swarms.Log(id, 0, swarms.In).Append(b.Context(), uint64(i),
						swarms.Entry{Kind: kind, Ref: uint64(i + 1), Data: body}); err != nil {
						b.Fatalf("r.conn.Swarms.Log().Append: %v", err)
					}
				}
				add(0, swarms.EntryTick, []byte(`{"v":1,"count":1}`)) // every page is made
				r.record(b, swarms.Swarm{Version: jobs.Version, ID: id, Name: "x", Spec: data, Groups: spec.Groups()})
				a := r.start(b, gpuagents.Options{
					Checkpoints: c, PageMemory: pages / 8 * page,
					HostPageMemory: pages / 8 * page,
				})
				r.answered(b, id, 1)
				began := time.Now()
				for i, body := range entries {
					add(i+1, swarms.EntryObserve, body)
				}
				r.answered(b, id, len(entries)+1)
				took += time.Since(began)
				a.Stop()
				s, err := c.Open(id, 0, page, 1024)
				if err != nil {
					b.Fatalf("c.Open: %v", err)
				}
				for i := range disks {
					u := s.(*store).Usage(i)
					onDisk += u.LiveBytes
					if i > 0 {
						sunk += u.Used
					}
				}
				if err := s.Close(); err != nil {
					b.Fatalf("s.Close: %v", err)
				}
				if err := c.Remove(id, 0); err != nil {
					b.Fatalf("c.Remove: %v", err)
				}
			}
			b.ReportMetric(float64(b.N*len(entries)*rows)/took.Seconds(), "obs/s")
			b.ReportMetric(float64(onDisk)/float64(b.N)/1e6, "MB-on-disk")
			b.ReportMetric(float64(sunk)/float64(b.N), "pages-sunk")
			b.ReportMetric(0, "ns/op")
		})
	}
}

// BenchmarkTierDefaults is observations of agents of groups by zipf over three tiers, with the
// defaults of --tier and with aging and prefetch off. The first tier has room for a third of the
// pages. The observations are of a hot part that fits on the device, as fast as possible, and of
// all pages, with a pause before each entry. Most pages do not fit into memory. obs/s are without
// the pauses.
func BenchmarkTierDefaults(b *testing.B) {
	const page, pages = 64 << 10, 256
	text := "name: x\naddressed: agent\nagents: 300000\nagents_per_group: 50\nfeatures: [a, b]\ncell: {kind: gru, " +
		"params: {hidden: 8}}\n" +
		"vote: {candidates: [a, b, c], rule: majority}\nseed: 7\npage_size: 64KiB\ncheckpoint: {interval: 10s}\n"
	spec, err := swarm.Parse("zipf.yaml", []byte(text))
	if err != nil {
		b.Fatalf("swarm.Parse zipf.yaml: %v", err)
	}
	data, err := json.Marshal(spec)
	if err != nil {
		b.Fatalf("json.Marshal: %v", err)
	}
	for _, load := range []string{"hot", "zipf"} {
		rows := 4096
		if load == "zipf" {
			rows = *defaultsRows
		}
		rng := rand.New(rand.NewPCG(1, 1))
		groups := uint64(spec.Agents / 50)
		zipf := rand.NewZipf(rng, *defaultsPower, 16, groups-1)
		var entries [][]byte
		for range *zipfRuns {
			o := &batch.AgentObservations{Width: 2}
			for range rows {
				group := zipf.Uint64() * 2654435761 % groups // hot groups are in all pages
				if load == "hot" {
					group = rng.Uint64N(groups / 16)
				}
				if load == "zipf" && !*scattered {
					group = zipf.Uint64()
				}
				o.Agent = append(o.Agent, uint32(group*50+rng.Uint64N(50)))
				o.Features = append(o.Features, 2*rng.Float32()-0.5, rng.Float32())
			}
			body, err := o.Encode()
			if err != nil {
				b.Fatalf("o.Encode: %v", err)
			}
			entries = append(entries, body)
		}
		for _, setup := range strings.Split(*defaultsSetups, ",") {
			b.Run(load+"/"+setup, func(b *testing.B) {
				var took, cpu time.Duration
				var each []time.Duration // of an entry
				for n := range b.N {
					r, dir := newRig(b), b.TempDir()
					var flags []string
					for i, name := range []string{"nvme", "ssd", "hdd"} {
						folder := filepath.Join(dir, name)
						if *tierDirs != "" {
							folder = filepath.Join(strings.Split(*tierDirs, ",")[i], fmt.Sprint(n))
						}
						if err := os.MkdirAll(folder, 0o700); err != nil {
							b.Fatalf("os.MkdirAll: %v", err)
						}
						flag := name + "=" + folder
						if i == 0 {
							flag += ",capacity=14MiB"
						}
						if setup == "off" {
							flag += ",age=0s"
						}
						flags = append(flags, flag)
					}
					disks, err := parseTiers(flags)
					owned := folders{}
					b.Cleanup(func() { _ = owned.Close() })
					if err == nil {
						err = openTiers(disks, owned, slog.New(slog.DiscardHandler))
					}
					if err != nil {
						b.Fatalf("tiers: %v", err)
					}
					c := newCheckpoints(disks...)
					id := fmt.Sprintf("x%d", n)
					for _, d := range []swarms.Direction{swarms.In, swarms.Out} {
						if err := r.conn.Swarms.Log(id, 0, d).Create(b.Context()); err != nil {
							b.Fatalf("r.conn.Swarms.Log().Create: %v", err)
						}
					}
					at := 0
					add := func(kind string, body []byte) {
						if err := r.conn.Swarms.Log(id, 0, swarms.In).Append(b.Context(), uint64(at),
							swarms.Entry{Kind: kind, Ref: uint64(at + 1), Data: body}); err != nil {
							b.Fatalf("r.conn.Swarms.Log().Append: %v", err)
						}
						at++
					}
					add(swarms.EntryTick, []byte(`{"v":1,"count":1}`)) // every page is made
					r.record(b, swarms.Swarm{
						Version: jobs.Version, ID: id, Name: "x", Spec: data,
						Groups: spec.Groups(),
					})
					o := gpuagents.Options{
						Checkpoints: c, PageMemory: pages / 8 * page, HostPageMemory: pages / 8 * page,
					}
					if setup == "on" || setup == "ages" {
						o.PageAge, o.HostPageAge = pager.AgingThresholds[0], pager.AgingThresholds[1]
					}
					o.Prefetch = setup == "on" || setup == "prefetch"
					a := r.start(b, o)
					r.answered(b, id, 1)
					for i, body := range entries {
						if load == "zipf" {
							<-time.After(*defaultsPause) // the rate of the load
						}
						if i == len(entries)/3 {
							cpu -= cpuTime(b)
						}
						began := time.Now()
						add(swarms.EntryObserve, body)
						if load == "zipf" || i == len(entries)-1 {
							r.answered(b, id, at)
						}
						if i >= len(entries)/3 { // before that pages find their places
							took += time.Since(began)
						}
					}
					cpu += cpuTime(b)
					if load == "zipf" { // by the clock of the server, from the entry to its answer
						took = 0
						given := r.all(b, id, at)
						asked, err := r.conn.Swarms.Log(id, 0, swarms.In).Read(b.Context(), 1)
						if err != nil {
							b.Fatalf("r.conn.Swarms.Log().Read: %v", err)
						}
						for i := range at {
							e, err := asked.Next(b.Context())
							if err != nil {
								b.Fatalf("asked.Next: %v", err)
							}
							if i > len(entries)/3 {
								each = append(each, given[i].Time.Sub(e.Time))
								took += given[i].Time.Sub(e.Time)
							}
						}
						asked.Close()
					}
					a.Stop()
				}
				rows := float64(b.N * (len(entries) - len(entries)/3) * rows)
				b.ReportMetric(rows/took.Seconds(), "obs/s")
				b.ReportMetric(float64(cpu.Nanoseconds())/rows, "cpu-ns/obs")
				if slices.Sort(each); len(each) > 0 {
					b.ReportMetric(each[len(each)/2].Seconds()*1e3, "ms-median")
				}
				b.ReportMetric(0, "ns/op")
			})
		}
	}
}

// cpuTime returns the processor time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatalf("syscall.Getrusage: %v", err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
