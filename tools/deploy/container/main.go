// Command container writes the images of the three commands, without a container daemon: archives
// in the format of the Open Container Initiative, which docker load, podman load and skopeo read.
//
//	make build     the static commands, into bin/
//	make images    exoswarm.tar, cpuagent.tar and gpuagent.tar
//
// An image has one program, the certificates of public CAs, and an empty data folder. It has no
// shell, and starts as user 65532. Its root may be read-only. The same programs and certificates
// make the same bytes.
//
// If make cuda has left gpuagent-cuda in the folder of the commands, its image is written too, with
// the C library of this system. The container runtime of NVIDIA adds the driver.
package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	_ "crypto/sha256" // for package digest
	"debug/elf"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/opencontainers/go-digest"
	"github.com/opencontainers/image-spec/specs-go"
	v1 "github.com/opencontainers/image-spec/specs-go/v1"
)

// User is the user and group of the process, as in the images of many others.
const User = 65532

// DataDir is the folder of an image that its process may write to, and a volume.
const DataDir = "/var/lib/exoswarm"

func main() {
	commands := flag.String("commands", "bin", "folder of the static commands, as make build makes them")
	out := flag.String("o", "images", "folder of the archives")
	version := flag.String("version", "latest", "tag of the images")
	ca := flag.String("ca", "/etc/ssl/certs/ca-certificates.crt", "file with the certificates of public CAs, in PEM")
	flag.Parse()
	if err := writeAll(*commands, *out, *version, *ca); err != nil {
		fmt.Fprintln(os.Stderr, "container:", err)
		os.Exit(1)
	}
}

// writeAll writes the archives of the three commands, and prints their compressed sizes.
func writeAll(commands, out, version, ca string) error {
	certificates, err := os.ReadFile(ca)
	if err != nil {
		return fmt.Errorf("certificates of CAs: %w: install ca-certificates, or name a file with -ca", err)
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for _, name := range []string{"exoswarm", "cpuagent", "gpuagent"} {
		program, arch, err := readStatic(filepath.Join(commands, name))
		if err != nil {
			return err
		}
		i := image{name: name, version: version, arch: arch, program: program, certificates: certificates}
		if err := i.save(out); err != nil {
			return err
		}
	}
	cuda := image{name: "gpuagent-cuda", version: version, arch: runtime.GOARCH, certificates: certificates}
	path := filepath.Join(commands, cuda.name)
	if cuda.program, err = os.ReadFile(path); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		cuda.libraries, err = libraries(path)
	}
	if err != nil {
		return err
	}
	return cuda.save(out)
}

func (i image) save(dir string) error {
	path := filepath.Join(dir, i.name+".tar")
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	size, err := i.write(f)
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	fmt.Printf("%-13s %6.1f MB compressed\n", i.name, float64(size)/1e6)
	return nil
}

// architectures are the names of processors, as images have them.
var architectures = map[elf.Machine]string{elf.EM_X86_64: "amd64", elf.EM_AARCH64: "arm64"}

// readStatic reads a program, and returns its processor. It must need no library, because an image
// has none.
func readStatic(path string) (program []byte, arch string, err error) {
	f, err := elf.Open(path)
	if err != nil {
		return nil, "", fmt.Errorf("%w: make build makes the commands", err)
	}
	defer f.Close()
	for _, p := range f.Progs {
		if p.Type == elf.PT_INTERP {
			return nil, "", fmt.Errorf("%s is linked dynamically, and an image has no libraries: build it with "+
				"CGO_ENABLED=0, as make build does", path)
		}
	}
	arch, ok := architectures[f.Machine]
	if !ok {
		return nil, "", fmt.Errorf("%s is for %v: build it for amd64 or arm64", path, f.Machine)
	}
	program, err = os.ReadFile(path)
	return program, arch, err
}

type image struct {
	name, version, arch string
	// program is at /usr/local/bin/NAME, as in the units of deploy/systemd; certificates are in PEM.
	program, certificates []byte
	// libraries are the files of a dynamic program by their paths; nil for a static one.
	libraries map[string][]byte
}

func (i image) write(to io.Writer) (size int64, err error) {
	archive := tar.NewWriter(to)
	blob := func(kind string, data []byte) (v1.Descriptor, error) {
		d := v1.Descriptor{MediaType: kind, Digest: digest.FromBytes(data), Size: int64(len(data))}
		size += d.Size
		return d, file(archive, v1.ImageBlobsDir+"/sha256/"+d.Digest.Encoded(), 0o644, 0, data)
	}
	layout := encode(v1.ImageLayout{Version: v1.ImageLayoutVersion})
	if err := file(archive, v1.ImageLayoutFile, 0o644, 0, layout); err != nil {
		return 0, err
	}
	manifest := v1.Manifest{Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageManifest}
	config := i.config()
	layers := []func(*tar.Writer) error{i.base, i.commands}
	if i.libraries != nil {
		layers = slices.Insert(layers, 1, i.shared)
	}
	for _, layer := range layers {
		plain, err := layerOf(layer)
		if err != nil {
			return 0, err
		}
		packed, err := compress(plain)
		if err != nil {
			return 0, err
		}
		d, err := blob(v1.MediaTypeImageLayerGzip, packed)
		if err != nil {
			return 0, err
		}
		manifest.Layers = append(manifest.Layers, d)
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, digest.FromBytes(plain))
	}
	if manifest.Config, err = blob(v1.MediaTypeImageConfig, encode(config)); err != nil {
		return 0, err
	}
	d, err := blob(v1.MediaTypeImageManifest, encode(manifest))
	if err != nil {
		return 0, err
	}
	d.Platform = &config.Platform
	// skopeo and podman take the tag from the first one, docker and containerd the name from the
	// second.
	d.Annotations = map[string]string{
		v1.AnnotationRefName:             i.version,
		"io.containerd.image.name":       "exoswarm/" + i.name + ":" + i.version,
		"org.opencontainers.image.title": i.name,
	}
	index := v1.Index{
		Versioned: specs.Versioned{SchemaVersion: 2}, MediaType: v1.MediaTypeImageIndex,
		Manifests: []v1.Descriptor{d},
	}
	return size, errors.Join(file(archive, v1.ImageIndexFile, 0o644, 0, encode(index)), archive.Close())
}

func (i image) config() v1.Image {
	env := []string{"PATH=/usr/local/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"}
	if i.name != "exoswarm" { // whose commands have data folders of different kinds
		env = append(env, "EXOSWARM_DATA_DIR="+DataDir)
	}
	if i.libraries != nil {
		env = append(env, "NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_DRIVER_CAPABILITIES=compute,utility",
			"LD_LIBRARY_PATH="+strings.Join(libraryDirs, ":"))
	}
	return v1.Image{
		Platform: v1.Platform{Architecture: i.arch, OS: "linux"},
		Config: v1.ImageConfig{
			User: fmt.Sprintf("%d:%d", User, User), Env: env, Entrypoint: []string{"/usr/local/bin/" + i.name},
			WorkingDir: DataDir, Volumes: map[string]struct{}{DataDir: {}}, StopSignal: "SIGTERM",
			Labels: map[string]string{v1.AnnotationTitle: i.name, v1.AnnotationVersion: i.version},
		},
		RootFS: v1.RootFS{Type: "layers"},
	}
}

// base writes what all images share, so that a registry and a host keep it once. A volume that is
// mounted at DataDir for the first time takes its owner from here.
func (i image) base(t *tar.Writer) error {
	var errs []error
	for _, dir := range []string{
		"etc", "etc/ssl", "etc/ssl/certs", "usr", "usr/local", "usr/local/bin", "var", "var/lib",
	} {
		errs = append(errs, folder(t, dir, 0o755, 0))
	}
	line := fmt.Sprintf("exoswarm:x:%d:", User)
	return errors.Join(append(errs,
		folder(t, "tmp", 0o1777, 0), folder(t, strings.TrimPrefix(DataDir, "/"), 0o700, User),
		file(t, "etc/passwd", 0o644, 0, []byte(line+fmt.Sprintf("%d::%s:/sbin/nologin\n", User, DataDir))),
		file(t, "etc/group", 0o644, 0, []byte(line+"\n")),
		file(t, "etc/ssl/certs/ca-certificates.crt", 0o644, 0, i.certificates))...)
}

func (i image) commands(t *tar.Writer) error {
	return file(t, "usr/local/bin/"+i.name, 0o755, 0, i.program)
}

// epoch is the time of all files: another one would make other bytes.
var epoch = time.Unix(0, 0).UTC()

// folder adds a folder with an owner, who is its group too.
func folder(t *tar.Writer, name string, mode int64, owner int) error {
	return t.WriteHeader(&tar.Header{
		Typeflag: tar.TypeDir, Name: name + "/", Mode: mode, Uid: owner, Gid: owner, ModTime: epoch,
		Format: tar.FormatUSTAR,
	})
}

// file adds a file, as folder does. Its header has no names of users, which differ between systems.
func file(t *tar.Writer, name string, mode int64, owner int, data []byte) error {
	if err := t.WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Mode: mode, Uid: owner, Gid: owner, Size: int64(len(data)), ModTime: epoch,
		Format: tar.FormatUSTAR,
	}); err != nil {
		return err
	}
	_, err := t.Write(data)
	return err
}

func layerOf(write func(*tar.Writer) error) ([]byte, error) {
	var b bytes.Buffer
	t := tar.NewWriter(&b)
	err := errors.Join(write(t), t.Close())
	return b.Bytes(), err
}

// compress packs a layer. Its header has no time and no name, so the same data have the same bytes.
func compress(data []byte) ([]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	_, err := z.Write(data)
	err = errors.Join(err, z.Close())
	return b.Bytes(), err
}

// encode returns a value of the image format as JSON. Its types have no values without a form in
// JSON.
func encode(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return data
}
