package wire

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/jobs"
)

// TestNames: subjects and consumer names are taken apart as they were put together, for any ids.
func TestNames(t *testing.T) {
	id := rapid.StringMatching(`[A-Za-z0-9_][A-Za-z0-9_-]{0,63}`)
	rapid.Check(t, func(rt *rapid.T) {
		s := Source{
			Pool: rapid.SampledFrom(Pools()).Draw(rt, "pool"), Kind: id.Draw(rt, "kind"),
			Lane: rapid.SampledFrom(jobs.Lanes()).Draw(rt, "lane"), Tenant: id.Draw(rt, "tenant"),
		}
		job := id.Draw(rt, "id")
		for _, subject := range []string{s.Job(job), s.Sched(job), s.Due(job), s.Wait(job)} {
			if got, gotID, ok := ParseSubject(subject); !ok || got != s || gotID != job {
				rt.Fatalf("%s: %+v %s", subject, got, gotID)
			}
		}
		level := rapid.SampledFrom(append(jobs.Levels(), "")).Draw(rt, "level")
		if got, gotID, ok := ParseSubject(s.At(level).Job(job)); !ok || got != s.At(level) || gotID != job {
			rt.Fatalf("%s: %+v %s", s.At(level).Job(job), got, gotID)
		}
		wake := "exo.wake." + s.Tail()
		if level != "" {
			wake += "." + string(level)
		}
		if got, ok := ParseWake(wake); !ok || got != s.At(level) {
			rt.Fatalf("%s: %+v", wake, got)
		}
		if got, ok := ParseConsumer(s.Pool, s.Level, s.Consumer()); !ok || got != s {
			rt.Fatalf("%s: %+v", s.Consumer(), got)
		}
	})
	for _, bad := range []string{
		"", "exo.job.cpu.k.normal", "exo.job.cpu.k.urgent.t.id", "exo.job.tpu.k.low.t.id",
		"exo.job.cpu.k.low.t.id.more", "exo.job.cpu.k.low.t.id.", "exo.wait.cpu.k.low.t.id.memory",
		"exo.job.cpu.k.low.t.id.one.x", "a.job.cpu.k.low.t.id", "exo.job.cpu..low.t.id",
	} {
		if _, _, ok := ParseSubject(bad); ok {
			t.Errorf("%q was taken", bad)
		}
	}
	if _, ok := ParseConsumer(jobs.PoolCPU, "", "worker"); ok {
		t.Error("a foreign consumer was taken for a source")
	}
}

// FuzzSubject: no subject of a stranger does harm.
func FuzzSubject(f *testing.F) {
	f.Add("exo.job.cpu.kind.normal.default.id")
	f.Add("exo.due.gpu.k.low.t.id")
	f.Fuzz(func(t *testing.T, subject string) {
		if s, id, ok := ParseSubject(subject); ok && id != "" {
			if again, id2, ok := ParseSubject(s.Job(id)); !ok || again != s || id2 != id {
				t.Fatalf("%q: %+v %q", subject, s, id)
			}
		}
	})
}
