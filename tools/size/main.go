// Command size builds the three commands as releases are built, into bin/, and fails if one is
// larger than its budget or if the linker had to keep the exported methods of all types.
//
// The linker keeps every exported method of every reachable type as soon as one reachable function
// looks a method up by a name that it computes (reflect.Value.MethodByName). text/template and
// html/template do, and so does golang.org/x/net/trace. Such a function has the attribute
// <ReflectMethod> in the dependencies that the linker prints (go build -ldflags=-dumpdep).
//
//	make build
package main

import (
	"bufio"
	"bytes"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// budgets are the largest sizes of the commands in MB (10^6 bytes), linux/amd64.
var budgets = []struct {
	command string
	mb      float64
}{
	{"exoswarm", 66},
	{"cpuagent", 41},
	{"gpuagent", 37},
}

func main() {
	version := flag.String("version", "unknown", "version that the commands print")
	out := flag.String("o", "bin", "folder of the commands")
	goos, arch := flag.String("os", runtime.GOOS, "operating system"), flag.String("arch", runtime.GOARCH, "processor")
	flag.Parse()
	var errs []error
	for _, b := range budgets {
		errs = append(errs, check(b.command, b.mb, *out, *version, *goos, *arch))
	}
	if err := errors.Join(errs...); err != nil {
		fmt.Fprintln(os.Stderr, "size:", err)
		os.Exit(1)
	}
}

func check(command string, budget float64, out, version, goos, arch string) error {
	path := filepath.Join(out, command)
	ldflags := "-s -w -dumpdep -X github.com/exoswarm/exoswarm/internal/app/command.version=" + version
	build := exec.Command("go", "build", "-trimpath", "-tags", testkit.ReleaseTags, "-ldflags", ldflags, "-o", path,
		"./cmd/"+command)
	build.Env = append(os.Environ(), "CGO_ENABLED=0", "GOOS="+goos, "GOARCH="+arch)
	printed, err := build.CombinedOutput()
	if err != nil {
		return fmt.Errorf("build %s: %w\n%s", command, err, lastLines(printed, 20))
	}
	info, err := os.Stat(path)
	if err != nil {
		return err
	}
	mb := float64(info.Size()) / 1e6
	fmt.Printf("%-10s %6.1f MB of %.0f\n", command, mb, budget)
	if mb > budget && goos == "linux" && arch == "amd64" {
		err = fmt.Errorf("%s has %.1f MB, its budget is %.0f: go version -m -json lists its modules", command, mb,
			budget)
	}
	if users := reflectMethods(printed); len(users) > 0 {
		err = errors.Join(err, fmt.Errorf("%s: methods are looked up by name in %s: the linker keeps the methods of "+
			"all types",
			command, strings.Join(users, ", ")))
	}
	return err
}

func reflectMethods(printed []byte) []string {
	var found []string
	lines := bufio.NewScanner(bytes.NewReader(printed))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		for _, symbol := range strings.Split(lines.Text(), " -> ") {
			if name, ok := strings.CutSuffix(symbol, " <ReflectMethod>"); ok && !slices.Contains(found, name) {
				found = append(found, name)
			}
		}
	}
	slices.Sort(found)
	return found
}

func lastLines(text []byte, n int) []byte {
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return bytes.Join(lines[max(0, len(lines)-n):], []byte("\n"))
}
