package doclint

import (
	"regexp"
	"strings"
	"unicode"
)

// A document is a Markdown file, split into what the rules look at.
type document struct {
	lines  []line
	blocks []block
}

// A line is one line of a file.
type line struct {
	number int // from 1
	text   string
	table  bool
	code   bool
}

// A block is the text of a heading, a paragraph or a list item, in one line and without markup. The
// text of a code span is replaced by "code", so that a command is one word and never a phrase.
type block struct {
	number  int // of its first line
	text    string
	heading bool
}

var (
	listItem  = regexp.MustCompile(`^\s*([-*+]|\d+\.)\s+`)
	codeSpan  = regexp.MustCompile("``[^`]+``|`[^`]*`")
	link      = regexp.MustCompile(`!?\[([^\]]*)\]\([^)]*\)`)
	rfcHeader = regexp.MustCompile(`^(Status|Date|Superseded by): `)
)

// parse splits a Markdown file. Fences, and lines indented by four spaces after a heading or an
// empty line, outside of a list, are code.
func parse(text string) document {
	var d document
	var current *block
	var fence, list, indented bool
	empty := true
	end := func() {
		if current != nil {
			current.text = plain(current.text)
			d.blocks = append(d.blocks, *current)
		}
		current = nil
	}
	for i, raw := range strings.Split(strings.TrimSuffix(text, "\n"), "\n") {
		l := line{number: i + 1, text: raw}
		trimmed := strings.TrimSpace(raw)
		switch {
		case strings.HasPrefix(trimmed, "```"):
			end()
			l.code, fence = true, !fence
		case fence:
			l.code = true
		case trimmed == "":
			end()
			empty = true
			d.lines = append(d.lines, l)
			continue
		case (empty || indented) && !list && (strings.HasPrefix(raw, "    ") || strings.HasPrefix(raw, "\t")):
			l.code, indented = true, true
			d.lines = append(d.lines, l)
			continue
		case strings.HasPrefix(trimmed, "|"):
			end()
			l.table = true
		case strings.HasPrefix(raw, "#"):
			end()
			list = false
			d.blocks = append(d.blocks, block{
				number: l.number, text: plain(strings.TrimLeft(raw, "# ")),
				heading: true,
			})
			empty = true
			d.lines = append(d.lines, l)
			continue
		case rfcHeader.MatchString(raw), strings.HasPrefix(trimmed, "<!--"):
			end()
		case listItem.MatchString(raw):
			end()
			list = true
			current = &block{number: l.number, text: listItem.ReplaceAllString(raw, "")}
		case current != nil:
			current.text += " " + trimmed
		default:
			list = list && strings.HasPrefix(raw, " ")
			current = &block{number: l.number, text: trimmed}
		}
		empty, indented = false, false
		d.lines = append(d.lines, l)
	}
	end()
	return d
}

func plain(text string) string {
	text = codeSpan.ReplaceAllString(text, "code")
	text = link.ReplaceAllString(text, "$1")
	return strings.NewReplacer("**", "", "*", "", "\\", "").Replace(text)
}

func cells(text string) []string {
	var out []string
	var code bool
	from := 0
	for i, r := range text {
		switch {
		case r == '`':
			code = !code
		case r == '|' && !code && (i == 0 || text[i-1] != '\\'):
			out = append(out, text[from:i])
			from = i + 1
		}
	}
	return append(out, text[from:])
}

// abbreviations end with a full stop that does not end a sentence.
var abbreviations = []string{"e.g.", "i.e.", "etc.", "vs.", "al.", "cf.", "approx.", "No.", "Fig."}

// sentences splits the text of a block. A sentence ends with a full stop, a question mark or an
// exclamation mark, and closing brackets or quotes, in front of a word that does not begin with a
// lower-case letter; and with its block. A colon or a semicolon ends none.
func sentences(text string) []string {
	var out []string
	words := strings.Fields(text)
	from := 0
	for i, w := range words {
		last := i == len(words)-1
		if !last && (!ends(w) || unicode.IsLower(first(words[i+1])) && !strings.HasPrefix(words[i+1], "code")) {
			continue
		}
		if s := strings.Join(words[from:i+1], " "); count(s) > 0 {
			out = append(out, s)
		}
		from = i + 1
	}
	return out
}

func ends(word string) bool {
	for _, a := range abbreviations {
		if strings.TrimLeft(word, `("`) == a {
			return false
		}
	}
	word = strings.TrimRight(word, `)"'”]`)
	return strings.HasSuffix(word, ".") || strings.HasSuffix(word, "?") || strings.HasSuffix(word, "!")
}

func first(word string) rune {
	for _, r := range word {
		if unicode.IsLetter(r) || unicode.IsDigit(r) {
			return r
		}
	}
	return '.'
}

// count returns the number of words: of the fields that have a letter or a digit.
func count(text string) int {
	n := 0
	for _, w := range strings.Fields(text) {
		if first(w) != '.' {
			n++
		}
	}
	return n
}
