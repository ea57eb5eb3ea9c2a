package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/opencontainers/go-digest"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"

	"github.com/exoswarm/exoswarm/tools/deploy/programs"
)

func TestMain(m *testing.M) { os.Exit(programs.Run(m, ".")) }

func entries(t *testing.T, data []byte) map[string]entry {
	t.Helper()
	all := map[string]entry{}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		all[h.Name] = entry{h, content}
	}
}

type entry struct {
	*tar.Header
	data []byte
}

type opened struct {
	config v1.Image
	layers []map[string]entry
	size   int64
}

func open(t *testing.T, archive []byte) opened {
	t.Helper()
	files := entries(t, archive)
	read := func(d v1.Descriptor) []byte {
		data := files["blobs/sha256/"+d.Digest.Encoded()].data
		if int64(len(data)) != d.Size || digest.FromBytes(data) != d.Digest {
			t.Fatalf("blob %s: %d bytes with digest %s, want %d", d.Digest, len(data), digest.FromBytes(data), d.Size)
		}
		return data
	}
	decode := func(data []byte, to any) {
		if err := json.Unmarshal(data, to); err != nil {
			t.Fatal(err)
		}
	}
	var index v1.Index
	var manifest v1.Manifest
	var image opened
	decode(files["index.json"].data, &index)
	if len(index.Manifests) != 1 || string(files["oci-layout"].data) != `{"imageLayoutVersion":"1.0.0"}` {
		t.Fatalf("%d manifests, layout %s", len(index.Manifests), files["oci-layout"].data)
	}
	decode(read(index.Manifests[0]), &manifest)
	decode(read(manifest.Config), &image.config)
	image.size = index.Manifests[0].Size + manifest.Config.Size
	for i, d := range manifest.Layers {
		image.size += d.Size
		z, err := gzip.NewReader(bytes.NewReader(read(d)))
		if err != nil {
			t.Fatal(err)
		}
		plain, err := io.ReadAll(z)
		if err != nil {
			t.Fatal(err)
		}
		if digest.FromBytes(plain) != image.config.RootFS.DiffIDs[i] {
			t.Errorf("layer %d has another digest than the configuration says", i)
		}
		image.layers = append(image.layers, entries(t, plain))
	}
	return image
}

// TestImage: an image is complete and unprivileged, has only its program, and is the same bytes
// every time.
func TestImage(t *testing.T) {
	i := image{
		name: "gpuagent", version: "v1.2.3", arch: "arm64", program: []byte("program"),
		certificates: []byte("certificates"),
	}
	var one, two bytes.Buffer
	size, err := i.write(&one)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := i.write(&two); err != nil || !bytes.Equal(one.Bytes(), two.Bytes()) {
		t.Errorf("the same image twice: error %v, other bytes", err)
	}
	got := open(t, one.Bytes())
	if got.size != size {
		t.Errorf("write returned %d bytes, the image has %d", size, got.size)
	}
	c := got.config.Config
	if c.User != "65532:65532" || len(c.Entrypoint) != 1 || c.Entrypoint[0] != "/usr/local/bin/gpuagent" ||
		got.config.OS != "linux" || got.config.Architecture != "arm64" {
		t.Errorf("the configuration is %+v", got.config)
	}
	program := got.layers[1]["usr/local/bin/gpuagent"]
	if len(got.layers) != 2 || len(got.layers[1]) != 1 || string(program.data) != "program" || program.Mode != 0o755 {
		t.Errorf("the layer of the program has %v", got.layers[1])
	}
	for name, e := range got.layers[0] {
		if own := name == "var/lib/exoswarm/"; own != (e.Uid == User) {
			t.Errorf("%s belongs to user %d", name, e.Uid)
		}
		if strings.HasPrefix(name, "bin/") || e.Mode&0o6000 != 0 {
			t.Errorf("the image has %s with mode %o", name, e.Mode)
		}
	}
}

// TestRefused: a program that needs libraries, and missing files, are refused with what to do.
func TestRefused(t *testing.T) {
	dir := t.TempDir()
	ca := filepath.Join(dir, "ca.pem")
	if err := os.WriteFile(ca, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ commands, ca, want string }{
		{dir, filepath.Join(dir, "none"), "install ca-certificates, or name a file with -ca"},
		{dir, ca, "exoswarm: no such file or directory: make build makes the commands"},
	} {
		err := writeAll(c.commands, filepath.Join(dir, "out"), "v", c.ca)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("commands %s, certificates %s: error %v, want %s", c.commands, c.ca, err, c.want)
		}
	}
	for _, path := range []string{"/bin/sh", "/usr/bin/sh"} {
		if _, _, err := readStatic(path); err == nil || !strings.Contains(err.Error(), "CGO_ENABLED=0") {
			t.Errorf("%s: error %v, want a refusal: it needs libraries", path, err)
		}
	}
}

// TestLibraries: a program that needs libraries runs in a root that has nothing but its image.
func TestLibraries(t *testing.T) {
	const program = "/usr/bin/id"
	files, err := libraries(program)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(program)
	if err != nil {
		t.Fatal(err)
	}
	var archive bytes.Buffer
	i := image{name: "gpuagent-cuda", version: "v", program: text, certificates: []byte("c"), libraries: files}
	if _, err := i.write(&archive); err != nil {
		t.Fatal(err)
	}
	got := open(t, archive.Bytes())
	if env := strings.Join(got.config.Config.Env, " "); !strings.Contains(env, "NVIDIA_VISIBLE_DEVICES=all") {
		t.Errorf("the environment is %s", env)
	}
	root := t.TempDir()
	for _, layer := range got.layers {
		for name, e := range layer {
			path := filepath.Join(root, name)
			if e.Typeflag == tar.TypeDir {
				continue
			}
			err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, e.data, 0o755))
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	if os.Getuid() != 0 {
		t.Skip("another root needs the user root")
	}
	cmd := exec.Command("/usr/local/bin/gpuagent-cuda", "-u")
	cmd.Env, cmd.Dir = got.config.Config.Env, "/"
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root}
	if out, err := cmd.CombinedOutput(); err != nil || string(out) != "0\n" {
		t.Errorf("the program in its image prints %q, error %v; want 0", out, err)
	}
}
