// Package drivers registers the drivers of all object stores and databases that sources and sinks
// reach. A program that needs fewer imports their packages instead, and is smaller.
package drivers

import (
	_ "github.com/exoswarm/exoswarm/cpuagents/remote/cloud"    // s3:// and gs://
	_ "github.com/exoswarm/exoswarm/cpuagents/remote/postgres" // postgres://
	_ "github.com/exoswarm/exoswarm/cpuagents/remote/sqlite"   // sqlite:
)
