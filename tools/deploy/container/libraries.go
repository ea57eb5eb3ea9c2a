package main

import (
	"archive/tar"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// driverLibraries belong to the driver of the host. The container runtime of NVIDIA mounts them
// into a container, and they must be of the version of the kernel module.
var driverLibraries = []string{"libcuda.so.1", "libnvidia-ml.so.1"}

// driverNeeds are what the libraries of the driver need themselves. All are of glibc.
var driverNeeds = []string{"libc.so.6", "libdl.so.2", "libm.so.6", "libpthread.so.0", "librt.so.1"}

// libraryDirs are where Debian and others have the libraries of the system.
var libraryDirs = []string{
	"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu", "/usr/lib/aarch64-linux-gnu",
	"/lib64", "/usr/lib64",
}

// libraries returns the files that a dynamic program needs beside the driver, by their paths in the
// image: its interpreter, and all libraries directly and through others. They come from this
// system, on which the program was linked.
func libraries(path string) (map[string][]byte, error) {
	files := map[string][]byte{}
	program, err := elf.Open(path)
	if err != nil {
		return nil, err
	}
	defer program.Close()
	for _, p := range program.Progs {
		if p.Type != elf.PT_INTERP {
			continue
		}
		name := make([]byte, p.Filesz)
		if _, err := p.ReadAt(name, 0); err != nil {
			return nil, fmt.Errorf("interpreter of %s: %w", path, err)
		}
		interpreter := strings.TrimRight(string(name), "\x00")
		if files[interpreter], err = os.ReadFile(interpreter); err != nil {
			return nil, fmt.Errorf("interpreter of %s: %w", path, err)
		}
	}
	needed, err := program.ImportedLibraries()
	if err != nil {
		return nil, fmt.Errorf("libraries of %s: %w", path, err)
	}
	needed = append(needed, driverNeeds...)
	for seen := map[string]bool{}; len(needed) > 0; {
		name := needed[0]
		needed = needed[1:]
		if seen[name] || slices.Contains(driverLibraries, name) {
			continue
		}
		seen[name] = true
		found, more, err := library(name)
		if err != nil {
			return nil, fmt.Errorf("%s needs %s: %w", path, name, err)
		}
		if files[found], err = os.ReadFile(found); err != nil {
			return nil, err
		}
		needed = append(needed, more...)
	}
	return files, nil
}

func library(name string) (path string, needed []string, err error) {
	for _, dir := range libraryDirs {
		path := filepath.Join(dir, name)
		f, err := elf.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return "", nil, err
		}
		needed, err := f.ImportedLibraries()
		return path, needed, errors.Join(err, f.Close())
	}
	return "", nil, fmt.Errorf("none of %s has it: %w", strings.Join(libraryDirs, ", "), fs.ErrNotExist)
}

func (i image) shared(t *tar.Writer) error {
	made := map[string]bool{"etc": true, "usr": true}
	for _, path := range slices.Sorted(maps.Keys(i.libraries)) {
		name := strings.TrimPrefix(path, "/")
		var above []string
		for dir := filepath.Dir(name); dir != "." && !made[dir]; dir = filepath.Dir(dir) {
			made[dir] = true
			above = append(above, dir)
		}
		slices.Reverse(above)
		for _, dir := range above {
			if err := folder(t, dir, 0o755, 0); err != nil {
				return err
			}
		}
		if err := file(t, name, 0o755, 0, i.libraries[path]); err != nil {
			return err
		}
	}
	return nil
}
