package jobs

import "fmt"

// Values of Job.Durability.
const (
	// DurabilitySynced acknowledges a job as the server is configured: when it is on disk.
	DurabilitySynced = "synced"
	// DurabilityMemory keeps a queued job in the memory of one server. The job is lost if that server
	// ends before a worker has stored the result.
	DurabilityMemory = "memory"
)

// Level is how safely a job is stored while it is queued. It follows from Job.Replicas and
// Job.Durability. The empty level is the default of the cluster.
type Level string

// The levels other than the default.
const (
	LevelMemory Level = "memory" // in the memory of one server
	LevelOne    Level = "one"    // on the disk of one server
	LevelThree  Level = "three"  // on the disks of three servers
	LevelFive   Level = "five"   // on the disks of five servers
)

// Levels lists all levels but the default, the weakest first.
func Levels() []Level { return []Level{LevelMemory, LevelOne, LevelThree, LevelFive} }

// Replicas returns the number of servers that store a job of the level; 0 for the default.
func (l Level) Replicas() int {
	switch l {
	case LevelMemory, LevelOne:
		return 1
	case LevelThree:
		return 3
	case LevelFive:
		return 5
	}
	return 0
}

// Level returns the level that a valid job asks for.
func (j Job) Level() Level {
	switch {
	case j.Durability == DurabilityMemory:
		return LevelMemory
	case j.Replicas == 1:
		return LevelOne
	case j.Replicas == 3:
		return LevelThree
	case j.Replicas == 5:
		return LevelFive
	}
	return ""
}

// WithLevel returns the job with the fields that ask for a level.
func (j Job) WithLevel(l Level) Job {
	j.Replicas, j.Durability = l.Replicas(), ""
	if l == LevelMemory {
		j.Replicas, j.Durability = 0, DurabilityMemory
	}
	return j
}

// checkLevel returns what is wrong with the fields of the level, or "".
func (j Job) checkLevel() string {
	switch {
	case j.Replicas != 0 && j.Replicas != 1 && j.Replicas != 3 && j.Replicas != 5:
		return fmt.Sprintf("replicas %d: use 1, 3 or 5", j.Replicas)
	case j.Durability != "" && j.Durability != DurabilitySynced && j.Durability != DurabilityMemory:
		return fmt.Sprintf("durability %.100q: use %q or %q", j.Durability, DurabilitySynced, DurabilityMemory)
	case j.Durability == DurabilityMemory && j.Replicas > 1:
		return fmt.Sprintf("durability %q with %d replicas: the memory of one server keeps such a job: use 1 replica, "+
			"or leave durability out", j.Durability, j.Replicas)
	}
	return ""
}
