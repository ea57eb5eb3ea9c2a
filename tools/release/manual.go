package main

import (
	"bytes"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
)

// manualOf returns a manual page for each command of the programs in a folder, man/NAME-COMMAND.1,
// and completion for the shells, completion/NAME.SHELL. The programs print both: their protocol of
// completion lists the commands, and a page has the text of --help.
func manualOf(commands string) (all []file, err error) {
	for _, name := range commandNames {
		program := filepath.Join(commands, name)
		pages, err := pagesOf(program, name, nil, "")
		if err != nil {
			return nil, err
		}
		all = append(all, pages...)
		for _, shell := range []string{"bash", "zsh", "fish"} {
			text, err := exec.Command(program, "completion", shell).Output()
			if err != nil {
				return nil, fmt.Errorf("%s completion %s: %w", name, shell, err)
			}
			all = append(all, file{"completion/" + name + "." + shell, 0o644, text})
		}
	}
	return all, nil
}

// pagesOf returns the pages of a command and of the commands below it.
func pagesOf(program, name string, command []string, about string) ([]file, error) {
	help, err := exec.Command(program, append(append([]string{}, command...), "--help")...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s --help: %w", name, strings.Join(command, " "), err)
	}
	first, _, _ := strings.Cut(string(help), "\n")
	if about == "" {
		about = first
	}
	title := strings.Join(append([]string{name}, command...), "-")
	all := []file{{"man/" + title + ".1", 0o644, page(title, about, help)}}
	list, err := exec.Command(program, append(append([]string{"__complete"}, command...), "")...).Output()
	if err != nil {
		return nil, fmt.Errorf("%s __complete %s: %w", name, strings.Join(command, " "), err)
	}
	for line := range strings.Lines(string(list)) {
		// A value of an argument may be completed too: a command says so by its help.
		below, about, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "\t")
		if !ok || strings.HasPrefix(below, ":") || len(command) > 2 || !isCommand(help, below) {
			continue
		}
		more, err := pagesOf(program, name, append(append([]string{}, command...), below), about)
		if err != nil {
			return nil, err
		}
		all = append(all, more...)
	}
	return all, nil
}

// isCommand reports whether the help of a command lists a name as a command below it.
func isCommand(help []byte, name string) bool {
	for line := range bytes.Lines(help) {
		if f := bytes.Fields(line); len(f) > 1 && string(f[0]) == name && bytes.HasPrefix(line, []byte("  ")) {
			return true
		}
	}
	return false
}

// page returns a manual page with the help of a command as it is.
func page(title, about string, help []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, ".TH %s 1 \"\" exoswarm\n.SH NAME\n%s \\- %s\n.SH DESCRIPTION\n.nf\n",
		strings.ToUpper(title), title, roff(strings.TrimSuffix(about, ".")))
	for line := range strings.Lines(string(help)) {
		b.WriteString(roff(strings.TrimSuffix(line, "\n")))
		b.WriteByte('\n')
	}
	b.WriteString(".fi\n")
	return b.Bytes()
}

// roff escapes a line of text.
func roff(line string) string {
	line = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(line)
	if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
		line = `\&` + line
	}
	return line
}
