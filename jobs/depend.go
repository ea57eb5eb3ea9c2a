package jobs

import (
	"slices"
	"strings"
)

// MaxParents is the largest number of jobs that a job waits for.
const MaxParents = 64

// ParentPolicy decides about a job when a parent is not done: it failed, was skipped, or was
// withdrawn.
type ParentPolicy string

// The policies. The first two take effect at once, whatever the other parents do.
const (
	FailChild ParentPolicy = "fail" // it fails with CodeParent
	SkipChild ParentPolicy = "skip" // it ends as Skipped
	RunChild  ParentPolicy = "run"  // it runs when all parents are over, however they ended
)

// checkParents validates what a job waits for; what is the sentence at fault, or empty.
func (j Job) checkParents() (what string) {
	switch {
	case len(j.After) > MaxParents:
		return "it waits for more than 64 jobs: put a job in between that waits for some of them"
	case len(j.After) == 0 && j.OnFailedParent != "":
		return "on_failed_parent without after: name the jobs that it waits for"
	case !slices.Contains([]ParentPolicy{"", FailChild, SkipChild, RunChild}, j.OnFailedParent):
		return `on_failed_parent "` + string(j.OnFailedParent) + `": use "fail", "skip" or "run"`
	}
	for i, p := range j.After {
		switch {
		case !validID(p):
			return "it waits for \"" + p + "\": a job's id is 1 to 64 letters, digits, '-' or '_'"
		case p == j.ID:
			return "it waits for itself"
		case slices.Contains(j.After[:i], p):
			return "it waits for " + p + " twice: name it once"
		}
	}
	return ""
}

// CheckGraph returns an error that names the jobs when some of a submission wait for each other in
// a circle.
func CheckGraph(batch []Job) error {
	missing := make(map[string]int, len(batch)) // parents in the batch that are not in order yet
	children := map[string][]string{}
	for _, j := range batch {
		missing[j.ID] = 0
	}
	for _, j := range batch {
		for _, p := range j.After {
			if _, inside := missing[p]; inside {
				missing[j.ID]++
				children[p] = append(children[p], j.ID)
			}
		}
	}
	var ready []string
	for _, j := range batch {
		if missing[j.ID] == 0 {
			ready = append(ready, j.ID)
		}
	}
	for n := 0; n < len(ready); n++ {
		for _, child := range children[ready[n]] {
			if missing[child]--; missing[child] == 0 {
				ready = append(ready, child)
			}
		}
	}
	if len(ready) == len(missing) {
		return nil
	}
	return Errorf(CodeInvalid, "jobs %s: they wait for each other in a circle: remove one from after",
		strings.Join(circle(batch, missing), ", "))
}

// circle follows parents that are not in order until one comes again.
func circle(batch []Job, missing map[string]int) []string {
	parent := map[string]string{}
	start := ""
	for _, j := range batch {
		for _, p := range j.After {
			if missing[j.ID] > 0 && missing[p] > 0 {
				parent[j.ID], start = p, j.ID
			}
		}
	}
	var path []string
	for !slices.Contains(path, start) {
		path = append(path, start)
		start = parent[start]
	}
	return path[slices.Index(path, start):]
}
