// Command cpuagent is a CPU agent process: it reads sources, sends their rows to the logs of
// swarms, and writes the decisions. It also serves the gateway of tenants, and removes the remains
// of ended runs. It holds no GPU code, which it checks before it starts.
package main

import (
	"github.com/exoswarm/exoswarm/cmd/internal/cpuprocess"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

func main() { command.Main(cpuprocess.Command()) }
