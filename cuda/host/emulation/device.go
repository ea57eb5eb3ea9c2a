package emulation

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// Device is a device for tests of generated kernels: the host device with a caller's kernels, which
// the compiler of the machine compiles for the CPU. All kernels that were made before a launch are
// compiled together.
type Device struct {
	device.Device
	t        testing.TB
	compiler string

	mu      sync.Mutex
	kernels map[string]*compiled // by name
}

// compiled is a kernel, and the program that has it once it is compiled.
type compiled struct {
	name, source, program string
	params                []device.Param
}

// NewDevice returns a device over the host device. It skips the test if there is no g++.
func NewDevice(t testing.TB, host device.Device) *Device {
	t.Helper()
	compiler, err := exec.LookPath("g++")
	if err != nil {
		t.Skip("no g++ to compile the kernels for the CPU with")
	}
	return &Device{Device: host, t: t, compiler: compiler, kernels: map[string]*compiled{}}
}

// Name implements device.Kernel.
func (k *compiled) Name() string { return k.name }

// Signature implements device.Kernel.
func (k *compiled) Signature() []device.Param { return k.params }

// Cover implements device.Kernel.
func (k *compiled) Cover(n int64) device.Geometry { return device.Cover(n, 256) }

// Compile notes a kernel. Different kernels must have different names.
func (d *Device) Compile(name, source string, params ...device.Param) (device.Kernel, error) {
	have, code, err := device.ParseKernel(name, source)
	if err != nil {
		return nil, err
	}
	if len(params) > 0 {
		if err := device.CheckDeclared(name, params, have); err != nil {
			return nil, err
		}
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.kernels[name] == nil {
		d.kernels[name] = &compiled{name: name, source: code, params: have}
	}
	return d.kernels[name], nil
}

// CompileExact is Compile.
func (d *Device) CompileExact(name, source string, params ...device.Param) (device.Kernel, error) {
	return d.Compile(name, source, params...)
}

// Build compiles the kernels that were made since the last call.
func (d *Device) Build() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	var text, table strings.Builder
	var waiting []*compiled
	spaces := map[string]string{} // by source
	// The text is a part of the key of the program in the cache, so its order is fixed.
	for _, name := range slices.Sorted(maps.Keys(d.kernels)) {
		k := d.kernels[name]
		if k.program != "" {
			continue
		}
		waiting = append(waiting, k)
		space := spaces[k.source]
		if space == "" {
			sum := sha256.Sum256([]byte(k.source))
			space = "text_" + hex.EncodeToString(sum[:8])
			spaces[k.source] = space
			fmt.Fprintf(&text, "namespace %s {\n%s\n}\n", space, k.source)
		}
		fmt.Fprintf(&table, "  {\"%s\", [](void **a) { invoke(%s::%s, a); }},\n", k.name, space, k.name)
	}
	if len(waiting) == 0 {
		return nil
	}
	all := text.String() + "static const Entry table[] = {\n" + table.String() + "};\n"
	runner := sourceOf(d.t, "emulate_device.cpp")
	// A processor reads vectors from any address, a GPU faults: the program ends there too.
	args := []string{
		"-std=c++17", "-O1", "-ffp-contract=off", "-fwrapv", "-w", "-fsanitize=alignment",
		"-fsanitize-undefined-trap-on-error",
	}
	if strings.Contains(cpuFlags(), " fma ") {
		args = append(args, "-mfma")
	}
	parts := append([]string{"emulated", testkit.CompilerVersion(d.t, d.compiler), runner, all}, args...)
	program := testkit.CachedFile(d.t, func(path string) error {
		for file, content := range map[string]string{path + ".cu": all, path + ".cpp": runner} {
			if err := os.WriteFile(file, []byte(content), 0o600); err != nil {
				return err
			}
		}
		cmd := exec.Command(d.compiler,
			append(args, fmt.Sprintf("-DKERNELS=%q", path+".cu"), "-o", path, path+".cpp")...)
		if out, err := cmd.CombinedOutput(); err != nil {
			return fmt.Errorf("%w\n%.4000s", err, out)
		}
		return nil
	}, parts...)
	for _, k := range waiting {
		k.program = program
	}
	return nil
}

// cpuFlags returns the features of the processor, with spaces around each.
func cpuFlags() string {
	data, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return ""
	}
	for line := range strings.Lines(string(data)) {
		if strings.HasPrefix(line, "flags") {
			return " " + strings.TrimSpace(line) + " "
		}
	}
	return ""
}

// NewStream opens a stream that launches the kernels of the device.
func (d *Device) NewStream() (device.Stream, error) {
	s, err := d.Device.NewStream()
	if err != nil {
		return nil, err
	}
	return &stream{s, d}, nil
}

// NewBackgroundStream is NewStream: a launch is one call.
func (d *Device) NewBackgroundStream() (device.Stream, error) { return d.NewStream() }

// stream runs kernels at once, behind the other work of the stream.
type stream struct {
	device.Stream
	d *Device
}

// Launch runs a kernel and waits for it.
func (s *stream) Launch(k device.Kernel, g device.Geometry, args ...device.Arg) error {
	own, ok := k.(*compiled)
	if !ok {
		return s.Stream.Launch(k, g, args...)
	}
	if err := device.CheckArgs(own.name, own.params, args); err != nil {
		return err
	}
	if err := s.d.Build(); err != nil {
		return err
	}
	if err := s.Sync(s.d.t.Context()); err != nil {
		return err
	}
	params := make([]Param, len(args))
	for i, a := range args {
		if a.Kind() != device.KindBuffer {
			params[i] = Param{Scalar: true, Bits: a.Bits()}
			continue
		}
		off, n := a.Span()
		params[i].Mem = make([]byte, n)
		if pinned, ok := a.Memory().(device.HostBuffer); ok {
			copy(params[i].Mem, pinned.Bytes()[off:])
			continue
		}
		if err := a.Memory().(device.Buffer).Read(off, params[i].Mem); err != nil {
			return err
		}
	}
	after, err := launch(s.d.t, []string{own.program, own.name}, params, g.Block, g.Grid)
	if err != nil {
		return fmt.Errorf("kernel %s: %w", own.name, err)
	}
	for i, a := range args {
		if a.Kind() != device.KindBuffer || string(after[i]) == string(params[i].Mem) {
			continue
		}
		off, _ := a.Span()
		if pinned, ok := a.Memory().(device.HostBuffer); ok {
			copy(pinned.Bytes()[off:], after[i])
			continue
		}
		if err := a.Memory().(device.Buffer).Write(off, after[i]); err != nil {
			return err
		}
	}
	return nil
}
