//go:build linux

package main

import "time"

// event is an incident: two commands to a program, and the series in which a person sees it.
type event struct {
	what, role string
	begin, end time.Duration // since the start of the recording
	on, off    string        // commands, see program.do and worker
	series     []string

	running, over bool
	first         time.Duration // row, since the start
}

// fullPlan is the length of the recording for which plan states its times.
const fullPlan = 64 * time.Minute

func plan(length time.Duration) []event {
	cpu, wake := "service_cpu_percent", "service_wakeups_per_s"
	written, memory := "writer_kib_per_s", "cache_memory_mib"
	events := []event{
		{what: "a loop without end", role: "service", on: "loop 30", off: "loop 0", series: []string{cpu}},
		{what: "no batch comes", role: "writer", on: "every 0", off: "every 1", series: []string{written}},
		{what: "the service hangs", role: "service", on: "STOP", off: "CONT", series: []string{cpu, wake}},
		{what: "a leak", role: "cache", on: "leak 1", off: "leak 0", series: []string{memory}},
		{
			what: "batches of four times the size", role: "writer", on: "size 4", off: "size 1",
			series: []string{written},
		},
		{what: "a busy wait", role: "service", on: "poll 4", off: "poll 1", series: []string{wake}},
		{what: "the load does not fall", role: "service", on: "top 1", off: "top 0", series: []string{cpu}},
		{
			what: "the cache neither grows nor is dropped", role: "cache", on: "still 1", off: "still 0",
			series: []string{memory},
		},
		{what: "each request costs twice", role: "service", on: "cost 2", off: "cost 1", series: []string{cpu}},
		{what: "twice as many batches", role: "writer", on: "every 2", off: "every 1", series: []string{written}},
	}
	// Begin and length in seconds, for the plan of 64 minutes. The load has its top at 150, 450,
	// ... and its bottom at 300, 600, ..., so "the load does not fall" covers a bottom.
	times := [][2]int{
		{1000, 45},
		{1170, 150},
		{1400, 40},
		{1690, 150},
		{2000, 90},
		{2180, 60},
		{2320, 160},
		{2620, 180},
		{2960, 360},
		{3500, 150},
	}
	for i := range events {
		scale := func(seconds int) time.Duration {
			return time.Duration(float64(seconds) * float64(time.Second) * float64(length) / float64(fullPlan))
		}
		events[i].begin, events[i].end = scale(times[i][0]), scale(times[i][0]+times[i][1])
	}
	return events
}
