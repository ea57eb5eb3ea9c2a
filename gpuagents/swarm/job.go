package swarm

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/schema"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Limits of the jobs of a specification.
const (
	maxJobs    = 16
	maxJobSpec = 16 << 10 // bytes of JSON: the record of the swarm has it
)

// Job is a job that rules of a swarm submit: a jobs.Job without what belongs to one submission.
type Job struct {
	Pool string `yaml:"pool" json:"pool"` // cpu or gpu
	Kind string `yaml:"kind" json:"kind"` // selects its handler
	// Spec is the specification by kind. Texts in it may have the words of swarms.JobWords.
	Spec any `yaml:"spec" json:"spec"`
	// Lane is high, normal or low; empty means normal.
	Lane string `yaml:"lane" json:"lane,omitempty"`
	// Tenant is whose share it uses; empty means the default tenant.
	Tenant string `yaml:"tenant" json:"tenant,omitempty"`
	// MaxAttempts is 1 to 100; 0 means jobs.Attempts.
	MaxAttempts int `yaml:"max_attempts" json:"max_attempts,omitempty"`
	// ResultTTL is how many seconds the result is kept, 1 to 604800; 0 means 86400.
	ResultTTL int `yaml:"result_ttl_s" json:"result_ttl_s,omitempty"`
}

// validateJobs validates the jobs of rules. The rules are valid.
func (s *Spec) validateJobs() (path []string, err error) {
	names := slices.Sorted(maps.Keys(s.Jobs))
	if n := len(names); n > maxJobs {
		return []string{"jobs"}, fmt.Errorf("jobs: %d of them: use at most %d", n, maxJobs)
	}
	rules, err := s.Rules()
	if err != nil {
		return []string{"on_decision"}, fmt.Errorf("on_decision %w", err)
	}
	used := map[string]bool{}
	for i, r := range rules {
		once := map[string]bool{}
		for _, a := range r.Actions {
			switch _, there := s.Jobs[a.Name]; {
			case a.Action != swarms.ReactSubmit:
				continue
			case len(names) == 0:
				return []string{"on_decision"}, fmt.Errorf("on_decision %.100q: there is no job %s: describe it, as "+
					"in jobs: {%s: {pool: cpu, kind: KIND, spec: {}}}", s.OnDecision[i], a.Name, a.Name)
			case !there:
				return []string{"on_decision"}, fmt.Errorf("on_decision %.100q: job %q: did you mean %q? There are %v",
					s.OnDecision[i], a.Name, strictyaml.Nearest(a.Name, names), names)
			case once[a.Name]:
				return []string{"on_decision"}, fmt.Errorf("on_decision %.100q: it submits %s twice: name it once, or "+
					"write a second rule", s.OnDecision[i], a.Name)
			}
			used[a.Name], once[a.Name] = true, true
		}
	}
	for _, name := range names {
		if !used[name] {
			return []string{"jobs", name}, fmt.Errorf("jobs: no rule submits %.100s: write it into on_decision, as in "+
				"%s -> submit %.100s, or leave it out", name, WhenChanged, name)
		}
		if err := s.validateJob(name); err != nil {
			return []string{"jobs", name}, fmt.Errorf("jobs: %w", err)
		}
	}
	return nil, nil
}

// validateJob checks a job like its submission, with an example of a decision in its texts.
func (s *Spec) validateJob(name string) error {
	of := s.Jobs[name]
	if err := swarms.CheckJobName(of.Tenant, name); err != nil {
		return err
	}
	data, err := json.Marshal(of.Spec)
	if err != nil {
		return fmt.Errorf("job %s: spec: %w", name, err)
	}
	if len(data) > maxJobSpec {
		return fmt.Errorf("job %s: a spec of %d bytes: use at most %d, and put bulk data into the object store", name,
			len(data), maxJobSpec)
	}
	// CheckJobName has left room for an id, so the name stands for it here.
	j := jobs.Job{
		Version: jobs.Version, ID: name, Pool: jobs.Pool(of.Pool), Kind: of.Kind, Lane: jobs.Lane(of.Lane),
		Tenant: of.Tenant, MaxAttempts: of.MaxAttempts, ResultTTL: of.ResultTTL,
	}
	e := swarms.Emission{
		Version: jobs.Version, Swarm: s.Name, Identity: s.Name, Name: name, Rule: 1, Entry: 1, Round: 1, Term: 1,
		Winner: s.Vote.Candidates[0], Candidates: s.Vote.Candidates, Votes: make([]uint64, len(s.Vote.Candidates)),
		Leader: new(uint32),
	}
	if j.Spec, err = swarms.FillJob(data, e); err != nil {
		return err
	}
	if err := j.Validate(); err != nil {
		return err
	}
	var field *schema.Error
	if err := schema.CheckSpec(j); errors.As(err, &field) {
		return fmt.Errorf("job %s: %w", name, err)
	} else if err != nil {
		return err
	}
	return nil
}
