package cluster_test

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cmd/internal/cluster"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// TestCreateChecksFirst: mistakes of files and flags are found without a server.
func TestCreateChecksFirst(t *testing.T) {
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatalf("write %s: %v", path, err)
		}
		return path
	}
	spec := file("swarm.yaml", "name: plant\nkey: id\n")
	sources := file("sources.json", `[{"name":"p","uri":"push:plant"}]`)
	sinks := file("sinks.json", `[{"uri":"nats:S/s"}]`)
	groups, key := file("groups.yaml", "name: a\ngroups: 3\n"), file("key.yaml", "name: a\nkey: value\n")
	files := file("file.json", `[{"name":"p","uri":"file:a/b.csv"}]`)
	for want, args := range map[string][]string{
		"-f is missing":           {"--sources", sources},
		"--sources is missing":    {"-f", spec},
		"none.yaml":               {"-f", "none.yaml", "--sources", sources, "--sinks", sinks},
		"none.json":               {"-f", spec, "--sources", "none.json", "--sinks", sinks},
		"groups: 3":               {"-f", groups, "--sources", sources, "--sinks", sinks},
		"NATS server":             {"-f", spec, "--sources", sources, "--sinks", sinks},
		`key column "value" is`:   {"-f", key, "--sources", sources, "--sinks", sinks},
		"cannot be read for ever": {"-f", spec, "--sources", files, "--sinks", sinks},
	} {
		var out bytes.Buffer
		cmd := command.Group("detect", "", cluster.Detectors(nil)...)
		cmd.SetArgs(append([]string{"create", "--nats", "nats://127.0.0.1:1"}, args...))
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		if code := command.Run(context.Background(), cmd, &out); code == 0 || !strings.Contains(out.String(), want) {
			t.Errorf("detector create %q without a server: exit code %d, %s, want %s", args, code, out.String(), want)
		}
	}
}
