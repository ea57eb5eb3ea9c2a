package command

import (
	"log/slog"
	"math"
	"os"
	"runtime/debug"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/internal/base/memory"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
)

// MemoryFlag adds --memory. machine says what the default is where no container has a limit.
func MemoryFlag(f *pflag.FlagSet, machine string) {
	f.String("memory", "", "SIZE, as in 4GiB: the most memory of this process; by default the limit of its "+
		"container (cgroup), or "+machine)
}

// Memory reads --memory and returns the most bytes that the process may use. Where the flag is
// empty it is the limit of the container, or share of what the machine has available, but no less
// than least where that is half of it.
func Memory(cmd *cobra.Command, share float64, least int64) (int64, error) {
	text, _ := cmd.Flags().GetString("memory")
	if text != "" {
		n, err := strictyaml.ParseSize(text)
		if err != nil {
			return 0, Usage("--memory: %v", err)
		}
		if n < 1 {
			return 0, Usage("--memory %s: use a size above 0", text)
		}
		return n, nil
	}
	l, err := memory.Detect(os.DirFS("/"))
	if err != nil {
		return 0, Usage("%v: say with --memory how much this process may use", err)
	}
	if l.Container {
		return l.Bytes, nil
	}
	return max(int64(share*float64(l.Bytes)), min(least, l.Bytes/2)), nil
}

// LimitHeap has the garbage collector keep the heap below n bytes, unless GOMEMLIMIT asks for less.
// What is mapped outside the heap is not in it.
func LimitHeap(n int64, log *slog.Logger) {
	if before := debug.SetMemoryLimit(-1); before != math.MaxInt64 && before < n {
		log.Info("the heap is limited by GOMEMLIMIT", "bytes", before)
		return
	}
	debug.SetMemoryLimit(n)
}
