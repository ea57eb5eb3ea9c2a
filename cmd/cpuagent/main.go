// Command cpuagent is a CPU agent process: it reads sources, sends their rows to the logs of
// swarms, and writes the decisions. It also serves the gateway of tenants, and removes the remains
// of ended runs. It holds no GPU code, which it checks before it starts.
package main

import (
	"github.com/exoswarm/exoswarm/cmd/internal/cpuprocess"
	_ "github.com/exoswarm/exoswarm/cpuagents/remote/drivers" // of databases and object stores
	"github.com/exoswarm/exoswarm/internal/app/command"
)

func main() { command.Main(cpuprocess.Command()) }
