// Command gpuagent is a GPU agent process: it serves shards of swarms on one or several devices.
// Built with the tag cuda it can use GPUs.
package main

import (
	"github.com/exoswarm/exoswarm/cmd/internal/gpuprocess"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

func main() {
	gpuprocess.KernelMain()
	command.Main(gpuprocess.Command())
}
