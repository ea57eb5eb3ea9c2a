package cpuagents_test

import (
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain"
)

func init() { explain.SummaryEvery = 20 * time.Millisecond }
