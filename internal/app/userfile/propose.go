package userfile

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs"
)

// SpecChoice is what the user has chosen; empty fields are proposed.
type SpecChoice struct {
	Name      string
	Timestamp string
	Features  []string
	// Key names the columns of the key. NoKey means that the file is one entity.
	Key   []string
	NoKey bool
}

// SpecProposal is a specification for a sample.
type SpecProposal struct {
	// SpecText is the specification as YAML, with comments. Spec is what it parses to.
	Text string
	Spec *swarm.Spec
	// Rows and Rejected count the rows of the beginning of the sample that the specification reads.
	// Reason is the reason of the first reject. Entities is the number of keys among the rows.
	Rows, Rejected, Entities int
	Reason                   string
	// Notes are sentences about columns that could be used otherwise.
	Notes []string
}

const (
	checkedRows = 200_000 // of a sample that are read to check a proposal
	maxFeatures = 64
	// SampleMinRows is the rows from which agents learn a little of what is normal for an entity.
	SampleMinRows = 10
	maxCandidates = 8 // of the key, that are tried
)

// ProposeSpec reads the beginning of a file, proposes a specification, and reads up to 200,000 rows
// of the file with it. Files of CSV, NDJSON, Parquet and Arrow, also packed, are samples. A sample
// without a column of numbers or of times is an error of class jobs.CodeInput that lists the
// columns, unless the choice names one. ctx ends the reading.
func ProposeSpec(ctx context.Context, file string, c SpecChoice) (*SpecProposal, error) {
	s, err := read(file)
	if err != nil {
		return nil, err
	}
	if c.Name == "" {
		c.Name = nameOf(file)
	}
	if err := s.chooseTimestamp(&c); err != nil {
		return nil, err
	}
	candidates := s.keys(&c)
	notes := s.notes
	measured := map[string]bool{}
	for i := 0; ; i++ {
		try := c
		if i < len(candidates) {
			try.Key = []string{candidates[i].name}
		}
		p, order, err := s.propose(ctx, file, try, measured)
		if err != nil {
			return nil, err
		}
		if i >= len(candidates) {
			p.Notes = append(p.Notes, notes...)
			return p, nil
		}
		of := candidates[i]
		switch {
		case p.Rows+p.Rejected < checkedRows && p.Rows < SampleMinRows*p.Entities:
			notes = append(
				notes,
				fmt.Sprintf("%q is no key: its %d values have %.1f rows on average, and an entity needs "+
					"%d to learn from: name it with --key if it tells entities apart", of.name, p.Entities,
					float64(p.Rows)/float64(max(p.Entities, 1)), SampleMinRows),
			)
		case of.number && !of.strong && !order.tellsEntities():
			measured[of.name] = true
			notes = append(
				notes,
				fmt.Sprintf("%q is no key: it is a number that changes as a measured one does: name it "+
					"with --key if it tells entities apart", of.name),
			)
		default:
			return p.with(notes, candidates[i+1:]), nil
		}
	}
}

// with adds notes, and one about other columns that could be the key.
func (p *SpecProposal) with(notes []string, others []candidate) *SpecProposal {
	p.Notes = append(p.Notes, notes...)
	var names []string
	for _, c := range others {
		names = append(names, c.name)
	}
	if len(names) > 0 {
		p.Notes = append(p.Notes, fmt.Sprintf("%s could be the key or a part of it too: name the columns with --key, "+
			"or --no-key for none", listed(names)))
	}
	return p
}

// propose proposes a specification for a choice that leaves no key open. measured are columns that
// have the names of keys and are features.
func (s *sample) propose(ctx context.Context, file string, c SpecChoice, measured map[string]bool) (
	p *SpecProposal, order *keyOrder, err error,
) {
	p = &SpecProposal{}
	if err := s.chooseFeatures(&c, p, measured); err != nil {
		return nil, nil, err
	}
	// The first specification finds the number of entities, which the second one depends on.
	for range 2 {
		p.Text = s.text(c, p)
		if p.Spec, err = swarm.Parse("the proposal for "+file, []byte(p.Text)); err != nil {
			return nil, nil, err
		}
		if order, err = p.check(ctx, s); err != nil {
			return nil, nil, err
		}
	}
	return p, order, nil
}

func (s *sample) chooseTimestamp(c *SpecChoice) error {
	names := s.names()
	if slices.ContainsFunc(names, func(n string) bool { return !rows.IsText(n) }) {
		return jobs.Errorf(jobs.CodeInput, "%s: line 1: %s", s.name, rows.NoText)
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
	return nil
}

func (s *sample) chooseFeatures(c *SpecChoice, p *SpecProposal, measured map[string]bool) error {
	if len(c.Features) == 0 {
		for _, col := range s.columns {
			if col.number && col.name != c.Timestamp && !slices.Contains(c.Key, col.name) &&
				(!idName(col.name) || measured[col.name] || col.measured()) && !labelName(col.name) &&
				(!col.time || !timeName(col.name)) {
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
			listed(s.names()))
	}
	return nil
}

func (s *sample) names() (all []string) {
	for _, col := range s.columns {
		all = append(all, col.name)
	}
	return all
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

// candidate is a column that may be the key.
type candidate struct {
	name     string
	named    bool // as keys are
	strong   bool // its name alone makes it one, as device_id does
	number   bool
	distinct int
}

// keys returns the columns that may tell entities apart, the likely ones first: they are called so,
// or are texts whose values repeat. There are none for a choice with a key, or without one.
func (s *sample) keys(c *SpecChoice) (found []candidate) {
	if len(c.Key) > 0 || c.NoKey {
		return nil
	}
	for _, col := range s.columns {
		if !col.key || col.name == c.Timestamp || slices.Contains(c.Features, col.name) || labelName(col.name) ||
			col.fractions() {
			continue
		}
		distinct := map[string]bool{}
		for _, v := range col.values {
			distinct[v] = true
		}
		n, filled, named := len(distinct), len(col.values), idName(col.name)
		repeats := filled == 0 || n*2 <= filled || n == 1
		if repeats && (named || col.text && !col.time && n != 1 && (filled > 0 || !timeName(col.name))) {
			found = append(found, candidate{
				name: col.name, named: named, strong: strongWords.MatchString(col.name),
				number:   col.number && !col.padded(),
				distinct: n,
			})
		}
	}
	// One that is called so before others, and more values before fewer.
	slices.SortStableFunc(found, func(a, b candidate) int {
		if a.named != b.named {
			return map[bool]int{true: -1, false: 1}[a.named]
		}
		return cmp.Compare(b.distinct, a.distinct)
	})
	return found[:min(len(found), maxCandidates)]
}

// fractions reports whether a column of numbers has some that are no integers.
func (c *column) fractions() bool {
	return c.number && slices.ContainsFunc(c.values, func(v string) bool { return strings.ContainsAny(v, ".,eE") })
}

// measured reports whether a column with the name of a key holds measured numbers, and no numbers
// of rows: some are no integers, or all are small and go up and down.
func (c *column) measured() bool {
	if c.fractions() {
		return true
	}
	if !c.number || strongWords.MatchString(c.name) {
		return false
	}
	up, down, last := false, false, math.NaN()
	for _, text := range c.values {
		v, err := dialect.Float(text, 64)
		if err != nil {
			continue
		}
		if math.Abs(v) > 1000 {
			return false
		}
		up, down, last = up || v > last, down || v < last, v
	}
	return up && down
}

// padded reports whether numbers of a column begin with a zero, as identifiers do.
func (c *column) padded() bool {
	return slices.ContainsFunc(c.values, func(v string) bool { return len(v) > 1 && v[0] == '0' })
}

// keyOrder is how the values of a key follow one another in the rows of a file.
type keyOrder struct {
	rows    int
	counts  map[string]int
	next    map[string]string // the last value behind each other value
	changes int               // rows with another value than the row before
	resets  int               // of these, rows whose time goes back
	again   int               // of these, rows whose value equals next
	shared  int               // rows with the time of the row before
	twice   int               // of these, rows whose value another row of that time has
	now     map[string]bool   // the values of the present time
	key     string            // of the last row
	time    int64
}

// add sees the next row.
func (o *keyOrder) add(row *rows.Row) {
	if o.rows++; o.rows == 1 {
		o.counts, o.next, o.now = map[string]int{}, map[string]string{}, map[string]bool{}
	} else {
		if row.Key != o.key {
			o.changes++
			if row.Time < o.time {
				o.resets++
			}
			if o.next[o.key] == row.Key {
				o.again++
			}
			o.next[o.key] = row.Key
		}
		if row.Time == o.time {
			o.shared++
			if o.now[row.Key] {
				o.twice++
			}
		} else {
			clear(o.now)
		}
	}
	o.now[row.Key] = true
	o.counts[row.Key]++
	o.key, o.time = row.Key, row.Time
}

// tellsEntities reports whether the rows look like rows of entities whose names are numbers: the
// file has one entity after the other, the entities take turns, or all have a row at the same
// times. A measured number does none of it.
func (o *keyOrder) tellsEntities() bool {
	n := len(o.counts)
	if n < 2 {
		return false
	}
	most, even := 0, 0
	for _, c := range o.counts {
		most = max(most, c)
	}
	for _, c := range o.counts {
		if 2*c >= most {
			even++
		}
	}
	switch {
	case 2*even < n:
		return false
	case o.changes <= 2*n && 2*o.resets >= o.changes:
		return true
	case 10*o.changes >= 9*o.rows && 10*(o.again+n) >= 9*o.changes:
		return true
	}
	return 3*o.shared >= o.rows && 20*o.twice <= o.rows
}

var (
	timeWords = regexp.MustCompile(
		`(?i)(^|[_ .-])(time|timestamp|date|datetime|ts|zeit|datum|at|_time)([_ .-]|$)|(?i)time`,
	)
	idWords = regexp.MustCompile(
		`(?i)(^|[_ .-])(id|ids|uuid|key|device|sensor|machine|host|hostname|node|account|user|` +
			`customer|vehicle|meter|station|instance|series|entity|asset|pod|service|symbol)([_ .-]|$)|(?i)[a-z]Id$`,
	)
	strongWords = regexp.MustCompile(`(?i)[a-z0-9][_ .-](id|uuid)$|[a-z]Id$`)
	labelWords  = regexp.MustCompile(
		`(?i)(^|[_ .-])(label|labels|anomaly|anomalous|is_anomaly|target|class|ground_truth)([_ .-]|$)`,
	)
)

func timeName(name string) bool  { return timeWords.MatchString(name) }
func idName(name string) bool    { return idWords.MatchString(name) && !timeName(name) }
func labelName(name string) bool { return labelWords.MatchString(name) }

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

// text returns the specification, with the number of entities of p.
func (s *sample) text(c SpecChoice, p *SpecProposal) string {
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
	b.WriteString("# exoswarm spec keys describes all keys.\n")
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

// SpecText returns the specification for a choice without a sample, as YAML. What the choice leaves
// open has its default.
func SpecText(c SpecChoice) string {
	if c.Timestamp == "" {
		c.Timestamp = "timestamp"
	}
	if len(c.Features) == 0 {
		c.Features = []string{"value"}
	}
	s := &sample{format: "csv"}
	return s.text(c, &SpecProposal{})
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
func (p *SpecProposal) check(ctx context.Context, s *sample) (*keyOrder, error) {
	file, err := os.Open(s.name)
	if err != nil {
		return nil, jobs.Errorf(jobs.CodeInput, "sample: %v", err)
	}
	in, err := rows.Open(s.name, file, s.format, rows.ColumnSpec{
		Timestamp: p.Spec.Timestamp, Features: p.Spec.Features, Key: p.Spec.Key, CSV: &p.Spec.CSV,
		MaxEntities: p.Spec.MaxEntities, AnyOrder: len(p.Spec.Key) > 0,
	}, 1<<40, nil)
	if err != nil {
		return nil, err
	}
	defer in.Close()
	p.Rows, p.Rejected, p.Reason = 0, 0, ""
	order := &keyOrder{}
	for p.Rows+p.Rejected < checkedRows {
		if err := ctx.Err(); err != nil {
			return nil, context.Cause(ctx)
		}
		row, reject, err := in.Next()
		switch {
		case errors.Is(err, io.EOF):
			return order, nil
		case err != nil:
			return nil, err
		case reject != nil:
			if p.Rejected++; p.Reason == "" {
				p.Reason = reject.Place() + ": " + reject.Reason
			}
		default:
			p.Rows++
			if len(p.Spec.Key) > 0 {
				order.add(&row)
				p.Entities = len(order.counts)
			}
		}
	}
	return order, nil
}
