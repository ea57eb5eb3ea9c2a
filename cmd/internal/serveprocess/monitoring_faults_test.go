package serveprocess_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/exoswarm/exoswarm/cuda"
	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/cuda/faults"
	"github.com/exoswarm/exoswarm/gpuagents"
	"github.com/exoswarm/exoswarm/gpuagents/pool"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/auth"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestLiveFaults has the alerts fire that TestLive does not cover, each for a fault of the kind
// that it is for: devices, disks, credentials and servers. Each clears after the repair of its
// runbook. Faults of disks need root, since each disk is a small file system.
func TestLiveFaults(t *testing.T) {
	testkit.OnlyLong(t)
	tool(t, "prometheus")
	s := &stand{t: t, dir: t.TempDir(), port: jobstest.Port(t)}
	s.reserve("cpu-login", "gpu-device", "gpu-disk", "gpu-tiers", "ui", "ui-three")
	disks := s.mount("nats", "64m")
	s.serveNATS()
	t.Cleanup(func() { s.nats.Close() })
	s.conn = s.connect(s.nats.URL(), 1)
	three := s.threeServers()
	s.prometheus()
	s.launch("ui", "exoswarm", "ui", "--listen", "127.0.0.1:0")
	tiers := &failingTiers{stand: s}
	for _, p := range []struct {
		what  string
		disks bool
		do    func()
	}{
		{"credentials that end in an hour", false, s.credentials},
		{"a device whose memory changes, and that is lost", false, s.device},
		{"a server with the only replica of a stream stops", false, three.stop},
		{"a tier that becomes read-only", true, tiers.fail},
		{"a tier that fills, and its disk is full", true, s.fullTier},
		{"the read-only tier is repaired", true, tiers.repair},
		{"a full disk of the NATS server", true, s.fullStore},
		{"the stopped server starts again", false, three.restart},
	} {
		if p.disks && !disks {
			t.Logf("skipped, since small disks need root: %s", p.what)
			continue
		}
		s.phase(p.what, p.do)
	}
	s.phase("the end of all alerts", func() { s.clears(faultAlerts...) })
}

// faultAlerts are the alerts of TestLiveFaults.
var faultAlerts = []string{
	"ExoswarmResidencyViolated", "ExoswarmDeviceLevel", "ExoswarmCheckpointsFail", "ExoswarmTierFull",
	"ExoswarmTierFails", "ExoswarmCredentialsExpire", "ExoswarmStreamWithoutLeader",
	"ExoswarmStoreFull",
}

// fired waits until an alert has fired, also if it has cleared since.
func (s *stand) fired(alert string) {
	s.t.Helper()
	s.eventually(alert+" fires", func() bool { return s.hasFired(alert) })
}

// hasFired reports whether an alert has fired.
func (s *stand) hasFired(alert string) bool {
	s.t.Helper()
	return s.query(`last_over_time(ALERTS{alertstate="firing",alertname="`+alert+`"}[10m])`) > 0
}

// silent fails the test if an alert has fired before its fault.
func (s *stand) silent(alerts ...string) {
	s.t.Helper()
	for _, a := range alerts {
		if s.hasFired(a) {
			s.t.Errorf("%s has fired before its fault", a)
		}
	}
}

// connect connects to servers, with a number of replicas for the streams that the connection makes.
func (s *stand) connect(url string, replicas int) *natsq.Conn {
	s.t.Helper()
	c, err := natsq.Connect(s.t.Context(), natsconn.Options{URL: url, Replicas: replicas})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(c.Close)
	return c
}

// mount mounts a small file system on a folder of the stand. It returns false without the right to.
func (s *stand) mount(name, size string) bool {
	s.t.Helper()
	dir := filepath.Join(s.dir, name)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		s.t.Fatal(err)
	}
	err := syscall.Mount("tmpfs", dir, "tmpfs", 0, "size="+size)
	if errors.Is(err, syscall.EPERM) || errors.Is(err, syscall.EACCES) {
		return false
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = syscall.Unmount(dir, syscall.MNT_DETACH) })
	return true
}

// fill fills the file system of a folder but for some bytes, and returns how to free it.
func (s *stand) fill(dir string, left int64) (free func()) {
	s.t.Helper()
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		s.t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(dir, "filler"))
	if err != nil {
		s.t.Fatal(err)
	}
	defer f.Close()
	if err := syscall.Fallocate(int(f.Fd()), 0, 0, int64(fs.Bavail)*fs.Bsize-left); err != nil {
		s.t.Fatal(err)
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			s.t.Error(err)
		}
	}
}

// ticking appends a tick to a swarm each 100 ms until stop is called.
func (s *stand) ticking(record swarms.Swarm) (stop func()) {
	ctx, cancel := context.WithCancel(s.t.Context())
	var running sync.WaitGroup
	running.Go(func() {
		for after := uint64(0); ctx.Err() == nil; {
			if s.tick(ctx, record, after, 1) == nil {
				after++
			}
			select {
			case <-time.After(100 * time.Millisecond):
			case <-ctx.Done():
			}
		}
	})
	stop = sync.OnceFunc(func() {
		cancel()
		running.Wait()
	})
	s.t.Cleanup(stop)
	return stop
}

// remove removes a swarm.
func (s *stand) remove(record swarms.Swarm) {
	s.t.Helper()
	if err := s.conn.Swarms.RemoveSwarm(s.t.Context(), record); err != nil {
		s.t.Fatal(err)
	}
}

// three is a cluster of three servers, with a dashboard.
type three struct {
	*stand
	options []server.Options
	servers []*server.Server
	started sync.WaitGroup
	alone   int // the server with the only replica of a log
}

// threeServers begins to start three servers of a cluster.
func (s *stand) threeServers() *three {
	s.t.Helper()
	c := &three{stand: s, servers: make([]*server.Server, 3)}
	var routes []string
	for i := range 3 {
		o := server.Options{
			Dir: s.t.TempDir(), Name: fmt.Sprintf("s%d", i), Port: jobstest.Port(s.t),
			ClusterPort: jobstest.Port(s.t), Fast: true,
		}
		c.options = append(c.options, o)
		routes = append(routes, fmt.Sprintf("127.0.0.1:%d", o.ClusterPort))
	}
	for i := range c.options {
		c.options[i].Routes = routes
		c.started.Go(func() { c.serve(i) })
	}
	s.t.Cleanup(func() {
		c.started.Wait()
		for _, server := range c.servers {
			if server != nil {
				server.Close()
			}
		}
	})
	return c
}

// serve starts one of the servers, on its data of before.
func (c *three) serve(i int) {
	var err error
	if c.servers[i], err = server.Start(context.WithoutCancel(c.t.Context()), c.options[i]); err != nil {
		c.t.Error(err)
	}
}

// stop makes streams with three replicas, and logs of a swarm with one, and stops the server that
// has one of the logs. A dashboard watches the cluster.
func (c *three) stop() {
	c.started.Wait()
	var urls []string
	for _, server := range c.servers {
		if server == nil {
			c.t.FailNow()
		}
		urls = append(urls, server.URL())
	}
	all := strings.Join(urls, ",")
	c.connect(all, 3)
	c.swarm(c.connect(all, 1), "lonely", 1000, "")
	nc, err := nats.Connect(all)
	if err != nil {
		c.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		c.t.Fatal(err)
	}
	c.alone = -1
	list := js.ListStreams(c.t.Context())
	for info := range list.Info() {
		if info.Config.Replicas == 1 && info.Cluster != nil {
			c.alone = slices.IndexFunc(c.options, func(o server.Options) bool { return o.Name == info.Cluster.Leader })
		}
	}
	if c.alone < 0 || list.Err() != nil {
		c.t.Fatalf("no stream with one replica: %v", list.Err())
	}
	c.launch("ui-three", "exoswarm", "ui", "--listen", "127.0.0.1:0", "--nats", all)
	own := `instance="` + c.targets["ui-three"] + `"`
	c.eventually("a look at the three servers", func() bool {
		return c.query(`exoswarm_jetstream_leaderless_streams{stream="swarm logs",`+own+`}`) > 0
	})
	c.silent("ExoswarmStreamWithoutLeader")
	c.servers[c.alone].Close()
}

// restart starts the stopped server again when it was missed.
func (c *three) restart() {
	c.fired("ExoswarmStreamWithoutLeader")
	c.serve(c.alone)
}

// credentials has an agent log in with credentials that end soon, and then with others.
func (s *stand) credentials() {
	keys, err := auth.Open(filepath.Join(s.dir, "auth"), true)
	if err != nil {
		s.t.Fatal(err)
	}
	defer keys.Close()
	if _, err := keys.Apply(auth.Options{}); err != nil {
		s.t.Fatal(err)
	}
	nats, err := server.Start(s.t.Context(), server.Options{Dir: s.t.TempDir(), Auth: keys.ConfigFile(), Fast: true})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(nats.Close)
	operator, err := natsq.Connect(s.t.Context(), natsconn.Options{
		URL: nats.URL(), Login: natsconn.Login{Credentials: keys.CredsFile("operator")},
	})
	if err != nil {
		s.t.Fatal(err)
	}
	operator.Close()
	agent := func(user string, life time.Duration) *process {
		file, err := keys.AddUser(auth.User{Name: user, Role: auth.Agent, Expires: time.Now().Add(life)})
		if err != nil {
			s.t.Fatal(err)
		}
		return s.launch("cpu-login", "cpuagent", "--name", user, "--nats", nats.URL(),
			"--nats-creds", file, "--data-dir", filepath.Join(s.dir, user))
	}
	s.silent("ExoswarmCredentialsExpire")
	short := agent("short", time.Hour)
	s.fired("ExoswarmCredentialsExpire")
	short.end()
	agent("long", 90*24*time.Hour)
	s.clears("ExoswarmCredentialsExpire")
}

// faulty is a device that keeps the last large buffer, whose bytes a test changes.
type faulty struct {
	*faults.Device
	mu    sync.Mutex
	large device.Buffer
}

// Alloc implements device.Device.
func (d *faulty) Alloc(size int64, purpose string) (device.Buffer, error) {
	b, err := d.Device.Alloc(size, purpose)
	if err == nil && size >= 2<<20 {
		d.mu.Lock()
		d.large = b
		d.mu.Unlock()
	}
	return b, err
}

// device has the memory of a device change under a swarm, and then loses the device.
func (s *stand) device() {
	own, err := cuda.Open(s.t.Context(), "host", cuda.Options{})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = own.Close() })
	d := &faulty{Device: faults.New(own)}
	registry := prometheus.NewRegistry()
	counts, err := gpuagents.NewMetrics(registry)
	if err != nil {
		s.t.Fatal(err)
	}
	var mu sync.Mutex
	present := true
	agent, err := gpuagents.Start(gpuagents.Options{
		Name: "device", Device: d, Queue: s.conn.Swarms, Logger: slog.New(slog.DiscardHandler), Metrics: counts,
		PageMemory: 8 << 20, HostPageMemory: 16 << 20, ResidencyCheck: 100 * time.Millisecond,
		Patience: pool.Patience{Probe: 100 * time.Millisecond, Quiet: time.Second},
		Open: func(context.Context) (device.Device, error) {
			mu.Lock()
			defer mu.Unlock()
			if !present {
				return nil, device.ErrLost
			}
			d.Heal()
			return d, nil
		},
		OpenHost: func(ctx context.Context) (device.Device, error) { return cuda.Open(ctx, "host", cuda.Options{}) },
	})
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(agent.Stop)
	metrics := &http.Server{
		Addr: s.address("gpu-device"), Handler: promhttp.HandlerFor(registry, promhttp.HandlerOpts{}),
		ReadHeaderTimeout: time.Minute,
	}
	go func() { _ = metrics.ListenAndServe() }()
	s.t.Cleanup(func() { _ = metrics.Close() })
	record := s.swarm(s.conn, "resident", 100_000, "residency: gpu\n")
	if err := s.tick(s.t.Context(), record, 0, 1); err != nil {
		s.t.Fatal(err)
	}
	s.eventually("comparisons of pages", func() bool {
		return s.query(`exoswarm_swarm_residency_claims_total > 100`) > 0
	})
	s.silent("ExoswarmResidencyViolated", "ExoswarmDeviceLevel")
	if testing.Short() {
		s.t.Log("skipped with -short: writes to device memory that the agent reads at the same time, which the race " +
			"detector reports")
	} else {
		s.changeMemory(d)
	}
	s.silent("ExoswarmDeviceLevel")
	mu.Lock()
	present = false
	mu.Unlock()
	d.Fail(faults.Launch, 0, 1, device.ErrLost)
	if err := s.tick(s.t.Context(), record, 1, 1); err != nil {
		s.t.Fatal(err)
	}
	s.fired("ExoswarmDeviceLevel")
	mu.Lock()
	present = true
	mu.Unlock()
	s.clears("ExoswarmDeviceLevel")
	s.remove(record)
	s.eventually("the end of the swarm", func() bool { return agent.Shards() == 0 })
	agent.Stop()
}

// changeMemory changes bytes of device memory until the alert fires. A busy machine may miss the
// time in which the counter rises, so it does so again.
func (s *stand) changeMemory(d *faulty) {
	again := time.Time{}
	s.eventually("ExoswarmResidencyViolated fires", func() bool {
		if time.Now().After(again) {
			again = time.Now().Add(10 * time.Second)
			d.mu.Lock()
			arena := d.large
			d.mu.Unlock()
			if err := arena.Write(10<<16+4096, []byte(again.String())); err != nil {
				s.t.Fatal(err)
			}
		}
		return s.hasFired("ExoswarmResidencyViolated")
	})
}

// fullTier fills the tier of an agent with swarms, and then its disk with something else.
func (s *stand) fullTier() {
	s.mount("disk", "192m")
	dir := filepath.Join(s.dir, "disk")
	agent := s.launch("gpu-disk", "gpuagent", "--name", "disk", "--device", "host", "--tier",
		"nvme="+dir+",capacity=8500KiB", "--lease-ttl", "2s", "--page-memory", fmt.Sprint(pageMemory))
	first := s.crowd("first", 1000)
	stop := s.ticking(first)
	own := `instance="` + s.targets["gpu-disk"] + `"`
	s.eventually("a checkpoint", func() bool {
		return s.query(`exoswarm_swarm_checkpoints_total{outcome="stored",`+own+`} > 0`) > 0 &&
			s.query(`count_over_time(exoswarm_swarm_tier_fill_ratio{`+own+`}[1m]) > 2`) > 0
	})
	s.silent("ExoswarmTierFull", "ExoswarmCheckpointsFail")
	// The index of each swarm takes nearly half of the tier.
	second := s.crowd("second", 1000)
	s.fired("ExoswarmTierFull")
	s.remove(second)
	s.clears("ExoswarmTierFull")
	s.silent("ExoswarmCheckpointsFail")
	free := s.fill(dir, 64<<10)
	s.eventually("the tier counts what others have of its disk", func() bool {
		return s.query(`exoswarm_swarm_tier_fill_ratio{`+own+`} > 0.95`) > 0
	})
	s.fired("ExoswarmCheckpointsFail")
	free()
	s.clears("ExoswarmCheckpointsFail")
	stop()
	s.remove(first)
	agent.end()
}

// failingTiers is an agent with two tiers.
type failingTiers struct {
	*stand
	process *process
	swarm   swarms.Swarm
}

// agent starts the agent, which takes one shard alone.
func (f *failingTiers) agent() {
	f.process = f.launch("gpu-tiers", "gpuagent", "--name", "tiers", "--device", "host", "--tier",
		"nvme="+filepath.Join(f.dir, "nvme"), "--tier", "hdd="+filepath.Join(f.dir, "hdd"), "--lease-ttl", "2s",
		"--page-memory", fmt.Sprint(pageMemory), "--max-shards", "1")
}

// fail has the disk of the first tier become read-only, as the kernel does with the file system of
// a disk that fails. A mount on top of it does not wait for the files that the agent has open.
func (f *failingTiers) fail() {
	f.mount("nvme", "192m")
	f.mount("hdd", "192m")
	f.agent()
	f.silent("ExoswarmTierFails")
	nvme := filepath.Join(f.dir, "nvme")
	if err := syscall.Mount(nvme, nvme, "", syscall.MS_BIND, ""); err != nil {
		f.t.Fatal(err)
	}
	f.t.Cleanup(func() { _ = syscall.Unmount(nvme, syscall.MNT_DETACH) }) // a second time is an error
	if err := syscall.Mount("", nvme, "", syscall.MS_BIND|syscall.MS_REMOUNT|syscall.MS_RDONLY, ""); err != nil {
		f.t.Fatal(err)
	}
	f.swarm = f.crowd("tiered", 1000)
	stop := f.ticking(f.swarm)
	f.fired("ExoswarmTierFails")
	stop()
}

// repair mounts the disk again and restarts the agent. Until then the alert fires, although nothing
// is written any more and so nothing fails.
func (f *failingTiers) repair() {
	f.eventually("no further failure", func() bool {
		return f.query(`increase(exoswarm_swarm_tier_failures_total[6s]) > 0`) == 0
	})
	if f.query(`ALERTS{alertstate="firing",alertname="ExoswarmTierFails"}`) == 0 {
		f.t.Error("ExoswarmTierFails has cleared before the repair")
	}
	if err := syscall.Unmount(filepath.Join(f.dir, "nvme"), syscall.MNT_DETACH); err != nil {
		f.t.Fatal(err)
	}
	f.process.end()
	f.agent()
	own := `instance="` + f.targets["gpu-tiers"] + `"`
	f.eventually("the shard is served", func() bool {
		return f.query(`exoswarm_swarm_tier_circuit_open_shards{tier="nvme",`+own+`} == 0`) > 0
	})
	f.clears("ExoswarmTierFails")
	f.remove(f.swarm)
	f.process.end()
}

// fullStore fills the disk of the NATS server.
func (s *stand) fullStore() {
	s.silent("ExoswarmStoreFull")
	free := s.fill(filepath.Join(s.dir, "nats"), 6<<20)
	s.fired("ExoswarmStoreFull")
	free()
	s.clears("ExoswarmStoreFull")
}
