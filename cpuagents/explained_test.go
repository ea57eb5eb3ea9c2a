package cpuagents_test

import (
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/explain/explainlog"
)

func init() { explainlog.Every = 20 * time.Millisecond }
