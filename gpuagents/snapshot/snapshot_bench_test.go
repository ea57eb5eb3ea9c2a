package snapshot_test

import (
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// benchState is a gigabyte of agents with 17 bytes or about 65, in pages of 2 MiB.
func benchState(b *testing.B, name string) *inMemory {
	b.Helper()
	vars, agents, groups := kernels.AgentLeakyVars(), 100, 620_000
	switch name {
	case "gru":
		vars, groups = kernels.AgentGRUVars(8, 5, kernels.F32), 160_000
	case "columns": // as cells by group have them
		vars, groups = []kernels.Var{
			{Name: "weights", Elem: kernels.F32, Width: 12},
			{Name: "mean", Elem: kernels.F32, Width: 4},
		}, 160_000
	}
	p := newPages(b, vars, agents, groups, 2<<20)
	r := rand.New(rand.NewPCG(1, 1))
	for i := 0; i+8 <= len(p.data); i += 8 {
		x := r.Uint64()
		for k := range 8 {
			p.data[i+k] = byte(x >> (8 * k))
		}
	}
	return p
}

// BenchmarkSave writes snapshots to a new folder below EXOSWARM_SNAPSHOT_DIR, or the temporary
// folder, and BenchmarkRaw the same bytes to files of the same size one after the other, each
// synced. BenchmarkLoad and BenchmarkRawRead read them, from the page cache unless the machine has
// less memory.
func BenchmarkSave(b *testing.B) {
	for _, name := range []string{"leaky", "gru", "columns"} {
		b.Run(name, func(b *testing.B) {
			p, dir := benchState(b, name), benchDir(b)
			b.ResetTimer()
			for i := range b.N {
				m, _, err := snapshot.Save(b.Context(), open(b, dir), head(fmt.Sprint("s", i)), &p.Pages)
				testkit.NoError(b, "snapshot.Save", err)
				b.SetBytes(m.Bytes())
				b.StopTimer()
				testkit.NoError(b, "os.RemoveAll", os.RemoveAll(filepath.Join(dir, m.Name)))
				b.StartTimer()
			}
		})
	}
}

func BenchmarkLoad(b *testing.B) {
	for _, name := range []string{"leaky", "gru", "columns"} {
		b.Run(name, func(b *testing.B) {
			p := benchState(b, name)
			store := open(b, benchDir(b))
			m, _, err := snapshot.Save(b.Context(), store, head("s"), &p.Pages)
			testkit.NoError(b, "snapshot.Save", err)
			b.SetBytes(m.Bytes())
			b.ResetTimer()
			for range b.N {
				testkit.NoError(b, "snapshot.Load", snapshot.Load(b.Context(), store, m, &p.Pages))
			}
		})
	}
}

const rawFiles = 16

func BenchmarkRaw(b *testing.B) {
	dir := benchDir(b)
	data := benchState(b, "leaky").data[:snapshot.FileBytes]
	b.SetBytes(rawFiles * snapshot.FileBytes)
	b.ResetTimer()
	for range b.N {
		rawWrite(b, dir, data)
	}
}

func rawWrite(b *testing.B, dir string, data []byte) {
	b.Helper()
	for i := range rawFiles {
		f, err := os.Create(filepath.Join(dir, fmt.Sprint(i)))
		testkit.NoError(b, "os.Create", err)
		for at := 0; at < len(data); at += 2 << 20 {
			if _, err := f.Write(data[at : at+2<<20]); err != nil {
				b.Fatalf("f.Write: %v, want no error", err)
			}
		}
		testkit.NoError(b, "f.Sync", f.Sync())
		testkit.NoError(b, "f.Close", f.Close())
	}
}

func BenchmarkRawRead(b *testing.B) {
	dir := benchDir(b)
	data := benchState(b, "leaky").data[:snapshot.FileBytes]
	rawWrite(b, dir, data)
	b.SetBytes(rawFiles * snapshot.FileBytes)
	b.ResetTimer()
	for range b.N {
		for i := range rawFiles {
			f, err := os.Open(filepath.Join(dir, fmt.Sprint(i)))
			testkit.NoError(b, "os.Open", err)
			if _, err := io.ReadFull(f, data); err != nil {
				b.Fatalf("io.ReadFull: %v, want no error", err)
			}
			testkit.NoError(b, "f.Close", f.Close())
		}
	}
}

func benchDir(b *testing.B) string {
	b.Helper()
	dir := os.Getenv("EXOSWARM_SNAPSHOT_DIR")
	if dir == "" {
		return b.TempDir()
	}
	dir = filepath.Join(dir, fmt.Sprint("snapshots-", os.Getpid()))
	testkit.NoError(b, "os.Mkdir", os.Mkdir(dir, 0o755))
	b.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			b.Errorf("os.RemoveAll: %v, want no error", err)
		}
	})
	return dir
}
