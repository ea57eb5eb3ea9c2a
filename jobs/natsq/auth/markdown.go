package auth

import (
	"fmt"
	"slices"
	"strings"
)

// maxOthers bounds the names of streams that a folded subject leaves out, so that it fits a line.
const maxOthers = 4

// markdownColumns bounds a line of Markdown.
const markdownColumns = 118

// Markdown returns the roles as a section of docs/operations.md: a line for each role, and a block
// with its subjects. A test compares the section with the file, so the document cannot differ from
// the roles.
func Markdown() string {
	var b strings.Builder
	b.WriteString("`FIXED` stands for any of these streams, and `FIXED-{A,B}` for any but A and B:\n\n")
	writeSubjects(&b, "streams", fixed)
	for _, r := range Roles() {
		account := r.Account
		if account == tenantPrefix {
			account += "NAME"
		}
		text := fmt.Sprintf("**Role %s**, account `%s`, %s.", r.Name, account, r.Does)
		if r.Answers {
			text += fmt.Sprintf(" It may answer each request once, within %v.", answerWithin)
		}
		b.WriteByte('\n')
		writeLines(&b, "", strings.Fields(text))
		b.WriteByte('\n')
		writeSubjects(&b, "publish", folded(r.Publish))
		writeSubjects(&b, "but not", folded(r.Deny))
		writeSubjects(&b, "subscribe", folded(r.Subscribe))
	}
	return strings.ReplaceAll(b.String(), "{{name()}}", "USER")
}

// writeSubjects writes an indented paragraph with a name and subjects. It writes nothing for no
// subjects.
func writeSubjects(b *strings.Builder, name string, subjects []string) {
	if len(subjects) > 0 {
		writeLines(b, fmt.Sprintf("    %-11s", name), subjects)
	}
}

// writeLines writes words in lines. Those after the first are indented by the width of head.
func writeLines(b *strings.Builder, head string, words []string) {
	line := head + words[0]
	for _, w := range words[1:] {
		if len(line)+1+len(w) > markdownColumns {
			b.WriteString(line + "\n")
			line = strings.Repeat(" ", len(head)) + w
			continue
		}
		line += " " + w
	}
	b.WriteString(line + "\n")
}

// folded joins consecutive subjects that differ only in the name of a fixed stream, if that is
// shorter. The result has FIXED in the place of the name, or FIXED-{A,B} if the names A and B are
// missing.
func folded(subjects []string) []string {
	var out []string
	for len(subjects) > 0 {
		pattern, _ := patternOf(subjects[0])
		var names []string
		n := 0
		for ; n < len(subjects); n++ {
			p, name := patternOf(subjects[n])
			if p != pattern || name == "" {
				break
			}
			names = append(names, name)
		}
		var others []string
		for _, f := range fixed {
			if !slices.Contains(names, f) {
				others = append(others, f)
			}
		}
		switch {
		case len(names) > 0 && len(others) == 0:
			out = append(out, pattern)
		case len(names) > len(others) && len(others) <= maxOthers:
			out = append(out, strings.Replace(pattern, "FIXED", "FIXED-{"+strings.Join(others, ",")+"}", 1))
		default:
			n = max(n, 1)
			out = append(out, subjects[:n]...)
		}
		subjects = subjects[n:]
	}
	return out
}

// patternOf replaces the token of a subject that names a fixed stream by FIXED, and returns the
// name, or "" if there is none.
func patternOf(subject string) (pattern, name string) {
	tokens := strings.Split(subject, ".")
	for i, t := range tokens {
		if slices.Contains(fixed, t) {
			tokens[i] = "FIXED"
			return strings.Join(tokens, "."), t
		}
	}
	return subject, ""
}
