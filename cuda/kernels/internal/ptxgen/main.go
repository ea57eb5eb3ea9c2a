// Command ptxgen compiles every kernel of one package of kernels to PTX with nvcc and writes it below
// ptx/, for machines without NVRTC. Its argument is the folder of the package below cuda/kernels;
// without one it is cuda/kernels itself. Run it through go generate ./cuda/kernels/... after a kernel
// has changed; a test fails until that is done.
package main

import (
	"bytes"
	"fmt"
	"log"
	"os"
	"os/exec"
	"path"
	"path/filepath"

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
	if err := generate(folder, "ptx"); err != nil {
		log.Fatal("ptxgen: ", err)
	}
}

// generate replaces the files in dir by those of the kernels of a package. It starts from nothing, so
// that a kernel that is gone leaves none.
func generate(folder, dir string) error {
	tmp, err := os.MkdirTemp("", "ptxgen")
	if err != nil {
		return err
	}
	defer os.RemoveAll(tmp)
	old, err := filepath.Glob(filepath.Join(dir, "*.ptx"))
	if err != nil {
		return err
	}
	made := map[string][]byte{}
	for _, name := range kernels.Names() {
		src, _ := kernels.Lookup(name)
		if path.Dir(src.File) != folder {
			continue
		}
		if made[filepath.Join(dir, name+".ptx")], err = compile(tmp, src); err != nil {
			return err
		}
	}
	for _, file := range old {
		if made[file] == nil {
			if err := os.Remove(file); err != nil {
				return err
			}
		}
	}
	for file, text := range made {
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return err
		}
	}
	return nil
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
