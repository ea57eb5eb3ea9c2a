package swarms

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/jobs"
)

// Words that stand for the decision in the texts of a job that rules submit, as in $(round).
const (
	wordDecision = "decision" // the emission as JSON, for a text that has nothing else
	wordLeader   = "leader"   // the id of the agent, or none
	wordRound    = "round"
	wordSwarm    = "swarm"  // the id
	wordWinner   = "winner" // the name of the candidate, or none
)

// JobWords lists the words that may stand in $(WORD), in alphabetical order.
func JobWords() []string {
	return []string{wordDecision, wordLeader, wordRound, wordSwarm, wordWinner}
}

var jobWord = regexp.MustCompile(`\$\(([^()$]*)\)`)

// maxJobName bounds the name of a job and the prefix of its tenant together: the rest of an id is a
// dash and 16 digits.
const maxJobName = 64 - 17

// CheckJobName returns an error unless the ids of a job with a name are valid.
func CheckJobName(tenant, name string) error {
	if err := jobs.CheckID("job", name); err != nil {
		return err
	}
	if n := len(jobPrefix(tenant) + name); n > maxJobName {
		return invalid("job %s: its name and its tenant have %d characters in an id: at most %d: use shorter ones",
			name, n, maxJobName)
	}
	return nil
}

// jobPrefix returns how the ids of a tenant begin, so that its logins find the job.
func jobPrefix(tenant string) string {
	if tenant == "" || tenant == jobs.DefaultTenant {
		return ""
	}
	return tenant + "--"
}

// JobID returns the id of the job with a name that a rule submits by an entry. No two swarms,
// entries or rules have the same.
func (s Swarm) JobID(tenant, name string, entry uint64, rule int) string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s %s %d %d", s.Identity(), name, entry, rule))
	return jobPrefix(tenant) + name + "-" + hex.EncodeToString(sum[:8])
}

// JobsOf returns the jobs that the rules of the swarm submit, by their names, without ids.
func (s Swarm) JobsOf() (map[string]jobs.Job, error) {
	var spec struct {
		Jobs map[string]jobs.Job `json:"jobs"`
	}
	if err := json.Unmarshal(s.Spec, &spec); err != nil {
		return nil, invalid("swarm %s: jobs: %v", s.ID, err)
	}
	return spec.Jobs, nil
}

// Job returns the job that an emission asks for: the job of its name in the specification of the
// swarm, with the decision in its texts.
func (s Swarm) Job(e Emission) (jobs.Job, error) {
	all, err := s.JobsOf()
	if err != nil {
		return jobs.Job{}, err
	}
	if err := s.checkWinner(e.Winner); err != nil {
		return jobs.Job{}, err
	}
	j, ok := all[e.Name]
	if !ok {
		return j, invalid("swarm %s has no job %.100q", s.ID, e.Name)
	}
	if err := CheckJobName(j.Tenant, e.Name); err != nil {
		return j, err
	}
	if j.Spec, err = FillJob(j.Spec, e); err != nil {
		return j, err
	}
	j = j.WithDefaults()
	j.Version, j.ID = jobs.Version, s.JobID(j.Tenant, e.Name, e.Entry, e.Rule)
	j.Submitted = time.Now().UTC()
	return j, nil
}

// checkWinner returns an error unless a name is a candidate of the swarm, or none. Names are put
// into the texts of jobs, so other names are refused.
func (s Swarm) checkWinner(name string) error {
	var spec struct {
		Vote struct {
			Candidates []string `json:"candidates"`
		} `json:"vote"`
	}
	if err := json.Unmarshal(s.Spec, &spec); err != nil {
		return invalid("swarm %s: vote: %v", s.ID, err)
	}
	if all := spec.Vote.Candidates; name != "none" && !slices.Contains(all, name) {
		return invalid("swarm %s: winner %.100q is no candidate: there are %v", s.ID, name, all)
	}
	return nil
}

// FillJob returns the specification of a job with an emission in the place of the words of its
// texts. Names of fields stay as they are.
func FillJob(spec json.RawMessage, e Emission) (json.RawMessage, error) {
	if !bytes.Contains(spec, []byte("$(")) {
		return spec, nil
	}
	if !json.Valid(spec) { // a decoder leaves what is behind the first value
		return nil, invalid("job %s: its spec is not JSON", e.Name)
	}
	dec := json.NewDecoder(bytes.NewReader(spec))
	dec.UseNumber()
	var v any
	if err := dec.Decode(&v); err != nil {
		return nil, invalid("job %s: its spec is not JSON: %v", e.Name, err)
	}
	v, err := fill(v, e)
	if err != nil {
		return nil, err
	}
	return json.Marshal(v)
}

// fill is FillJob for a decoded value, which it changes.
func fill(v any, e Emission) (_ any, err error) {
	switch v := v.(type) {
	case map[string]any:
		for k, of := range v {
			if v[k], err = fill(of, e); err != nil {
				return nil, err
			}
		}
	case []any:
		for i, of := range v {
			if v[i], err = fill(of, e); err != nil {
				return nil, err
			}
		}
	case string:
		return fillText(v, e)
	}
	return v, nil
}

// fillText returns a text with an emission in the place of its words.
func fillText(text string, e Emission) (any, error) {
	if text == "$("+wordDecision+")" {
		return e, nil
	}
	for _, found := range jobWord.FindAllStringSubmatch(text, -1) {
		switch word := found[1]; {
		case !slices.Contains(JobWords(), word):
			return nil, invalid("job %s: %.100q has $(%.100s): there are %v", e.Name, text, word, JobWords())
		case word == wordDecision:
			return nil, invalid("job %s: %.100q: $(decision) is a value of its own: leave the rest of the text out",
				e.Name, text)
		}
	}
	if strings.Contains(jobWord.ReplaceAllString(text, "_"), "$(") {
		return nil, invalid("job %s: %.100q has $( without a word: there are %v", e.Name, text, JobWords())
	}
	return jobWord.ReplaceAllStringFunc(text, func(of string) string {
		switch of[2 : len(of)-1] {
		case wordLeader:
			if e.Leader == nil {
				return "none"
			}
			return strconv.FormatUint(uint64(*e.Leader), 10)
		case wordRound:
			return strconv.FormatUint(e.Round, 10)
		case wordSwarm:
			return e.Swarm
		default:
			return e.Winner
		}
	}), nil
}
