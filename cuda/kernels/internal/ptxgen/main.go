// Command ptxgen compiles every kernel of one package of kernels to PTX with nvcc and writes the
// archive ptx.tar.zst, for machines without NVRTC. It keeps what is of the present sources. Its
// argument is the folder of the package below cuda/kernels; without one it is cuda/kernels itself. Run
// it through go generate ./cuda/kernels/... after a kernel has changed; a test fails until that is
// done.
package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	_ "github.com/exoswarm/exoswarm/cuda/kernels/arrayset" // its kernels are in the set
	_ "github.com/exoswarm/exoswarm/cuda/kernels/graphset" // so are these
	_ "github.com/exoswarm/exoswarm/cuda/kernels/gridset"  // and these
	_ "github.com/exoswarm/exoswarm/cuda/kernels/spaceset" // and these
	_ "github.com/exoswarm/exoswarm/cuda/kernels/swarmset" // and so are these
)

func main() {
	log.SetFlags(0)
	folder := "."
	if len(os.Args) > 1 {
		folder = os.Args[1]
	}
	if err := generate(folder, "ptx.tar.zst"); err != nil {
		log.Fatal("ptxgen: ", err)
	}
}

// generate writes the archive of the kernels of a package. The same PTX gives the same bytes.
func generate(folder, file string) error {
	tmp, err := os.MkdirTemp("", "ptxgen")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	before, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	var old kernels.Archive
	var out bytes.Buffer
	z, err := zstd.NewWriter(&out, zstd.WithEncoderLevel(zstd.SpeedBestCompression), zstd.WithEncoderConcurrency(1),
		zstd.WithWindowSize(16<<20))
	if err != nil {
		return err
	}
	w := tar.NewWriter(z)
	for _, name := range kernels.Names() {
		src, _ := kernels.Lookup(name)
		if path.Dir(src.File) != folder {
			continue
		}
		kept, _ := old.PTX(string(before), name)
		text := []byte(kept)
		if head, _, _ := strings.Cut(kept, "\n"); head != kernels.PTXHeader(src) {
			if text, err = compile(tmp, src); err != nil {
				return err
			}
		}
		if err := w.WriteHeader(&tar.Header{Name: name + ".ptx", Mode: 0o644, Size: int64(len(text))}); err != nil {
			return err
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	if err := errors.Join(w.Close(), z.Close()); err != nil {
		return err
	}
	return os.WriteFile(file, out.Bytes(), 0o644)
}

func compile(tmp string, src kernels.Source) ([]byte, error) {
	// The file's name would stand in the PTX; a plain one keeps the output the same on every
	// machine.
	in, out := filepath.Join(tmp, src.Name+".cu"), filepath.Join(tmp, src.Name+".ptx")
	if err := os.WriteFile(in, []byte(src.Code), 0o600); err != nil {
		return nil, err
	}
	args := append([]string{"--ptx", "-arch=" + kernels.PTXArch, "-std=c++17", "-o", out, in}, src.Options()...)
	cmd := exec.Command("nvcc", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Run(); err != nil {
		return nil, fmt.Errorf("nvcc %s: %w\n%s", src.File, err, stderr.String())
	}
	text, err := os.ReadFile(out)
	if err != nil {
		return nil, err
	}
	return append([]byte(kernels.PTXHeader(src)+"\n"), text...), nil
}
