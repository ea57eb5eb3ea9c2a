package kernels

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// ErrStep is a step of a custom cell that is refused before any compiler sees it.
var ErrStep = errors.New("invalid step")

// banned are words that have no place in a step, and why.
var banned = map[string]string{
	"asm": "assembly", "__asm": "assembly", "__asm__": "assembly",
	"__global__": "a kernel of its own", "__host__": "a function of the host",
	"__shared__": "memory that agents share", "__constant__": "memory that agents share",
	"__managed__":       "memory that agents share",
	"__grid_constant__": "a kernel of its own", "extern": "what stands elsewhere",
	"static":       "memory that outlives the step",
	"thread_local": "memory that outlives the step",
	"new":          "the heap", "delete": "the heap", "malloc": "the heap", "free": "the heap", "alloca": "the heap",
	"operator": "an operator of its own",
	"__trap":   "an end of the kernel", "__brkpt": "an end of the kernel", "__nanosleep": "a pause",
}

// bannedPrefixes are prefixes of words that wait for other agents, which never come, and of the
// frame's own names.
var bannedPrefixes = map[string]string{
	"__sync": "a wait for other agents", "__shfl": "an exchange with other agents",
	"__reduce": "an exchange with other agents", "__match": "an exchange with other agents",
	"__ballot": "an exchange with other agents", "__any": "an exchange with other agents",
	"__all": "an exchange with other agents", "__barrier": "a wait for other agents",
	"exoswarm": "a name of the frame", "__nvvm": "an instruction of the chip", "__nv_": "an instruction of the chip",
	"__builtin": "an instruction of the compiler",
}

var (
	// A number comes before a word, so that the e of 1e5 is none.
	stepToken = regexp.MustCompile(`\.?[0-9](?:[eEpP][+-]|[A-Za-z0-9_.])*|[A-Za-z_][A-Za-z0-9_]*`)
	stepHead  = regexp.MustCompile(`\bBallot\s+step\s*\(\s*Agent\s*&\s*\w*\s*,\s*const\s+Params\s*&\s*\w*\s*,` +
		`\s*const\s+Observation\s*&\s*\w*\s*\)\s*\{`)
	digraph = regexp.MustCompile(`<%|%>|<:|:>|%:|\?\?`)
)

// CheckStep returns the step with its comments made spaces, line for line and byte for byte, and
// refuses what could leave the place that it is put in: text whose braces this function and a
// compiler could see differently (macros, strings, spliced lines, digraphs), and braces that close
// more than they open. What it also refuses, the words of banned, spares users mistakes and is no
// protection: compiled code does what it likes. The step has a function whose head matches head,
// and which is written as signature.
func CheckStep(text, signature string, head *regexp.Regexp) (string, error) {
	bad := func(at int, format string, args ...any) (string, error) {
		return "", fmt.Errorf("%w: line %d: %s", ErrStep, 1+strings.Count(text[:at], "\n"),
			fmt.Sprintf(format, args...))
	}
	if len(text) > MaxStepBytes {
		return "", fmt.Errorf("%w: %d bytes, at most %d", ErrStep, len(text), MaxStepBytes)
	}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	if !utf8.ValidString(text) {
		return "", fmt.Errorf("%w: it is no UTF-8", ErrStep)
	}
	code, at, err := blankComments(text)
	if err != "" {
		return bad(at, "%s", err)
	}
	var open []int // where the brackets that are not closed yet stand
	for i := 0; i < len(code); i++ {
		switch c := code[i]; {
		case c == '#':
			return bad(i, "#: a step has no directives: write constexpr for #define, and put what it needs into the "+
				"step")
		case c == '"' || c == '\'':
			return bad(i, "%c: a step has no strings and characters, nor ' inside of numbers", c)
		case c == '\\' || c == '@' || c == '$' || c == '`' || c >= 0x7f || c < ' ' && c != '\n' && c != '\t':
			r, _ := utf8.DecodeRuneInString(code[i:])
			return bad(i, "%q stands outside of a comment", r)
		case strings.IndexByte("({[", c) >= 0:
			open = append(open, i)
		case strings.IndexByte(")}]", c) >= 0:
			if len(open) == 0 {
				return bad(i, "%c closes nothing", c)
			}
			first := code[open[len(open)-1]]
			if strings.IndexByte("({[", first) != strings.IndexByte(")}]", c) {
				return bad(i, "%c closes the %c of line %d", c, first, 1+strings.Count(code[:open[len(open)-1]], "\n"))
			}
			open = open[:len(open)-1]
		}
	}
	if len(open) > 0 {
		return bad(open[0], "%c is never closed", code[open[0]])
	}
	if m := digraph.FindStringIndex(code); m != nil {
		return bad(m[0], "%s means something else in old C: put a space between", code[m[0]:m[1]])
	}
	for _, m := range stepToken.FindAllStringIndex(code, -1) {
		if word := code[m[0]:m[1]]; whyBanned(word) != "" {
			return bad(m[0], "%s: a step does without %s", word, whyBanned(word))
		}
	}
	if !head.MatchString(code) {
		return "", fmt.Errorf("%w: it has no %s { ... }", ErrStep, signature)
	}
	return code, nil
}

// whyBanned returns the reason why a step may not use a word; empty: it may.
func whyBanned(word string) string {
	for prefix, reason := range bannedPrefixes {
		if strings.HasPrefix(word, prefix) {
			return reason
		}
	}
	return banned[word]
}

// blankComments makes every byte of a comment a space, but for the ends of lines. problem is empty,
// or what is wrong at the byte at.
func blankComments(text string) (code string, at int, problem string) {
	out := slices.Clone([]byte(text))
	for i := 0; i < len(text); {
		if text[i] != '/' || i+1 == len(text) || text[i+1] != '/' && text[i+1] != '*' {
			i++
			continue
		}
		end := strings.IndexByte(text[i:], '\n')
		if text[i+1] == '*' {
			if end = strings.Index(text[i+2:], "*/"); end < 0 {
				return "", i, "/* is never closed"
			}
			end += 4
		}
		if end < 0 {
			end = len(text) - i
		}
		for j := i; j < i+end; j++ {
			if text[j] != '\n' {
				out[j] = ' '
			}
		}
		i += end
	}
	return string(out), 0, ""
}
