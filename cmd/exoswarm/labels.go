package main

import (
	"os"

	"github.com/exoswarm/exoswarm/cpuagents/report"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/command"
	"github.com/exoswarm/exoswarm/internal/listing"
)

// readLabels reads the labels that decisions are compared with; an empty file name is none.
func (d *destination) readLabels(file string) error {
	if file == "" {
		return nil
	}
	if d.format != "ndjson" {
		return command.Usage("--labels: they are compared with decisions in plain NDJSON: name an --output that " +
			"ends with .ndjson")
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return command.Usage("--labels: %v", err)
	}
	if d.labels, err = report.ParseLabels(data); err != nil {
		return command.Usage(`--labels %s: %v: write [{"series":"NAME","what":"WORDS","begin":"TIME","end":"TIME"}], without series for all of them`,
			file, err)
	}
	d.labelFile = file
	return nil
}

// labelsOf refuses labels of series that the run does not have. Sources may be folders whose series
// are not known yet.
func (d *destination) labelsOf(inputs []input, others []source.Series) error {
	if len(others) > 0 {
		return nil
	}
	known := map[string]bool{"": true}
	for _, in := range inputs {
		known[in.Name] = true
	}
	for i, l := range d.labels {
		if !known[l.Series] {
			return command.Usage("--labels %s: label %d: the input has no series %s: write the path of its file "+
				"below --input",
				d.labelFile, i+1, listing.Cell(l.Series))
		}
	}
	return nil
}

// compare compares the collected decisions with the labels; nil is a run without labels.
func (d *destination) compare(anomaly string) (*report.Outcome, error) {
	if len(d.labels) == 0 {
		return nil, nil
	}
	decisions, err := os.Open(d.decisions)
	if err != nil {
		return nil, err
	}
	defer decisions.Close()
	return report.Compare(d.labels, anomaly, decisions)
}
