package auth

import (
	"fmt"
	"slices"
	"strings"
)

// maxOthers bounds the names of streams that a folded subject leaves out, so that it fits a line.
const maxOthers = 4

const markdownColumns = 118

const pageHead = `# Roles

The subjects of each role of [accounts](operations.md#accounts-and-roles). This page is generated:
` + "`go test ./jobs/natsq/auth -run TestDocument -update`. `FIXED` stands for any of the first streams, " +
	"`FIXED-{A,B}` " + `for
any of them but A and B, and a name such as ` + "`SET1`" + ` for any stream of that set:

`

// markdown returns docs/roles.md: the names of streams, and for each role a line and a block with
// its subjects. A test compares the page with the roles.
func markdown() string {
	var f roleText
	var roles strings.Builder
	for _, r := range Roles() {
		account := r.Account
		if account == tenantPrefix {
			account += "NAME"
		}
		text := fmt.Sprintf("**Role %s**, account `%s`.", r.Name, account)
		for _, does := range strings.Split(r.Does, "; ") {
			text += " " + strings.ToUpper(does[:1]) + does[1:] + "."
		}
		if r.Answers {
			text += fmt.Sprintf(" It may answer each request once, within %v.", answerWithin)
		}
		roles.WriteByte('\n')
		writeLines(&roles, "", strings.Fields(text))
		roles.WriteByte('\n')
		writeSubjects(&roles, "publish", f.folded(r.Publish))
		writeSubjects(&roles, "but not", f.folded(r.Deny))
		writeSubjects(&roles, "subscribe", f.folded(r.Subscribe))
	}
	var b strings.Builder
	b.WriteString(pageHead)
	writeSubjects(&b, "FIXED", fixed)
	for i, set := range f.sets {
		writeSubjects(&b, setName(i), set)
	}
	b.WriteString(roles.String())
	return strings.ReplaceAll(b.String(), "{{name()}}", "USER")
}

// writeSubjects writes an indented paragraph with a name and subjects. It writes nothing for no
// subjects.
func writeSubjects(b *strings.Builder, name string, subjects []string) {
	if len(subjects) > 0 {
		writeLines(b, fmt.Sprintf("    %-11s", name), subjects)
	}
}

// writeLines writes words in lines. Lines after the first are indented by the width of head.
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

// A roleText shortens lists of subjects. sets are the sets of streams that it has named, in the
// order of their first use.
type roleText struct{ sets [][]string }

// folded joins consecutive subjects that differ only in the name of a fixed stream. The result has
// FIXED in the place of the name, FIXED-{A,B} if only the names A and B are missing, or the name of
// a set.
func (f *roleText) folded(subjects []string) []string {
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
		for _, s := range fixed {
			if !slices.Contains(names, s) {
				others = append(others, s)
			}
		}
		switch {
		case len(names) > 0 && len(others) == 0:
			out = append(out, pattern)
		case len(names) > len(others) && len(others) <= maxOthers:
			out = append(out, strings.Replace(pattern, "FIXED", "FIXED-{"+strings.Join(others, ",")+"}", 1))
		case len(names) > 1:
			out = append(out, strings.Replace(pattern, "FIXED", f.set(names), 1))
		default:
			n = max(n, 1)
			out = append(out, subjects[:n]...)
		}
		subjects = subjects[n:]
	}
	return out
}

// set returns the name of a set of streams.
func (f *roleText) set(streams []string) string {
	i := slices.IndexFunc(f.sets, func(s []string) bool { return slices.Equal(s, streams) })
	if i < 0 {
		i = len(f.sets)
		f.sets = append(f.sets, streams)
	}
	return setName(i)
}

func setName(i int) string { return fmt.Sprintf("SET%d", i+1) }

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
