package main

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestCustomCellOnTheHost: a run in one process has no compiler, and says where the swarm can be
// served; a file that the spec names is read from its folder.
func TestCustomCellOnTheHost(t *testing.T) {
	t.Parallel()
	const example = "../../examples/custom-cell"
	dir := t.TempDir()
	code, _, stderr := exec(t.Context(), t, "run", "-f", example+"/swarm.yaml", "--input", example+"/data", "--output",
		filepath.Join(dir, "d.ndjson"), "--progress", "none")
	if code == 0 || !strings.Contains(stderr, "host cannot do that: serve the swarm with gpuagent --device cuda:0 "+
		"--allow-custom-cells") {
		t.Errorf("code %d: %s", code, stderr)
	}
	spec := write(t, filepath.Join(dir, "swarm.yaml"), "name: x\ncell: {kind: custom, step_file: ../step.cu}\nvote: "+
		"{candidates: [a, b]}\n")
	write(t, filepath.Join(filepath.Dir(dir), "step.cu"), "no step")
	code, _, stderr = exec(t.Context(), t, "run", "-f", spec, "--input", example+"/data", "--output",
		filepath.Join(dir, "d.ndjson"))
	if code == 0 || !strings.Contains(stderr, "swarm.yaml:2: step_file: open ../step.cu: ") {
		t.Errorf("code %d: %s", code, stderr)
	}
}
