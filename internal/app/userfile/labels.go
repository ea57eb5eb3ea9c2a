package userfile

import (
	"os"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/internal/app/command"
)

// ReadLabels reads the labels with which decisions are compared; an empty path means none.
func (d *Destination) ReadLabels(file string) error {
	if file == "" {
		return nil
	}
	if d.format != "ndjson" || !d.hasOutput {
		return command.Usage("--labels: they are compared with decisions in plain NDJSON: name an --output that " +
			"ends with .ndjson")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return command.Usage("--labels: %v", err)
	}
	if d.labels, err = report.ParseLabels(data); err != nil {
		return command.Usage(`--labels %s: %v: write [{"series":"NAME","what":"WORDS","begin":"TIME","end":"TIME"}], `+
			"without series for all of them", file, err)
	}
	d.labelFile = file
	return nil
}

// CheckLabels refuses labels of series that the run does not have. series are the names of all.
func (d *Destination) CheckLabels(series []string) error {
	known := map[string]bool{"": true}
	for _, name := range series {
		known[name] = true
	}
	for i, l := range d.labels {
		if !known[l.Series] {
			return command.Usage("--labels %s: label %d: the input has no series %s: write the path of its file "+
				"below --input",
				d.labelFile, i+1, command.Cell(l.Series))
		}
	}
	return nil
}

// Compare compares the collected decisions with the labels. anomaly is the name of the candidate
// that counts as an alarm, and keys are the keys of report.Header. The result is nil for a run
// without labels.
func (d *Destination) Compare(anomaly string, keys []string) (*report.Outcome, error) {
	if len(d.labels) == 0 {
		return nil, nil
	}
	decisions, err := os.Open(d.decisions)
	if err != nil {
		return nil, err
	}
	defer decisions.Close()
	return report.Compare(d.labels, anomaly, keys, decisions)
}
