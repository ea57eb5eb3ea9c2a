package command

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// gpuPackages begin the names of all functions that a CPU agent must not hold: the device layer
// with its kernels, and the driver's binding.
var gpuPackages = []string{
	"github.com/exoswarm/exoswarm/cuda/", "github.com/exoswarm/exoswarm/gpuagents.",
	"gorgonia.org/cu.",
}

// gpuLibraries begin the names of the files of NVIDIA's libraries.
var gpuLibraries = []string{"libcuda.", "libcudart.", "libnvidia-", "libnvrtc.", "libcublas.", "libnccl."}

// GPUFree says whether a process can reach GPU code: it reads the names of the functions in the
// program and the libraries that the program asks for, and on Linux the libraries and devices that
// the process has open now. proc is the process's folder, as in /proc/self. The error wraps
// ErrGPUCode and names what it found; errors.ErrUnsupported: the program is no ELF file, so that
// nothing was looked at.
func GPUFree(program, proc string) error {
	f, err := elf.Open(program)
	if err != nil {
		var format *elf.FormatError
		if errors.As(err, &format) || errors.Is(err, io.EOF) {
			return fmt.Errorf("looking for GPU code in %s: %w: %w", program, errors.ErrUnsupported, err)
		}
		return fmt.Errorf("looking for GPU code: %w", err)
	}
	defer f.Close()
	found, err := gpuFunctions(f)
	if err != nil {
		return fmt.Errorf("looking for GPU code in %s: %w", program, err)
	}
	libraries, err := f.ImportedLibraries()
	if err != nil {
		return fmt.Errorf("looking for GPU code in %s: %w", program, err)
	}
	for _, l := range libraries {
		if isGPULibrary(l) {
			found = append(found, "the library "+l)
		}
	}
	found = append(found, gpuMappings(proc)...)
	if len(found) > 0 {
		return fmt.Errorf("%w: %s", ErrGPUCode, strings.Join(found, ", "))
	}
	return nil
}

// ErrGPUCode is returned for a program that holds GPU code where none may be.
var ErrGPUCode = errors.New("this program must not reach a GPU and does; build it from cmd/cpuagent without the tag " +
	"cuda, and start it without LD_PRELOAD")

// gpuFunctions finds packages in the table of functions, which every Go program has, also without
// symbols.
func gpuFunctions(f *elf.File) (found []string, err error) {
	section := f.Section(".gopclntab")
	if section == nil {
		section = f.Section(".data.rel.ro.gopclntab") // position-independent programs
	}
	if section == nil {
		return nil, errors.New("it has no table of Go functions")
	}
	table, err := io.ReadAll(section.Open())
	if err != nil {
		return nil, err
	}
	for _, p := range gpuPackages {
		if bytes.Contains(table, []byte(p)) {
			found = append(found, "the package "+strings.TrimRight(p, "./"))
		}
	}
	return found, nil
}

// gpuMappings lists the libraries and device files of NVIDIA that a process has open; a system
// without such a folder has none that we could see.
func gpuMappings(proc string) (found []string) {
	maps, _ := os.ReadFile(filepath.Join(proc, "maps"))
	for line := range strings.Lines(string(maps)) {
		if fields := strings.Fields(line); len(fields) >= 6 && isGPULibrary(fields[5]) {
			found = append(found, "the library "+fields[5])
		}
	}
	files, _ := os.ReadDir(filepath.Join(proc, "fd"))
	for _, fd := range files {
		if to, err := os.Readlink(filepath.Join(proc, "fd", fd.Name())); err == nil &&
			strings.HasPrefix(to, "/dev/nvidia") {
			found = append(found, "the device "+to)
		}
	}
	slices.Sort(found)
	return slices.Compact(found)
}

func isGPULibrary(file string) bool {
	return slices.ContainsFunc(gpuLibraries, func(p string) bool { return strings.HasPrefix(filepath.Base(file), p) })
}
