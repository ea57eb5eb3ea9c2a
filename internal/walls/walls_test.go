// Package walls tests which packages may reach which: the import walls of docs/architecture.md. Run
// it with -count=1: a cached result does not see a new violation.
package walls

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/exoswarm/exoswarm"

// wall bans packages from what a package reaches, directly and through others, tests left out.
type wall struct {
	of     string // package below the module; with /... all below it
	direct bool   // only what it imports itself
	plain  bool   // only as it is built without the tag cuda
	banned []string
	reason string
}

var walls = []wall{
	{
		of: "cmd/exoswarm", plain: true, banned: []string{module + "/cuda/internal/driver", "gorgonia.org/cu"},
		reason: "operators run it where there is no GPU and no C library; exoswarm serve on a GPU is built with the " +
			"tag cuda",
	},
	{
		of: "cmd/cpuagent", banned: []string{module + "/cuda/...", "gorgonia.org/cu"},
		reason: "a CPU agent holds no GPU code",
	},
	{of: "cpuagents/...", banned: []string{module + "/cuda/...", module + "/gpuagents/..."}, reason: "the two kinds " +
		"of agent talk through the queue alone"},
	{of: "gpuagents/...", banned: []string{
		module + "/cpuagents/...", module + "/jobs/natsq/...",
		"github.com/nats-io/...",
	}, reason: "the two kinds of agent talk through the queue alone, and the queue is " +
		"handed in"},
	{
		of: "gpuagents/...", direct: true, banned: []string{"os", "os/exec", "net", "net/http", "syscall", "io/ioutil"},
		reason: "a GPU agent does no I/O of its own",
	},
	{of: "jobs", banned: []string{module + "/...", "github.com/...", "golang.org/..."}, reason: "the protocol " +
		"imports the standard library only"},
	{
		of: "jobs/swarms", banned: []string{"github.com/nats-io/...", module + "/jobs/natsq/..."},
		reason: "the protocol of swarms does not depend on what carries it",
	},
	{of: "cmd/gpuagent", banned: []string{
		module + "/cpuagents/...", module + "/jobs/natsq/server",
		"github.com/nats-io/nats-server/...", "modernc.org/...", "github.com/jackc/...",
		"github.com/go-sql-driver/...",
	}, reason: "sources, sinks and servers are the business of other processes"},
	{
		of:     "cmd/worker",
		banned: []string{module + "/cpuagents/...", module + "/jobs/natsq/...", "github.com/nats-io/..."},
		reason: "a program that loads the library talks to no cluster",
	},
	{
		of: "jobs/natsq/wire", banned: []string{"github.com/nats-io/..."},
		reason: "names and rules of the queue are tested without a server",
	},
	{of: "cuda/device", banned: []string{module + "/...", "github.com/...", "gorgonia.org/..."}, reason: "the " +
		"contract imports the standard library only"},
	{
		of: "cuda/expr/ir", banned: []string{module + "/cuda/...", "gorgonia.org/..."},
		reason: "what the stages of the compiler share knows no device",
	},
	{
		of: "cuda/expr/internal/plan", banned: []string{module + "/cuda/device", module + "/cuda/host/..."},
		reason: "a plan knows no device",
	},
	{
		of: "cuda/expr/internal/codegen", banned: []string{module + "/cuda/device", module + "/cuda/host/..."},
		reason: "the text of a kernel knows no device",
	},
	{of: "cuda/host/...", banned: []string{"gorgonia.org/..."}, reason: "the host device is pure Go"},
	{
		of: "internal/base/...", banned: []string{module + "/..."},
		reason: "helpers know nothing of the product, so every package may import them",
	},
}

// onlyImporter says which packages alone may import another's package.
var onlyImporter = map[string][]string{
	// The application is above the agents, the queue and the devices.
	module + "/internal/app":            {"cmd", "internal/app"},
	"github.com/nats-io/nats.go":        {"jobs/natsq"},
	"github.com/nats-io/nats-server/v2": {"jobs/natsq/server"},
	"gorgonia.org/cu":                   {"cuda/internal/driver"},
	// Snapshots are the one thing that a GPU agent writes to an object store, by way of this
	// package alone (README.md, the table of processes).
	"gocloud.dev":    {"internal/base/objectstore"},
	"github.com/aws": {"internal/base/objectstore"},
	// Each program that imports them has all compute kernels of the Arrow library, 17 MB.
	"github.com/apache/arrow-go/v18/arrow/compute": {},
	"github.com/apache/arrow-go/v18/parquet":       {"cpuagents/internal/tabletest"},
	"google.golang.org/api":                        {"internal/base/objectstore"},
	"github.com/jackc/pgx/v5":                      {"cpuagents/remote/drivers"},
	"modernc.org/sqlite":                           {"cpuagents/remote/drivers"},
	// The commands register drivers. A package that does so is in nearly all tests, which then link
	// the clients of clouds and databases for seconds each.
	module + "/cpuagents/remote/drivers":        {"cmd/exoswarm", "cmd/cpuagent", "cpuagents/servertest"},
	module + "/cpuagents/kafka":                 {"cpuagents/remote/drivers"},
	module + "/internal/base/objectstore/cloud": {"cmd/gpuagent", "cpuagents/remote/drivers"},
}

// connectors are the clients that only a build with the tag connectors has: what a newcomer
// compiles from a clone has none of them (RFC 0069).
var connectors = []string{
	"cloud.google.com/...", "github.com/aws/...", "github.com/jackc/...", "github.com/twmb/...", "gocloud.dev/...",
	"google.golang.org/api/...", "google.golang.org/grpc/...", "modernc.org/...",
}

func TestConnectors(t *testing.T) {
	for _, p := range list(t, "", "-deps", "./cmd/exoswarm", "./cmd/gpuagent", "./cmd/cpuagent") {
		if slices.ContainsFunc(connectors, func(c string) bool { return matches(c, p.ImportPath) }) {
			t.Errorf("a command without the tag connectors is built with %s", p.ImportPath)
		}
	}
}

// optional packages are walled as soon as they exist.
var optional = []wall{
	{of: "consensus", banned: []string{module + "/...", "github.com/...", "golang.org/..."}, reason: "the meaning " +
		"of a vote imports the standard library only"},
	{of: "tiers", banned: []string{module + "/...", "github.com/...", "golang.org/..."}, reason: "the page table " +
		"and its contract import the standard library only"},
}

// pkg is a package as go list describes it.
type pkg struct {
	ImportPath    string
	Imports, Deps []string
	Standard      bool // of the standard library
}

// list describes packages under a tag set; args are the further arguments of go list.
func list(t *testing.T, tags string, args ...string) []pkg {
	t.Helper()
	args = append([]string{"list", "-tags", tags, "-json=ImportPath,Imports,Deps,Standard"}, args...)
	cmd := exec.Command("go", args...)
	cmd.Dir = "../.."
	cmd.Env = append(os.Environ(), "CGO_ENABLED=1") // make test has none, and go list leaves out files with cgo then
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	var all []pkg
	for dec := json.NewDecoder(bytes.NewReader(out)); ; {
		var p pkg
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func matches(pattern, pkg string) bool {
	if base, ok := strings.CutSuffix(pattern, "/..."); ok {
		return pkg == base || strings.HasPrefix(pkg, base+"/")
	}
	return pkg == pattern
}

func TestWalls(t *testing.T) {
	for _, tags := range []string{"", "connectors", "cuda,connectors"} {
		all := list(t, tags, "./...")
		inside := func(of string) (in []pkg) {
			for _, p := range all {
				if matches(path.Join(module, of), p.ImportPath) {
					in = append(in, p)
				}
			}
			return in
		}
		for _, w := range walls {
			in := inside(w.of)
			if len(in) == 0 {
				t.Errorf("tags %q: the wall stands around %s, which does not exist", tags, w.of)
			}
			for _, p := range in {
				w.check(t, p, tags)
			}
		}
		for _, w := range optional {
			for _, p := range inside(w.of) {
				w.check(t, p, tags)
			}
		}
		for banned, allowed := range onlyImporter {
			for _, p := range all {
				ok := false
				for _, a := range allowed {
					ok = ok || matches(path.Join(module, a)+"/...", p.ImportPath)
				}
				for _, dep := range p.Imports {
					if !ok && matches(banned+"/...", dep) {
						t.Errorf("tags %q: %s imports %s: only %v may", tags, p.ImportPath, dep, allowed)
					}
				}
			}
		}
	}
}

// suite matches the names of suites, fixtures and fakes. They are packages because tests of several
// packages use them, and no command is built with them.
var suite = regexp.MustCompile(`test$|^(emulation|faults|launches|testkit)$`)

// TestSuites: the commands are built without suites, fixtures and fakes, and without package
// testing.
func TestSuites(t *testing.T) {
	for _, tags := range []string{"", "connectors", "cuda,connectors"} {
		for _, p := range list(t, tags, "-deps", "./cmd/exoswarm", "./cmd/gpuagent", "./cmd/cpuagent") {
			if !matches(module+"/...", p.ImportPath) {
				continue
			}
			if suite.MatchString(path.Base(p.ImportPath)) || slices.Contains(p.Imports, "testing") {
				t.Errorf("tags %q: a command is built with %s, which is of the tests", tags, p.ImportPath)
			}
		}
	}
}

// listens are the packages that may accept connections in a process of an agent.
var listens = []string{
	"cmd/internal/serveprocess/dashboard.go", "internal/app/command/metrics.go",
	"cpuagents/push/server.go", "jobs/natsq/server/server.go",
}

// TestListeners: no other file of the product opens a listener. TestProcessHealth in cmd/exoswarm
// tests that the processes have no more than these at run time.
func TestListeners(t *testing.T) {
	call := regexp.MustCompile(`\b(net|tls)\.Listen\w*\(|\bListenConfig\{|\.ListenAndServe`)
	// Examples and tools are no processes of a cluster.
	if err := filepath.WalkDir("../..", func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := strings.TrimPrefix(filepath.ToSlash(file), "../../")
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && name != "../.." || name == "vendor" ||
			name == "examples" || name == "tools" ||
			name == "internal/base/otlptest" || name == "cpuagents/servertest") {
			return filepath.SkipDir
		}
		if !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") || slices.Contains(listens, name) {
			return nil
		}
		text, err := os.ReadFile(file)
		if err == nil && call.Match(text) {
			t.Errorf("%s opens a listener: only %v may", name, listens)
		}
		return err
	}); err != nil {
		t.Fatal(err)
	}
}

// networked are packages with which a program can open connections.
var networked = []string{
	"net", "net/http/...", "net/rpc/...", "crypto/tls", "golang.org/x/net/...", "google.golang.org/grpc/...",
	"github.com/nats-io/nats.go/...", "gocloud.dev/...", "cloud.google.com/...", "github.com/aws/...",
	"go.opentelemetry.io/otel/exporters/...",
}

// connects says which packages of a GPU agent may import networked ones, and why. cmd hands each to
// the agents: the packages below gpuagents reach none of them.
var connects = map[string]string{
	"jobs/natsq/...":                           "the queue",
	"internal/app/command":                     "the listener of metrics, and the login to NATS",
	"jobs/tracing":                             "traces, to the collector that the operator names",
	"internal/base/objectstore/...":            "snapshots, to the store that the operator names",
	"internal/base/httpapi":                    "it serves the listeners that others open",
	"internal/base/redact":                     "it parses addresses and opens none",
	"github.com/prometheus/procfs":             "it parses addresses and opens none",
	"github.com/santhosh-tekuri/jsonschema/v5": "it parses addresses and opens none",
	"github.com/prometheus/common/expfmt":      "it reads the headers of a request",
	"go.opentelemetry.io/otel/propagation":     "it reads the headers of a request",
}

// TestConnects: GPU agents reach other machines through NATS alone. Of the packages below
// gpuagents, and of all that they reach, none opens connections. Of this module's packages in the
// command gpuagent, only the packages of connects do. TestConnections in cmd/exoswarm tests that
// the running processes have no other connections.
func TestConnects(t *testing.T) {
	may := func(p pkg, reached bool) bool {
		for allowed := range connects {
			own := !strings.HasPrefix(allowed, "github.com/") && !strings.HasPrefix(allowed, "go.opentelemetry.io/")
			if own && !reached && matches(path.Join(module, allowed), p.ImportPath) ||
				!own && matches(allowed, p.ImportPath) {
				return true
			}
		}
		return false
	}
	for _, tags := range []string{"", "connectors", "cuda,connectors"} {
		for _, of := range []string{"./gpuagents/...", "./cmd/gpuagent"} {
			reached := of == "./gpuagents/..."
			for _, p := range list(t, tags, "-deps", of) {
				if p.Standard || !reached && !matches(module+"/...", p.ImportPath) || may(p, reached) {
					continue
				}
				for _, dep := range p.Imports {
					if slices.ContainsFunc(networked, func(n string) bool { return matches(n, dep) }) {
						t.Errorf("tags %q: %s, in %s, imports %s, which opens connections: only these may: %v",
							tags, p.ImportPath, of, dep, slices.Sorted(maps.Keys(connects)))
					}
				}
			}
		}
	}
}

func (w wall) check(t *testing.T, p pkg, tags string) {
	if w.plain && strings.Contains(tags, "cuda") {
		return
	}
	deps := p.Deps
	if w.direct {
		deps = p.Imports
	}
	for _, dep := range deps {
		for _, b := range w.banned {
			// What stands below the same wall is of the same kind.
			if matches(b, dep) && !matches(path.Join(module, w.of), dep) {
				t.Errorf("tags %q: %s reaches %s: %s", tags, p.ImportPath, dep, w.reason)
			}
		}
	}
}
