package state

import (
	"errors"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/cells"
	"github.com/exoswarm/exoswarm/jobs"
)

// observeKernel returns the kernel of a cell: a built-in one, or one that is compiled from the text
// of the cell. A *jobs.Error says that the text does not compile, with the words of the compiler,
// or that the device compiles none. The parameter step is the text as the user wrote it, for the
// line in an error.
func observeKernel(dev device.Device, c *cells.Cell, step string) (device.Kernel, error) {
	if c.Source == "" {
		return dev.Kernel(c.Kernel)
	}
	k, err := dev.CompileExact(c.Kernel, c.Source)
	return k, refusedStep(dev, err, step)
}

// refusedStep wraps an error of the compiler of a custom cell; nil for nil.
func refusedStep(dev device.Device, err error, step string) error {
	var refused *device.SourceError
	switch {
	case errors.As(err, &refused):
		return jobs.Errorf(
			jobs.CodeInvalid, "the step of its custom cell does not compile:\n%s", quoteStep(refused.Log, step),
		)
	case errors.Is(err, device.ErrNotSupported):
		return jobs.Errorf(
			jobs.CodeDevice,
			"custom cells are compiled when they are served, and %s cannot do that: serve the swarm with gpuagent "+
				"--device cuda:0 --allow-custom-cells, built with the tag cuda, on a machine with a GPU and NVRTC "+
				"(libnvrtc of a CUDA toolkit): %v",
			dev.Properties().Name, err,
		)
	case err != nil:
		return fmt.Errorf("compile the step of the custom cell: %w", err)
	}
	return nil
}

// maxLog bounds the messages of a compiler in a refusal, in bytes. The first error is the one that
// matters.
const maxLog = 4 << 10

// stepError matches an error of the compiler in the step, with the number of its line.
var stepError = regexp.MustCompile(`(?m)^step\((\d+)\): (?:catastrophic )?error`)

// quoteStep appends the line of the step that has the first error. The result has at most maxLog
// bytes of the log, in valid UTF-8.
func quoteStep(log, step string) string {
	quote := ""
	if m := stepError.FindStringSubmatch(log); m != nil {
		lines := strings.Split(step, "\n")
		if n, err := strconv.Atoi(m[1]); err == nil && n >= 1 && n <= len(lines) {
			quote = fmt.Sprintf("\nline %d of the step: %s", n, strings.TrimSpace(lines[n-1]))
		}
	}
	if len(log) > maxLog {
		log = strings.ToValidUTF8(log[:maxLog], "") + " …"
	}
	return strings.TrimSpace(log) + quote
}
