package sample

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
)

// Choice is what the user has chosen; empty fields are proposed.
type Choice struct {
	Name      string
	Timestamp string
	Features  []string
	// Key names the columns of the key. NoKey means that the file is one entity.
	Key   []string
	NoKey bool
}

// Proposal is a specification for a sample.
type Proposal struct {
	// Text is the specification as YAML, with comments. Spec is what it parses to.
	Text string
	Spec *swarm.Spec
	// Rows and Rejected count the rows of the beginning of the sample that the specification reads.
	// Reason is that of the first reject. Entities is the number of keys among the rows.
	Rows, Rejected, Entities int
	Reason                   string
	// Notes are sentences about columns that could be used otherwise.
	Notes []string
}

const (
	checkedRows = 200_000 // of a sample that are read to check a proposal
	maxFeatures = 64
)

// Propose reads the beginning of a file, proposes a specification, and reads up to 200,000 rows of
// the file with it. Files of CSV, NDJSON, Parquet and Arrow, also packed, are samples. A sample
// without a column of numbers or of times is an error of class jobs.CodeInput that lists the
// columns, unless the choice names one. ctx ends the reading.
func Propose(ctx context.Context, file string, c Choice) (*Proposal, error) {
	s, err := read(file)
	if err != nil {
		return nil, err
	}
	if c.Name == "" {
		c.Name = nameOf(file)
	}
	p := &Proposal{}
	if err := s.choose(&c, p); err != nil {
		return nil, err
	}
	// The first specification finds the number of entities, which the second one depends on.
	for range 2 {
		p.Text = s.text(c, p)
		if p.Spec, err = swarm.Parse("the proposal for "+file, []byte(p.Text)); err != nil {
			return nil, err
		}
		if err := p.check(ctx, s); err != nil {
			return nil, err
		}
	}
	return p, nil
}

// choose fills in what the choice leaves open.
func (s *sample) choose(c *Choice, p *Proposal) error {
	var names []string
	for _, col := range s.columns {
		names = append(names, col.name)
	}
	for _, want := range slices.Concat([]string{c.Timestamp}, c.Features, c.Key) {
		if want != "" && !slices.Contains(names, want) {
			return jobs.Errorf(jobs.CodeInput, "%s: no column %q: the columns are %s", s.name, want, listed(names))
		}
	}
	if c.Timestamp == "" {
		c.Timestamp = s.timestamp()
	}
	if c.Timestamp == "" {
		return jobs.Errorf(
			jobs.CodeInput,
			"%s: no column has times in a known form: name one with --timestamp; the columns are %s",
			s.name,
			listed(names),
		)
	}
	if len(c.Key) == 0 && !c.NoKey {
		c.Key = s.key(c, p)
	}
	if len(c.Features) == 0 {
		for _, col := range s.columns {
			if col.number && col.name != c.Timestamp && !slices.Contains(c.Key, col.name) && !idName(col.name) &&
				!labelName(col.name) && (!col.time || !timeName(col.name)) {
				c.Features = append(c.Features, col.name)
			}
		}
		if len(c.Features) > maxFeatures {
			p.Notes = append(p.Notes, fmt.Sprintf("%d columns have numbers, the first %d are features",
				len(c.Features), maxFeatures))
			c.Features = c.Features[:maxFeatures]
		}
	}
	if len(c.Features) == 0 {
		return jobs.Errorf(jobs.CodeInput,
			"%s: no column has numbers that can be a feature: name one with --features; the columns are %s", s.name,
			listed(names))
	}
	return nil
}

func listed(names []string) string {
	var quoted []string
	for _, n := range names[:min(len(names), 20)] {
		quoted = append(quoted, strconv.Quote(n))
	}
	if len(names) > 20 {
		quoted = append(quoted, "…")
	}
	return strings.Join(quoted, ", ")
}

// timestamp returns the column of times: one that is called so before others.
func (s *sample) timestamp() string {
	best, found := "", -1
	for _, c := range s.columns {
		if !c.time {
			continue
		}
		value := 1
		if timeName(c.name) {
			value += 2
		}
		if !c.number && (!c.text || len(c.values) > 0) { // the values of a text of Parquet are not known
			value++
		}
		if value == 1 && (c.number || c.text && len(c.values) == 0) {
			continue
		}
		if value > found {
			best, found = c.name, value
		}
	}
	return best
}

// key returns the column that tells entities apart, if one does: it is called so, or it is a text
// whose values repeat.
func (s *sample) key(c *Choice, p *Proposal) []string {
	type candidate struct {
		name     string
		named    bool
		distinct int
	}
	var found []candidate
	for _, col := range s.columns {
		if !col.key || col.name == c.Timestamp || slices.Contains(c.Features, col.name) || labelName(col.name) {
			continue
		}
		distinct := map[string]bool{}
		for _, v := range col.values {
			distinct[v] = true
		}
		n, filled, named := len(distinct), len(col.values), idName(col.name)
		repeats := filled == 0 || n*2 <= filled || n == 1
		if repeats && (named || col.text && !col.time && n != 1 && (filled > 0 || !timeName(col.name))) {
			found = append(found, candidate{name: col.name, named: named, distinct: n})
		}
	}
	// One that is called so before others, and more values before fewer.
	slices.SortStableFunc(found, func(a, b candidate) int {
		if a.named != b.named {
			return map[bool]int{true: -1, false: 1}[a.named]
		}
		return cmp.Compare(b.distinct, a.distinct)
	})
	var all []string
	for _, f := range found {
		all = append(all, f.name)
	}
	if len(all) == 0 {
		return nil
	}
	if len(all) > 1 {
		p.Notes = append(
			p.Notes,
			fmt.Sprintf("%s could be the key or a part of it too: name the columns with --key, "+
				"or --no-key for none", listed(all[1:])),
		)
	}
	return all[:1]
}

var (
	timeWords = regexp.MustCompile(
		`(?i)(^|[_ .-])(time|timestamp|date|datetime|ts|zeit|datum|at|_time)([_ .-]|$)|(?i)time`,
	)
	idWords = regexp.MustCompile(
		`(?i)(^|[_ .-])(id|ids|uuid|key|device|sensor|machine|host|hostname|node|account|user|` +
			`customer|vehicle|meter|station|instance|series|entity|asset|pod|service|symbol)([_ .-]|$)|(?i)[a-z]Id$`,
	)
	labelWords = regexp.MustCompile(
		`(?i)(^|[_ .-])(label|labels|anomaly|anomalous|is_anomaly|target|class|ground_truth)([_ .-]|$)`,
	)
)

func timeName(name string) bool  { return timeWords.MatchString(name) }
func idName(name string) bool    { return idWords.MatchString(name) && !timeName(name) }
func labelName(name string) bool { return labelWords.MatchString(name) }

// nameOf returns the name of a swarm for a file.
func nameOf(file string) string {
	name := filepath.Base(file)
	if stem, ok := rows.CutFormat(name); ok {
		name = stem
	}
	name = strings.Trim(regexp.MustCompile(`[^A-Za-z0-9_-]+`).ReplaceAllString(name, "-"), "-")
	if name == "" {
		return "swarm"
	}
	return name[:min(len(name), 64)]
}

// text returns the specification. The number of entities is that of p.
func (s *sample) text(c Choice, p *Proposal) string {
	var b strings.Builder
	line := func(text, comment string) {
		fmt.Fprintf(&b, "%-34s # %s\n", text, comment)
	}
	perGroup := 256
	switch {
	case p.Entities > 5000:
		perGroup = 16
	case p.Entities > 100:
		perGroup = 64
	}
	if s.name != "" {
		fmt.Fprintf(&b, "# Proposed for %s.\n", filepath.Base(s.name))
	}
	b.WriteString("# docs/spec.md describes all keys.\n")
	line("name: "+c.Name, "of the swarm, in commands and in the dashboard")
	line("timestamp: "+quote(c.Timestamp), "column with the time of a row")
	line("features: ["+joined(c.Features)+"]", "columns with the numbers that the agents see")
	if len(c.Key) > 0 {
		line("key: ["+joined(c.Key)+"]", "columns that tell entities apart: a group of agents for each")
		most := rows.DefaultMaxEntities
		for most < 2*p.Entities {
			most *= 10
		}
		found := "at most"
		if p.Entities > 0 {
			found += fmt.Sprintf("; the sample has %d", p.Entities)
		}
		line(fmt.Sprintf("max_entities: %d", most), found)
	}
	line(fmt.Sprintf("agents_per_group: %d", perGroup), "for each series or entity; more cost memory and time")
	b.WriteString("cell:\n")
	line("  kind: predictor", "learns to predict the next value, and alarms if it is surprised")
	b.WriteString(s.dialect())
	return b.String()
}

// Text returns the specification for a choice without a sample, as YAML. What the choice leaves open
// has its default.
func Text(c Choice) string {
	if c.Timestamp == "" {
		c.Timestamp = "timestamp"
	}
	if len(c.Features) == 0 {
		c.Features = []string{"value"}
	}
	s := &sample{format: "csv"}
	return s.text(c, &Proposal{})
}

// dialect returns the lines about CSV; empty if the file has the default dialect.
func (s *sample) dialect() string {
	if kind, _, _ := s.format.Split(); kind != "csv" || s.csv.IsZero() {
		return ""
	}
	b := "csv:\n"
	if s.csv.Delimiter != "" {
		b += "  delimiter: " + quote(s.csv.Delimiter) + "\n"
	}
	if s.csv.Decimal != "" {
		b += "  decimal: " + quote(s.csv.Decimal) + "\n"
	}
	if s.csv.Header != nil {
		b += "  header: false # columns are called by their numbers\n"
	}
	for _, form := range s.csv.Time {
		b += "  time: " + quote(form) + "\n"
	}
	return b
}

func quote(text string) string {
	if regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`).MatchString(text) &&
		!slices.Contains(
			[]string{"true", "false", "yes", "no", "on", "off", "null", "y", "n"},
			strings.ToLower(text),
		) {
		return text
	}
	return strconv.Quote(text)
}

func joined(names []string) string {
	quoted := make([]string, len(names))
	for i, n := range names {
		quoted[i] = quote(n)
	}
	return strings.Join(quoted, ", ")
}

// check reads rows of the sample with the specification.
func (p *Proposal) check(ctx context.Context, s *sample) error {
	file, err := os.Open(s.name)
	if err != nil {
		return jobs.Errorf(jobs.CodeInput, "sample: %v", err)
	}
	in, err := rows.Open(s.name, file, s.format, rows.ColumnSpec{
		Timestamp: p.Spec.Timestamp, Features: p.Spec.Features, Key: p.Spec.Key, CSV: &p.Spec.CSV,
		MaxEntities: p.Spec.MaxEntities, AnyOrder: len(p.Spec.Key) > 0,
	}, 1<<40, nil)
	if err != nil {
		return err
	}
	defer in.Close()
	p.Rows, p.Rejected, p.Reason = 0, 0, ""
	entities := map[string]bool{}
	for p.Rows+p.Rejected < checkedRows {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		row, reject, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			p.Entities = len(entities)
			return nil
		case err != nil:
			return err
		case reject != nil:
			if p.Rejected++; p.Reason == "" {
				p.Reason = reject.Place() + ": " + reject.Reason
			}
		default:
			p.Rows++
			if len(p.Spec.Key) > 0 {
				entities[row.Key] = true
			}
		}
	}
	p.Entities = len(entities)
	return nil
}
