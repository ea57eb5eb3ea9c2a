package compose_test

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

type unpacked struct {
	root   string
	config v1.ImageConfig
}

// unpack unpacks an archive of tools/deploy/container as a runtime does, with the owners of its
// files.
func unpack(t *testing.T, archive, root string) unpacked {
	t.Helper()
	blobs := map[string][]byte{}
	data, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	each(t, bytes.NewReader(data), func(h *tar.Header, content []byte) error {
		blobs[filepath.Base(h.Name)] = content
		return nil
	})
	var index v1.Index
	var manifest v1.Manifest
	var image v1.Image
	for _, step := range []struct {
		to   any
		name func() string
	}{
		{&index, func() string { return "index.json" }},
		{&manifest, func() string { return index.Manifests[0].Digest.Encoded() }},
		{&image, func() string { return manifest.Config.Digest.Encoded() }},
	} {
		if err := json.Unmarshal(blobs[step.name()], step.to); err != nil {
			t.Fatal(err)
		}
	}
	for _, layer := range manifest.Layers {
		z, err := gzip.NewReader(bytes.NewReader(blobs[layer.Digest.Encoded()]))
		if err != nil {
			t.Fatal(err)
		}
		each(t, z, func(h *tar.Header, content []byte) error {
			path := filepath.Join(root, h.Name)
			if h.Typeflag == tar.TypeDir {
				err = os.MkdirAll(path, 0o755)
			} else {
				err = os.WriteFile(path, content, 0o755)
			}
			return errors.Join(err, os.Chown(path, h.Uid, h.Gid), os.Chmod(path, h.FileInfo().Mode()))
		})
	}
	return unpacked{root, image.Config}
}

func each(t *testing.T, r io.Reader, f func(h *tar.Header, content []byte) error) {
	t.Helper()
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		var content []byte
		if err == nil {
			content, err = io.ReadAll(files)
		}
		if err == nil {
			err = f(h, content)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

type bind struct {
	source, target string
	readOnly       bool
}

type container struct {
	image   unpacked
	command []string
	env     []string
	user    uint32
	binds   []bind
	// network is the path of the network namespace to join; empty for a new one.
	network string

	t         *testing.T
	id, state string // the state is a folder of runc
	cmd       *exec.Cmd
	done      chan struct{}
	out       *testkit.Log
}

// spec returns the configuration of runc: a user without capabilities, and a root that is
// read-only.
func (c *container) spec() any {
	type object = map[string]any
	type list = []any
	mounts := list{
		object{"destination": "/proc", "type": "proc", "source": "proc"},
		object{"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": list{"nosuid", "mode=755"}},
		object{
			"destination": "/tmp",
			"type":        "tmpfs",
			"source":      "tmpfs",
			"options":     list{"nosuid", "nodev", "mode=1777"},
		},
	}
	for _, b := range c.binds {
		options := list{"bind", "nosuid", "nodev"}
		if b.readOnly {
			options = append(options, "ro")
		}
		mounts = append(
			mounts,
			object{"destination": b.target, "type": "bind", "source": b.source, "options": options},
		)
	}
	network := object{"type": "network"}
	if c.network != "" {
		network["path"] = c.network
	}
	return object{
		"ociVersion": "1.0.2",
		"root":       object{"path": c.image.root, "readonly": true},
		"process": object{
			"user": object{"uid": c.user, "gid": c.user}, "args": append(c.image.config.Entrypoint, c.command...),
			"env": append(
				c.image.config.Env,
				c.env...), "cwd": "/", "capabilities": object{}, "noNewPrivileges": true,
		},
		"mounts": mounts,
		"linux": object{"namespaces": list{
			object{"type": "pid"}, object{"type": "mount"}, object{"type": "ipc"}, object{"type": "uts"}, network,
		}},
	}
}

var containers int

func (c *container) start(t *testing.T) {
	t.Helper()
	c.t, c.done, c.out = t, make(chan struct{}), &testkit.Log{}
	bundle := t.TempDir()
	data, err := json.Marshal(c.spec())
	if err == nil {
		err = os.WriteFile(filepath.Join(bundle, "config.json"), data, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	containers++
	c.id, c.state = fmt.Sprintf("exoswarm-test-%d-%d", os.Getpid(), containers), t.TempDir()
	c.cmd = exec.Command("runc", "--root", c.state, "run", "--bundle", bundle, c.id)
	c.cmd.Stdout, c.cmd.Stderr = c.out, c.out
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { defer close(c.done); _ = c.cmd.Wait() }()
	t.Cleanup(func() {
		select {
		case <-c.done:
		default:
			_ = exec.Command("runc", "--root", c.state, "kill", c.id, "KILL").Run()
			<-c.done
		}
		_ = exec.Command("runc", "--root", c.state, "delete", "--force", c.id).Run()
	})
}

func (c *container) ready(text string) {
	c.t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(c.out.String(), text); {
		select {
		case <-c.done:
			c.t.Fatalf("%s ended:\n%s", c.image.config.Entrypoint, c.out)
		case <-time.After(20 * time.Millisecond):
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("%s does not say %q:\n%s", c.image.config.Entrypoint, text, c.out)
		}
	}
}

// end waits for the end of the container, after a signal if it is not 0, and returns its exit code.
func (c *container) end(s syscall.Signal) int {
	c.t.Helper()
	if s != 0 {
		_ = c.cmd.Process.Signal(s) // runc hands it to the process
	}
	select {
	case <-c.done:
	case <-time.After(time.Minute):
		c.t.Fatalf("%s does not end:\n%s", c.image.config.Entrypoint, c.out)
	}
	return c.cmd.ProcessState.ExitCode()
}

func (c *container) pid() string {
	c.t.Helper()
	out, err := exec.Command("runc", "--root", c.state, "state", c.id).Output()
	var state struct{ Pid int }
	if err == nil {
		err = json.Unmarshal(out, &state)
	}
	if err != nil || state.Pid == 0 {
		c.t.Fatalf("no process of %s: %v, %s", c.image.config.Entrypoint, err, out)
	}
	return fmt.Sprint(state.Pid)
}
