package doclint

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// maxRate is the max number of phrases of the dialect in 1,000 sentences of the documents, of the
// comments of code, and of the comments of tests. It is the rate of the comments of pebble v1.1.5
// outside of tests, 27 in 17,114: download it with go mod download -json
// github.com/cockroachdb/pebble@v1.1.5, and
//
//	go test -C tools ./doclint -run TestDialectOfComments -v -args -root DIR
const maxRate = 1.6

// dialect are phrases that make a reader resolve a reference, where the noun repeated is plainer.
// Each is sometimes right, so they are counted and not banned.
var dialect = []*regexp.Regexp{
	regexp.MustCompile(`\b(that|those) of\b`),
	regexp.MustCompile(`\bthose that\b`),
	regexp.MustCompile(`\bof which\b`),
	regexp.MustCompile(`\bso many\b`),
	regexp.MustCompile(`\b(a|the|its|this|each|every) begin\b`),
	regexp.MustCompile(`\b(looks (at|for|into|through|whether)|meets|rests)\b`),
}

type usage struct {
	Sentences, Phrases int
}

func (u usage) rate() float64 { return 1000 * ratio(u.Phrases, u.Sentences) }

// add counts the sentences of a Markdown text. Headings, tables and code have none.
func (u *usage) add(text string) {
	for _, b := range parse(text).blocks {
		if b.heading {
			continue
		}
		u.Sentences += len(sentences(b.text))
		lower := strings.ToLower(b.text)
		for _, p := range dialect {
			u.Phrases += len(p.FindAllStringIndex(lower, -1))
		}
	}
}

// addGo counts the comments of a Go file. Generated files have none.
func (u *usage) addGo(name string) error {
	file, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil || ast.IsGenerated(file) {
		return err
	}
	for _, group := range file.Comments {
		u.add(group.Text())
	}
	return nil
}

// Comments of CUDA, C and JavaScript, and of Python: lines of their own, one below the other, or
// the end of a line. A text between three quotes is a comment of Python too.
var (
	slashes = regexp.MustCompile(`(?m)(?:^[ \t]*//.*\n?)+|[ \t]// .*$`)
	hashes  = regexp.MustCompile(`"""(?s:.*?)"""|(?m)(?:^[ \t]*#.*\n?)+|[ \t]# .*$`)
	marks   = regexp.MustCompile(`(?m)^[ \t]*(?://|#)?[ \t]?|"""`)
)

// comments matches the comments of a file by its extension.
var comments = map[string]*regexp.Regexp{
	".cu": slashes, ".cuh": slashes, ".c": slashes, ".h": slashes, ".js": slashes, ".py": hashes,
}

// addOther counts the comments of a file of one of these extensions.
func (u *usage) addOther(name string) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	for _, c := range comments[filepath.Ext(name)].FindAllString(string(text), -1) {
		u.add(marks.ReplaceAllString(c, ""))
	}
	return nil
}
