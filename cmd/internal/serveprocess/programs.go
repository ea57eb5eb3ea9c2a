package serveprocess

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/programs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
)

func programFlags(f *pflag.FlagSet) {
	f.Bool("programs", false, "let programs create and feed swarms and take jobs over HTTP, such as programs with "+
		"the Python package exoswarm")
	f.String(
		"program-token-file",
		"",
		"file with the token of programs, of 20 characters or more; empty: program.token "+
			"in the data folder, which is made",
	)
}

// programToken returns the token of programs, and the file in which it is. It makes the file of the
// data folder, which its owner alone can read.
func programToken(cmd *cobra.Command, dir string) (token, file string, err error) {
	file, _ = cmd.Flags().GetString("program-token-file")
	made := file == ""
	if made {
		file = filepath.Join(dir, command.ProgramToken)
	}
	text, err := os.ReadFile(file)
	if made && errors.Is(err, fs.ErrNotExist) {
		text = []byte(rand.Text() + "\n")
		err = os.WriteFile(file, text, 0o600)
	}
	if err != nil {
		return "", "", command.Usage("--program-token-file: %v", err)
	}
	if token = strings.TrimSpace(string(text)); token == "" {
		return "", "", command.Usage("--program-token-file: %s is empty: write a token of 20 characters or more", file)
	}
	return token, file, nil
}

// servePrograms lets the dashboard serve programs. The caller closes the result after the last
// request.
func (l *listener) servePrograms(cmd *cobra.Command, c *natsq.Conn, dir string, snapshots snapshot.Store) (
	*programs.Server, error,
) {
	s, err := programs.New(programs.Options{Conn: c, Snapshots: snapshots, Log: l.options.Log})
	if err != nil {
		return nil, err
	}
	l.options.Programs = s
	if err := l.admitPrograms(cmd, dir, "programs", "EXOSWARM_API", ""); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// admitPrograms lets programs log in by their token, and tells the variables that they read: one
// has the address, with a path behind it.
func (l *listener) admitPrograms(cmd *cobra.Command, dir, what, variable, path string) error {
	token, file, err := programToken(cmd, dir)
	if err != nil {
		return err
	}
	l.options.ProgramToken = token
	scheme := "http"
	if l.options.TLS != nil {
		scheme = "https"
	}
	l.tell(fmt.Sprintf("%s: %s=%s://%s%s%s EXOSWARM_TOKEN_FILE=%s", what, variable, scheme, l.options.Listen,
		strings.TrimRight(l.options.Prefix, "/"), path, file))
	return nil
}
