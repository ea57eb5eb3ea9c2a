// Package userfile reads and writes the files that a user names on the command line:
// specifications, inputs, observations, and the outputs of runs.
package userfile

import (
	"os"
	"path/filepath"

	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// ReadSpec reads a specification in YAML and the files that it names, which must be in its folder
// or below: symbolic links do not lead out of it. A file that cannot be read is an error of usage;
// the error for one that is not valid names the line and the key.
func ReadSpec(file string) (*swarm.Spec, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, command.Usage("swarm spec: %v: check the path", err)
	}
	folder, err := os.OpenRoot(filepath.Dir(file))
	if err != nil {
		return nil, command.Usage("swarm spec: %v: check the path", err)
	}
	defer folder.Close()
	return swarm.ParseIn(folder.FS(), file, text)
}
