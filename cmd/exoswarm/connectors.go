//go:build connectors

package main

import (
	_ "github.com/exoswarm/exoswarm/cpuagents/remote/drivers" // object stores, databases and brokers
)
