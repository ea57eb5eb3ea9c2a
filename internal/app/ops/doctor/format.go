package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"

	"github.com/exoswarm/exoswarm/internal/base/redact"
)

// WriteText writes the results for people: the findings, with verbose also the checks that are ok
// or skipped, in the order of all, and a last line with the counts. Text of agents and servers is
// shown without control characters and secrets.
func WriteText(w io.Writer, all []Result, verbose bool) error {
	n := map[Level]int{}
	for _, r := range all {
		n[r.Level]++
		// Info is shown: it is worth knowing once.
		if !verbose && (r.Level == OK || r.Level == Skip) {
			continue
		}
		if _, err := fmt.Fprintf(w, "%-5s  %s (%s)\n", r.Level, redact.Line(r.Summary), r.ID); err != nil {
			return err
		}
		for _, d := range r.Details {
			fmt.Fprintf(w, "         %s\n", redact.Line(d))
		}
		if r.Cure != "" {
			fmt.Fprintf(w, "         what to do: %s\n", redact.Line(r.Cure))
		}
	}
	_, err := fmt.Fprintf(w, "%d checks: %d errors, %d warnings, %d ok, %d skipped\n", len(all), n[Failed], n[Warn],
		n[OK]+n[Info], n[Skip])
	return err
}

// WriteJSON writes all results as a JSON array, in their order.
func WriteJSON(w io.Writer, all []Result) error {
	data, err := json.MarshalIndent(all, "", "  ")
	if err != nil {
		return fmt.Errorf("write the results: %w", err)
	}
	_, err = w.Write(append(data, '\n'))
	return err
}

// WritePrometheus writes the results in the text format of Prometheus, for the textfile collector
// of the node exporter. Each check has a sample, also one that was skipped, so an alert on a
// missing sample means that the doctor did not run.
func WritePrometheus(w io.Writer, all []Result) error {
	var b strings.Builder
	b.WriteString("# HELP exoswarm_doctor_check The level of a check: 0 ok or skipped, 1 info, 2 warning, 3 error.\n" +
		"# TYPE exoswarm_doctor_check gauge\n")
	for _, r := range all {
		fmt.Fprintf(&b, "exoswarm_doctor_check{check=%q,category=%q} %d\n", r.ID, r.Category, severity(r.Level))
	}
	b.WriteString("# HELP exoswarm_doctor_value The number that a check judged.\n# TYPE exoswarm_doctor_value gauge\n")
	for _, r := range all {
		if r.Value != nil {
			fmt.Fprintf(&b, "exoswarm_doctor_value{check=%q,unit=%q} %g\n", r.ID, r.Unit, *r.Value)
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// severity returns the number of a level in the metric: 0 for ok and skipped, up to 3.
func severity(l Level) int {
	switch l {
	case Failed:
		return 3
	case Warn:
		return 2
	case Info:
		return 1
	}
	return 0
}

// WriteNagios writes one line with performance data, and returns the exit status of a Nagios
// plugin: 0 OK, 1 WARNING, 2 CRITICAL (Nagios Plugin Development Guidelines). A | separates text
// from data, so none may be in the text. Units that plugins do not know are left out.
func WriteNagios(w io.Writer, all []Result) (status int, err error) {
	word, status := "OK", 0
	// Info is OK to Nagios.
	switch Worst(all) {
	case Failed:
		word, status = "CRITICAL", 2
	case Warn:
		word, status = "WARNING", 1
	}
	var bad, data []string
	for _, r := range all {
		if r.Level == Failed || r.Level == Warn {
			bad = append(bad, strings.ReplaceAll(redact.Line(r.Summary), "|", "/"))
		}
		if r.Value != nil {
			unit := r.Unit
			// The guidelines know s, %, B and c, with prefixes.
			if unit != "ms" && unit != "%" {
				unit = ""
			}
			data = append(data, fmt.Sprintf("'%s'=%g%s", r.ID, *r.Value, unit))
		}
	}
	text := fmt.Sprintf("%d checks", len(all))
	if len(bad) > 0 {
		text = strings.Join(bad, "; ")
	}
	_, err = fmt.Fprintf(w, "EXOSWARM %s - %s | %s\n", word, text, strings.Join(data, " "))
	return status, err
}
