package serveprocess_test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/exoswarm/exoswarm/jobs"
)

// runbookSections returns the sections of runbooks.md by the names of alerts.
func runbookSections(t *testing.T) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(folder, "runbooks.md"))
	if err != nil {
		t.Fatal(err)
	}
	sections := map[string]string{}
	for _, s := range strings.Split(string(text), "\n## ")[1:] {
		name, section, _ := strings.Cut(s, "\n")
		sections[name] = section
	}
	return sections
}

// diagnosis returns the commands of the programs of Exoswarm that all runbooks ask, each once, with
// the alert of one of them.
func diagnosis(t *testing.T) map[string]string {
	t.Helper()
	program := regexp.MustCompile("`((?:exoswarm|gpuagent) [^`]+)`")
	commands := map[string]string{}
	for alert, section := range runbookSections(t) {
		_, ask, _ := strings.Cut(section, "**Ask:**")
		ask, _, _ = strings.Cut(ask, "**Cure:**")
		for _, m := range program.FindAllStringSubmatch(ask, -1) {
			commands[m[1]] = alert
		}
	}
	return commands
}

// runbooks runs the commands of the runbooks on the cluster of the stand, as an operator does. names
// are what stands for the words in capitals. Commands that need a folder of logins, or take half a
// minute, are asked for help, which knows their flags. The caller calls wait.
func (s *stand) runbooks(names map[string]string) (wait func()) {
	s.t.Helper()
	commands := diagnosis(s.t)
	if len(commands) < 15 {
		s.t.Errorf("the runbooks have %d commands", len(commands))
	}
	word := regexp.MustCompile(`\b[A-Z]{3,}\b`)
	found := regexp.MustCompile(`^exoswarm (doctor|job explain|swarm explain)\b`)
	slow := regexp.MustCompile(`^exoswarm (debug|auth) `)
	dir := programs(s.t)
	var running sync.WaitGroup
	for line, file := range commands {
		args := strings.Fields(word.ReplaceAllStringFunc(line, func(w string) string {
			if names[w] == "" {
				s.t.Errorf("%s: nothing stands for %s in: %s", file, w, line)
			}
			return names[w]
		}))
		if slow.MatchString(line) {
			args = append(args, "--help")
		}
		running.Go(func() {
			cmd := exec.CommandContext(s.t.Context(), filepath.Join(dir, args[0]), args[1:]...)
			cmd.Dir, cmd.Env = s.t.TempDir(), append(os.Environ(), "NATS_URL="+s.nats.URL())
			out, err := cmd.CombinedOutput()
			// The status is 1 when a doctor finds something, and for a job that goes no further.
			if e := (*exec.ExitError)(nil); err != nil && (!errors.As(err, &e) || e.ExitCode() != 1 ||
				!found.MatchString(line)) {
				s.t.Errorf("%s: %s: %v\n%s", file, line, err, out)
			}
		})
	}
	return running.Wait
}

// deadLetter returns the id of a job that is a dead letter.
func (s *stand) deadLetter() (id string) {
	s.t.Helper()
	s.eventually("a dead letter", func() bool {
		err := s.conn.Letters.List(s.t.Context(), jobs.DeadFilter{}, func(d jobs.DeadLetter) bool {
			id = d.ID
			return false
		})
		return err == nil && id != ""
	})
	return id
}
