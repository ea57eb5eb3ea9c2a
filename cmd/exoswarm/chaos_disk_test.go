package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

// disk is an ext4 in a file, mounted for one server. What a server has not synced is in the memory
// of the kernel alone, above that file.
type disk struct {
	t          *testing.T
	image, dir string
}

// newDisk mounts an empty disk of a number of MiB. It skips the test where that is not allowed.
func newDisk(t *testing.T, mib int64) *disk {
	t.Helper()
	d := &disk{t: t, image: filepath.Join(t.TempDir(), "disk"), dir: t.TempDir()}
	if os.Geteuid() != 0 {
		t.Skip("mounting a disk needs root")
	}
	for _, tool := range []string{"mkfs.ext4", "mount", "umount"} {
		if _, err := osexec.LookPath(tool); err != nil {
			t.Skipf("no %s here", tool)
		}
	}
	f, err := os.Create(d.image)
	if err != nil {
		t.Fatalf("os.Create: %v", err)
	}
	if err := errors.Join(f.Truncate(mib<<20), f.Close()); err != nil {
		t.Fatalf("errors.Join: %v", err)
	}
	if out, err := osexec.CommandContext(t.Context(), "mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,"+
		"lazy_journal_init=0", d.image).CombinedOutput(); err != nil {
		t.Fatalf("mkfs.ext4: %v: %s", err, out)
	}
	if out, err := osexec.CommandContext(t.Context(), "mount", "-o", "loop", d.image,
		d.dir).CombinedOutput(); err != nil {
		t.Skipf("no loop devices here: %s", out)
	}
	t.Cleanup(d.unmount)
	return d
}

func (d *disk) command(name string, args ...string) {
	d.t.Helper()
	// in the clean-up too, when the test's context has ended
	if out, err := osexec.Command(name, args...).CombinedOutput(); err != nil {
		d.t.Errorf("%s: %v: %s", name, err, out)
	}
}

func (d *disk) unmount() { d.command("umount", d.dir) }

// cut is a power cut. No process that uses the disk may be alive. What the kernel has not written
// to the image when it starts is lost. What is written while the image is copied may be there in
// part, as on a disk whose last writes are under way.
func (d *disk) cut() {
	d.t.Helper()
	survives := d.image + ".cut"
	from, err := os.Open(d.image)
	if err != nil {
		d.t.Fatalf("os.Open: %v", err)
	}
	defer from.Close()
	to, err := os.Create(survives)
	if err != nil {
		d.t.Fatalf("os.Create: %v", err)
	}
	if _, err := io.Copy(to, from); err != nil {
		d.t.Fatalf("io.Copy: %v", err)
	}
	if err := to.Close(); err != nil {
		d.t.Fatalf("to.Close: %v", err)
	}
	d.unmount() // writes what was lost, into the image that nobody reads again
	if err := os.Rename(survives, d.image); err != nil {
		d.t.Fatalf("os.Rename: %v", err)
	}
	d.command("mount", "-o", "loop", d.image, d.dir)
}

// powerCut is a cut of all servers at a moment of the load.
func powerCut(disks []*disk) fault {
	return fault{"power cut", false, false, func(c *chaosCluster, _ *rand.Rand) {
		for _, s := range c.servers {
			_ = s.cmd.Process.Signal(syscall.SIGKILL)
		}
		for _, s := range c.servers {
			s.end(c.t, syscall.SIGKILL)
		}
		for _, d := range disks {
			d.cut()
		}
		for i := range c.servers {
			c.startServer(i)
		}
	}}
}

// TestChaosPower: a power cut of all servers loses no acknowledged job, with one server and with
// three.
func TestChaosPower(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	bin := binaries(t)
	for _, servers := range []int{1, 3} {
		if servers > 1 && !*chaosAll {
			continue
		}
		t.Run(fmt.Sprint("servers ", servers), func(t *testing.T) {
			disks := make([]*disk, servers)
			c := startChaos(t, bin, chaosOptions{servers: servers, workers: 2, dir: func(i int) string {
				disks[i] = newDisk(t, 512)
				return disks[i].dir
			}})
			defer c.end()
			c.run(t, powerCut(disks))
		})
	}
}

// TestChaosPowerControl: the check of TestChaosPower finds what a server loses that acknowledges
// before it syncs, which the fast profile is documented to do.
func TestChaosPowerControl(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	d := newDisk(t, 512)
	c := startChaos(t, binaries(t), chaosOptions{
		servers: 1, args: []string{"--fast"},
		dir: func(int) string { return d.dir },
	})
	defer c.end()
	conn := c.connect()
	defer conn.Close()
	letPass(t.Context(), 4*time.Second) // a stream of the last seconds would be lost whole
	load, cut := &flow{forgets: true}, powerCut([]*disk{d})
	lost := 0
	for n := 0; n < 20 && lost == 0; n++ {
		ctx, cancel := context.WithCancel(t.Context())
		var submitter sync.WaitGroup
		submitter.Go(func() { load.submit(ctx, t, conn, n, 500) })
		letPass(ctx, time.Second) // the cut comes in the middle of the load
		cut.fn(c, nil)
		cancel()
		submitter.Wait()
		lost = load.unknown(t, conn)
	}
	if lost == 0 {
		t.Errorf("20 power cuts of a server that does not sync lost none of %d jobs: the check sees nothing",
			len(load.acked))
	} else {
		t.Logf("the check found %d of %d jobs that were lost", lost, len(load.acked))
	}
}

// TestChaosDiskFull: a queue whose disk runs full says so in time and loses nothing, and continues
// when there is room again.
func TestChaosDiskFull(t *testing.T) {
	testkit.OnlyLong(t)
	if testing.Short() {
		t.Skip("builds and starts real processes: not with -short")
	}
	d := newDisk(t, 128)
	ballast := filepath.Join(d.dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 64<<20), 0o600); err != nil {
		t.Fatalf("os.WriteFile: %v", err)
	}
	c := startChaos(t, binaries(t), chaosOptions{servers: 1, workers: 0, dir: func(int) string { return d.dir }})
	defer c.end()
	conn := c.connect()
	defer conn.Close()
	load := &flow{}
	big, err := json.Marshal(string(bytes.Repeat([]byte("x"), 256<<10)))
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	job := func(id string) jobs.Job {
		return jobs.Job{Version: jobs.Version, ID: id, Pool: jobs.PoolCPU, Kind: "chaos", Spec: big}
	}
	for n := 0; ; n++ {
		id := fmt.Sprint("full", n)
		began := time.Now()
		err := conn.Queue.Submit(ctx, job(id)) // with no deadline of its own: a server that is away is waited for 30 s
		answered := time.Since(began)
		if err != nil {
			t.Logf("after %d jobs of 256 KiB, in %v: %v", n, answered.Round(time.Millisecond), err)
			if !errors.Is(err, jobs.ErrFull) || jobs.RetryAfter(err) <= 0 ||
				!strings.Contains(err.Error(), "the disk of the NATS server") {
				t.Errorf("it does not say that the disk is full: %v", err)
			}
			// The promise is 5 s, and what took longer waited for an answer that did not come: its
			// patience is 30.
			if answered > 20*time.Second {
				t.Errorf("the answer took %v", answered)
			}
			break
		}
		load.ack([]string{id})
		if n > 1000 {
			t.Fatal("250 MiB fit on a disk of 128")
		}
	}
	if err := conn.Queue.SubmitBatch(ctx, []jobs.Job{job("several1"), job("several2")}); !errors.Is(err, jobs.ErrFull) {
		t.Errorf("several at once: %v", err)
	}
	large := job("large")
	if large.Spec, err = json.Marshal(string(bytes.Repeat([]byte("x"), 1<<20))); err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	if err := conn.Queue.Submit(ctx, large); !errors.Is(err, jobs.ErrFull) {
		t.Errorf("a job whose spec is an object: %v", err)
	}
	if _, err := conn.Queue.Stats(ctx, jobs.PoolCPU); err != nil {
		t.Errorf("the server says nothing any more: %v", err)
	}
	// Workers begin on a full disk: results wait for room, and no job is begun so often that it
	// fails.
	for range 2 {
		c.workers = append(c.workers, nil)
		c.startWorker(len(c.workers) - 1)
	}
	if log := c.servers[0].log.String(); !strings.Contains(log, "the disk is nearly full") {
		t.Errorf("the server does not say that its disk is full:\n%s", log)
	}
	if err := os.Remove(ballast); err != nil {
		t.Fatalf("os.Remove: %v", err)
	}
	for n := 0; ; n++ {
		id := fmt.Sprint("again", n)
		if err := conn.Queue.Submit(ctx, job(id)); err == nil {
			load.ack([]string{id})
			break
		} else if !errors.Is(err, jobs.ErrFull) || ctx.Err() != nil {
			t.Fatalf("with room again: %v", err)
		}
	}
	if lost := load.lost(t, conn); lost > 0 || len(load.acked) < 50 {
		t.Errorf("%d of %d acknowledged jobs have no result", lost, len(load.acked))
	}
	select {
	case <-c.servers[0].done:
		t.Errorf("the server has stopped:\n%s", c.servers[0].log.String())
	default:
	}
}

// end stops workers and servers, before the disks go that they use.
func (c *chaosCluster) end() {
	for _, p := range append(c.workers, c.servers...) {
		if p != nil {
			p.end(c.t, syscall.SIGKILL)
		}
	}
}
