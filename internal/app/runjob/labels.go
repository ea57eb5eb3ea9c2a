package runjob

import (
	"os"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
)

// labels are the known incidents with which a run compares its decisions. The zero value has none.
type labels struct {
	file string // for errors
	all  []report.Label
}

// readLabels reads the labels of a run to a destination; an empty path means none.
func readLabels(file string, dest *userfile.Destination) (l labels, err error) {
	if file == "" {
		return l, nil
	}
	if dest.Format() != "ndjson" || !dest.HasOutput() {
		return l, command.Usage("--labels: they are compared with decisions in plain NDJSON: name an --output that " +
			"ends with .ndjson")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return l, command.Usage("--labels: %v", err)
	}
	if l.all, err = report.ParseLabels(data); err != nil {
		return l, command.Usage(`--labels %s: %v: write [{"series":"NAME","what":"WORDS","begin":"TIME",`+
			`"end":"TIME"}], without series for all of them`, file, err)
	}
	l.file = file
	return l, nil
}

// check refuses labels of series that the run does not have. series are the names of all.
func (l labels) check(series []string) error {
	known := map[string]bool{"": true}
	for _, name := range series {
		known[name] = true
	}
	for i, one := range l.all {
		if !known[one.Series] {
			return command.Usage("--labels %s: label %d: the input has no series %s: write the path of its file "+
				"below --input", l.file, i+1, command.Cell(one.Series))
		}
	}
	return nil
}

// compare compares the collected decisions with the labels; nil without labels.
func (l labels) compare(dest *userfile.Destination, rec *runRecord) (*report.Outcome, error) {
	if len(l.all) == 0 {
		return nil, nil
	}
	decisions, err := os.Open(dest.Decisions())
	if err != nil {
		return nil, err
	}
	defer decisions.Close()
	return report.Compare(l.all, rec.Anomaly, rec.Keys, decisions)
}
