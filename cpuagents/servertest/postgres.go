package servertest

import (
	"bytes"
	"context"
	"database/sql"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/cpuagents/remote"
	_ "github.com/exoswarm/exoswarm/cpuagents/remote/drivers" // postgres://
)

// StartPostgres starts a PostgreSQL server on loopback, with a user "postgres" whose password is
// the secret env:PG, and returns the URI of its database. The test is skipped if this machine has
// no PostgreSQL.
func StartPostgres(t *testing.T) (uri string) {
	t.Helper()
	initdb, err := exec.LookPath("initdb")
	if err != nil {
		t.Skip("no PostgreSQL server is installed: initdb is not in PATH")
	}
	program, err := exec.LookPath("postgres")
	if err != nil {
		t.Skip("no PostgreSQL server is installed: postgres is not in PATH")
	}
	t.Setenv(access.Prefix+"PG", "hunter2")
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // it is this user's alone
		t.Fatalf("open the folder to the user of the server: %v", err)
	}
	pass, data := filepath.Join(dir, "pass"), filepath.Join(dir, "data")
	if err := os.WriteFile(pass, []byte("hunter2"), 0o644); err != nil {
		t.Fatalf("write the password: %v", err)
	}
	var as *syscall.SysProcAttr
	if os.Getuid() == 0 { // it refuses to be root
		const nobody = 65534
		as = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
		for _, name := range []string{dir, pass} {
			if err := os.Chown(name, nobody, nobody); err != nil {
				t.Skip("PostgreSQL cannot be run as root, nor under another user: ", err)
			}
		}
	}
	prepare := exec.CommandContext(
		t.Context(), initdb, "-D", data, "-U", "postgres", "-A", "scram-sha-256", "--pwfile", pass, "-E", "UTF8",
		"--no-locale", "-N",
	)
	prepare.SysProcAttr, prepare.Dir = as, dir
	if out, err := prepare.CombinedOutput(); err != nil {
		t.Fatalf("initdb: %v\n%s", err, out)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	for try := 1; ; try++ { // another may take the port meanwhile
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatalf("find a free port: %v", err)
		}
		port := l.Addr().(*net.TCPAddr).Port
		_ = l.Close()
		var said bytes.Buffer
		run := exec.Command(
			program, "-D", data, "-c", "listen_addresses=127.0.0.1", "-c", fmt.Sprint("port=", port), "-c",
			"unix_socket_directories=", "-c", "fsync=off",
		)
		run.SysProcAttr, run.Dir, run.Stderr = as, dir, &said
		if err := run.Start(); err != nil {
			t.Fatalf("start PostgreSQL: %v", err)
		}
		ended := waitFor(run)
		uri = fmt.Sprintf("postgres://postgres@127.0.0.1:%d/postgres", port)
		if answersPostgres(ctx, t, uri, ended) {
			t.Cleanup(func() {
				_ = run.Process.Signal(syscall.SIGQUIT)
				<-ended
			})
			return uri
		}
		if _ = run.Process.Kill(); ctx.Err() != nil || try == 5 {
			<-ended
			t.Fatalf("PostgreSQL does not start: %s", said.String())
		}
		<-ended
	}
}

// ending returns what is closed when a process has ended.
func waitFor(run *exec.Cmd) chan struct{} {
	ended := make(chan struct{})
	go func() { defer close(ended); _ = run.Wait() }()
	return ended
}

// answers waits until a database answers; false when its process has ended instead.
func answersPostgres(ctx context.Context, t *testing.T, uri string, ended chan struct{}) bool {
	t.Helper()
	db := OpenPostgres(t, uri)
	defer db.Close()
	for {
		if err := db.PingContext(ctx); err == nil {
			return true
		} else if ctx.Err() != nil || strings.Contains(err.Error(), "password") {
			t.Log(err)
			return false
		}
		select {
		case <-ended:
			return false
		case <-ctx.Done():
			return false
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// OpenPostgres returns the database at uri for writing, opened as sources and sinks open it.
func OpenPostgres(t *testing.T, uri string) *sql.DB {
	t.Helper()
	driver, err := remote.DatabaseDriver("postgres")
	if err != nil {
		t.Fatal(err)
	}
	db, err := driver.Open(remote.DatabaseAddress{
		URI: uri, Write: true, Password: "env:PG", TLS: "disable", Egress: fixture.Loopback(t),
	})
	if err != nil {
		t.Fatalf("open %s: %v", uri, err)
	}
	return db
}
