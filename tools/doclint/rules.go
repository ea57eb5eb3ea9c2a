// Package doclint checks the Markdown files of the repository: the width of lines, the length of
// sentences, phrases that are never good English, and the form of RFCs. The check is a test, so it
// needs no tool; CONTRIBUTING.md has the rules.
package doclint

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Limits of a document. The published documents of comparable projects have means of 19.5 to 20.7
// words a sentence, with 7 to 8.5 % above 35.
const (
	maxColumns     = 120  // of a line; tables, code and lines with a link are exempt
	maxCell        = 300  // characters of a cell of a table
	maxMean        = 20.0 // words a sentence, exclusive
	longSentence   = 35   // words above which a sentence is long
	maxLongPercent = 8.0  // of the sentences
	maxRFCWords    = 1200 // of an RFC, with its tables and without its code blocks
)

// rfcSections are the sections of an RFC, in this order. Others may follow or stand between them.
var rfcSections = []string{"Problem", "Options", "Decision", "Measurements"}

// A phrase is banned, with what to write in its place.
type phrase struct {
	pattern *regexp.Regexp
	instead string
}

// banned phrases had a plainer form wherever they were used.
var banned = []phrase{
	ban(`such as (have|are|has|were)`, "those that, or the noun"),
	ban(`whoever|whomever`, "the noun: the client, the process"),
	ban(`anew`, "again"),
	ban(`a stranger|strangers`, "an untrusted client"),
	ban(`says? (what|why|who|which|whether|how)`, "reports, names, describes, or the verb of the thing"),
	ban(`stands? (in|at|behind|beside|for itself|still)`, "is in, is at, follows, is stuck"),
	ban(`goes by`, "uses, depends on"),
	ban(`so many`, "a number, or many"),
	ban(`under way`, "in progress"),
	ban(`to be had`, "available"),
	ban(`to and fro`, "back and forth"),
	ban(`by hand of`, "with"),
	ban(`what (is|are|was) (not )?(there|its|theirs|left|good|missing|kept|done|known|announced|decoded|promised)`,
		"the noun"),
	ban(`is none of`, "is not one of"),
	ban(`(it|this|that|which|one|he) is no\b`, "is not a"),
	ban(`as (long|many|much|often) as one likes`, "any number of"),
	ban(`as it were`, "nothing"),
	ban(`therefor|thereof|whereof|therein|wherein|thereby|hereby|whereby`, "a second sentence"),
	ban(`(looks|looked|looking) after`, "maintains, manages"),
	ban(`(who|which) (wants?|asks|has|have|is|misses|ends|loses|writes|knows) [^.?]{0,40}, (is|has|may|must|gets)`,
		"the noun"),
	ban(`nobody may|nobody knows|nobody serves`, "a passive, or the noun"),
	ban(`of whatever`, "any"),
}

func ban(pattern, instead string) phrase {
	return phrase{regexp.MustCompile(`\b(` + pattern + `)\b`), instead}
}

// anyBanned matches where any of the phrases does: nearly all texts are looked at once.
var anyBanned = func() *regexp.Regexp {
	var all []string
	for _, p := range banned {
		all = append(all, p.pattern.String())
	}
	return regexp.MustCompile(strings.Join(all, "|"))
}()

type statistics struct {
	Sentences, Words, Long int
}

func (s statistics) mean() float64 { return ratio(s.Words, s.Sentences) }

func (s statistics) long() float64 { return 100 * ratio(s.Long, s.Sentences) }

func ratio(a, b int) float64 {
	if b == 0 {
		return 0
	}
	return float64(a) / float64(b)
}

// measure counts the sentences of paragraphs and list items. Headings, tables and code have none.
func measure(d document) statistics {
	var s statistics
	for _, b := range d.blocks {
		if b.heading {
			continue
		}
		for _, sentence := range sentences(b.text) {
			n := count(sentence)
			s.Sentences++
			s.Words += n
			if n > longSentence {
				s.Long++
			}
		}
	}
	return s
}

// check returns the faults of a document, each with its line where it has one. The path, with
// slashes and below the root of the repository, tells an RFC from other documents.
func check(path, text string) []string {
	d := parse(text)
	var faults []string
	add := func(number int, format string, args ...any) {
		faults = append(faults, fmt.Sprintf("%s:%d: ", path, number)+fmt.Sprintf(format, args...))
	}
	for _, l := range d.lines {
		switch {
		case l.code:
		case l.table:
			for _, c := range cells(l.text) {
				if n := utf8.RuneCountInString(strings.TrimSpace(c)); n > maxCell {
					add(l.number, "a cell of %d characters: at most %d, or make the table a list", n, maxCell)
				}
			}
			faults = append(faults, phrases(path, l.number, plain(l.text))...)
		case strings.Contains(l.text, "](") || strings.Contains(l.text, "://"):
		default:
			if n := utf8.RuneCountInString(l.text); n > maxColumns {
				add(l.number, "%d columns: wrap at %d", n, maxColumns)
			}
		}
	}
	for _, b := range d.blocks {
		faults = append(faults, phrases(path, b.number, b.text)...)
	}
	s := measure(d)
	if s.mean() >= maxMean {
		add(1, "%.1f words a sentence: below %.0f", s.mean(), maxMean)
	}
	if s.long() > maxLongPercent {
		add(1, "%.1f %% of the sentences are above %d words: at most %.0f %%, the longest at line %d",
			s.long(), longSentence, maxLongPercent, longest(d))
	}
	if isRFC(path) {
		faults = append(faults, checkRFC(path, d)...)
	}
	return faults
}

func phrases(path string, number int, text string) []string {
	text = strings.ToLower(text)
	if !anyBanned.MatchString(text) {
		return nil
	}
	var faults []string
	for _, p := range banned {
		if found := p.pattern.FindString(text); found != "" {
			faults = append(faults, fmt.Sprintf("%s:%d: %q: write %s", path, number, found, p.instead))
		}
	}
	return faults
}

func longest(d document) int {
	number, most := 0, 0
	for _, b := range d.blocks {
		for _, s := range sentences(b.text) {
			if n := count(s); n > most && !b.heading {
				number, most = b.number, n
			}
		}
	}
	return number
}

var (
	rfcPath   = regexp.MustCompile(`(^|/)docs/rfcs/\d{4}-[a-z0-9-]+\.md$`)
	rfcStatus = regexp.MustCompile(`^Status: (proposed|accepted|implemented|withdrawn|superseded by RFC \d{4})$`)
	rfcDate   = regexp.MustCompile(`^Date: \d{4}-\d{2}-\d{2}$`)
)

func isRFC(path string) bool { return rfcPath.MatchString(path) }

func checkRFC(path string, d document) []string {
	var faults []string
	var status, date bool
	words, next := 0, 0
	for _, l := range d.lines {
		status = status || rfcStatus.MatchString(l.text)
		date = date || rfcDate.MatchString(l.text)
		if !l.code {
			words += count(l.text)
		}
		if next < len(rfcSections) && l.text == "## "+rfcSections[next] {
			next++
		}
	}
	if !status {
		faults = append(faults, path+":1: no line \"Status: proposed\", accepted, implemented, withdrawn or "+
			"\"superseded by RFC NNNN\"")
	}
	if !date {
		faults = append(faults, path+":1: no line \"Date: YYYY-MM-DD\"")
	}
	if next < len(rfcSections) {
		faults = append(faults, fmt.Sprintf("%s:1: no section %q, or out of order: an RFC has %s",
			path, rfcSections[next], strings.Join(rfcSections, ", ")))
	}
	if words > maxRFCWords {
		faults = append(faults, fmt.Sprintf("%s:1: %d words: at most %d; figures go to docs/performance.md", path,
			words, maxRFCWords))
	}
	return faults
}
