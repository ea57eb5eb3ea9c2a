package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents"
)

// TestCompare: both ends belong to a label, a label of a series takes no alarm of another, and an
// alarm is outside when no label of its series holds it.
func TestCompare(t *testing.T) {
	const a, all = `{"series":"a","begin":"2026-01-01 10:00:00","end":"2026-01-01 11:00:00"}`,
		`{"begin":"2026-01-01 10:00:00","end":"2026-01-01 11:00:00"}`
	for _, c := range []struct {
		name   string
		labels string
		rows   string // series timestamp decision
		want   string // alarms of each label; found, outside
	}{
		{"no alarm", a, "a/2026-01-01 10:30:00/suspicious", "[0] 0 0"},
		{"within", a, "a/2026-01-01 10:30:00/anomalous", "[1] 1 0"},
		{"at the begin", a, "a/2026-01-01 10:00:00/anomalous", "[1] 1 0"},
		{"before the begin", a, "a/2026-01-01 09:59:59.999999999/anomalous", "[0] 0 1"},
		{"at the end", a, "a/2026-01-01 11:00:00/anomalous", "[1] 1 0"},
		{"behind the end", a, "a/2026-01-01 11:00:00.000000001/anomalous", "[0] 0 1"},
		{"in another zone", a, "a/2026-01-01T12:00:00+02:00/anomalous", "[1] 1 0"},
		{"unix seconds", a, "a/1767261600/anomalous", "[1] 1 0"},
		{"another series", a, "b/2026-01-01 10:30:00/anomalous", "[0] 0 1"},
		{"a series below", a, "a/a/2026-01-01 10:30:00/anomalous", "[0] 0 1"},
		{"every series", all, "b/2026-01-01 10:30:00/anomalous a/2026-01-01 10:30:00/anomalous", "[2] 1 0"},
		{"several alarms", a, "a/2026-01-01 10:00:00/anomalous a/2026-01-01 10:20:00/anomalous a/2026-01-01 " +
			"11:20:00/anomalous", "[2] 1 1"},
		{"labels that overlap", a + "," + all, "a/2026-01-01 10:30:00/anomalous", "[1 1] 2 0"},
		{"an instant", `{"series":"a","begin":"2026-01-01","end":"2026-01-01"}`, "a/2026-01-01 00:00:00/anomalous " +
			"a/2026-01-01 00:00:01/anomalous", "[1] 1 1"},
		{"found and missed", a + `,{"series":"b","begin":"2026-01-02","end":"2026-01-03"}`, "a/2026-01-01 " +
			"10:30:00/anomalous b/2026-01-04/anomalous", "[1 0] 1 1"},
		{"dropped", a, "a/2026-01-01 10:30:00/dropped", "[0] 0 0"},
	} {
		labels, err := ParseLabels([]byte("[" + c.labels + "]"))
		if err != nil {
			t.Fatalf("%s: ParseLabels: %v, want no error", c.name, err)
		}
		var in bytes.Buffer
		for row := range strings.SplitAfterSeq(c.rows, "anomalous") {
			row = strings.TrimSpace(row)
			if row == "" {
				continue
			}
			at := strings.LastIndexByte(row, '/')
			series, time, _ := cutLast(row[:at])
			if row[at+1:] == "dropped" { // "anomalous" is no decision here
				fmt.Fprintf(&in, `{"series":%q,"row":1,"timestamp":%q,"value":"anomalous","dropped":"late"}`+"\n",
					series, time)
				continue
			}
			fmt.Fprintf(&in, `{"series":%q,"row":1,"timestamp":%q,"score":1,"decision":%q}`+"\n", series, time,
				row[at+1:])
		}
		o, err := Compare(labels, "anomalous", nil, &in)
		if err != nil {
			t.Fatalf("%s: Compare: %v, want no error", c.name, err)
		}
		var alarms []uint64
		for _, i := range o.Each {
			alarms = append(alarms, i.Alarms)
			if i.Found != (i.Alarms > 0) {
				t.Errorf("%s: found is %t with %d alarms", c.name, i.Found, i.Alarms)
			}
		}
		if got := fmt.Sprint(alarms, o.Found, o.Outside); got != c.want || o.Labels != len(labels) {
			t.Errorf("%s: %s, want %s", c.name, got, c.want)
		}
	}
}

func cutLast(s string) (before, after string, ok bool) {
	at := strings.LastIndexByte(s, '/')
	if at < 0 {
		return "", s, false
	}
	return s[:at], s[at+1:], true
}

// TestEscapedAnomaly: an alarm whose word JSON may write in several ways is one in all of them.
func TestEscapedAnomaly(t *testing.T) {
	labels, err := ParseLabels([]byte(`[{"begin":"2026-01-01","end":"2026-01-02"}]`))
	if err != nil {
		t.Fatalf("ParseLabels: %v, want no error", err)
	}
	in := `{"series":"a","timestamp":"2026-01-01","decision":"<up"}` + "\n" +
		`{"series":"a","timestamp":"2026-01-02","decision":"\u003cup"}` + "\n"
	o, err := Compare(labels, "<up", nil, strings.NewReader(in))
	if err != nil || o.Each[0].Alarms != 2 {
		t.Errorf("Compare: %+v, %v, want 2 alarms", o, err)
	}
	if o.String() != "1 of 1 labelled incidents found, 0 alarms outside" {
		t.Errorf("the summary is %q, want 1 of 1 found and 0 alarms outside", o)
	}
}

func TestBadLabels(t *testing.T) {
	for text, want := range map[string]string{
		``:         "line 1: the list ends too early",
		`{}`:       "line 1: a list of labels begins with [",
		`[]`:       "the list has no label",
		"[\n{,}]":  "line 2: invalid character",
		"[\n\n{}":  "line 3: label 1: begin is missing",
		"[\n 7\n]": "line 2: label 1: it is a number, not an object",

		`[{"begin":"2026-01-01","end":"2026-01-02"}`: "line 1: the list ends too early",

		`[{"begin":"2026-01-01","end":"2026-01-02"}] x`: "line 1: text behind the end",

		"[{\"begin\":\"2026-01-01\",\"end\":\"2026-01-02\"},\n {\"begin\":\"2026-01-01\"}]": "line 2: label 2: " +
			"end is missing",
		"[{\"begin\":\"2026-01-01\",\"end\":\"2026-01-02\"},\n {\"begin\":\"soon\",\"end\":\"2026\"}]": "line 2: " +
			"label 2: begin: its timestamp \"soon\" is not a time",
		`[{"begin":5,"end":"2026-01-01"}]`: "line 1: " +
			"label 1: begin is a number, not a text",
		`[{"begin":"2026-01-02","end":"2026-01-01"}]`: "line 1: " +
			"label 1: end 2026-01-01 is before begin 2026-01-02",
		`[{"begin":"2026-01-01","finish":"2026-01-01"}]`: `line 1: label 1: unknown field "finish"`,
	} {
		if _, err := ParseLabels([]byte(text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

// TestLabelledAreDrawn: of many long series, one with a label of its own has more points than one
// without, though it has no alarm.
func TestLabelledAreDrawn(t *testing.T) {
	quiet := cpuagents.SeriesSummary{Name: "a"}
	labels := &Outcome{Each: []Incident{{Label: Label{Series: quiet.Name}}}}
	if weight(quiet, nil) != 1 || weight(quiet, labels) != loudWeight ||
		weight(cpuagents.SeriesSummary{Name: "b", Anomalies: 1}, labels) != loudWeight {
		t.Error("a series with a label or an anomaly has no more points than others")
	}
}
