package main

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"

	"github.com/klauspost/compress/zstd"

	"github.com/exoswarm/exoswarm/cuda/kernels"
)

// generatePTX writes the archive of the kernels of a package. The same PTX gives the same bytes.
func generatePTX(folder, file string) error {
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
	// PTX contains the name of the file, so the name must be equal on all machines.
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
