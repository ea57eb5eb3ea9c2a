package cpuagents

import "time"

func init() { summaryEvery = 20 * time.Millisecond }
