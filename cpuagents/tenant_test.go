package cpuagents

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/files"
	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/cpuagents/sink"
	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
	natsobjects "github.com/exoswarm/exoswarm/jobs/natsq/objects"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

const umbrellaSecret = "umbrella-api-key=hunter2"

// tenants is an agent that two tenants and jobs without one share.
type tenants struct {
	*Streamer
	conn *natsq.Conn
	js   jetstream.JetStream
	dirs map[string]string
}

func startTenants(t *testing.T) *tenants {
	t.Helper()
	s, err := server.Start(t.Context(), server.Options{Dir: t.TempDir()})
	if err != nil {
		t.Fatalf("server.Start: %v, want no error", err)
	}
	t.Cleanup(s.Close)
	conn, err := natsq.Connect(t.Context(), natsconn.Options{URL: s.URL()})
	if err != nil {
		t.Fatalf("natsq.Connect: %v, want no error", err)
	}
	t.Cleanup(conn.Close)
	js := jobstest.Raw(t, natsconn.Options{InProcess: s}).JS
	a := &tenants{conn: conn, js: js, dirs: map[string]string{}}
	var flags []string
	for _, name := range []string{"none", "acme", "umbrella", "all"} {
		dir := t.TempDir()
		a.dirs[name] = dir
		switch name {
		case "none":
			flags = append(flags, "data="+dir)
		case "all":
			flags = append(flags, "tenant=*,name=common,path="+dir)
		default:
			flags = append(flags, "tenant="+name+",name=data,path="+dir)
		}
		for file, text := range map[string]string{"m.json": umbrellaSecret, "f.csv": "t,v\n1,2\n"} {
			if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
				t.Fatalf("os.WriteFile: %v, want no error", err)
			}
		}
	}
	roots, err := files.ParseRoots(append(flags, "tenant=umbrella,name=private,path="+a.dirs["umbrella"]))
	if err != nil {
		t.Fatalf("files.ParseRoots: %v, want no error", err)
	}
	files, err := files.New(files.Options{Roots: roots, Objects: conn.Objects, Scratch: t.TempDir()})
	if err != nil {
		t.Fatalf("files.New: %v, want no error", err)
	}
	t.Cleanup(func() { _ = files.Close() })
	guard, err := access.NewGuard([]string{
		"tenant=umbrella,host=umbrella.example", "tenant=acme,host=acme.example",
		"plain.example", "tenant=*,host=common.example",
	})
	if err != nil {
		t.Fatalf("egress.New: %v, want no error", err)
	}
	secrets, err := access.OpenSecrets("")
	if err != nil {
		t.Fatalf("secret.Open: %v, want no error", err)
	}
	streams, err := ParseStreams([]string{"tenant=umbrella,name=plant"})
	if err != nil {
		t.Fatalf("ParseStreams: %v, want no error", err)
	}
	a.Streamer, err = New(Options{
		Queue: conn.StreamJobs(), Files: files, Logger: jobstest.Quiet, Egress: guard,
		Secrets: secrets, Streams: streams,
	})
	if err != nil {
		t.Fatalf("New: %v, want no error", err)
	}
	return a
}

func tenantJob(tenant, id string) jobs.Job {
	return jobs.Job{
		Version: jobs.Version, ID: id, Tenant: tenant, Pool: jobs.PoolCPU, Kind: KindStream,
		Submitted: time.Now().UTC(),
	}
}

// manifestError runs a stream job with a manifest and returns why it fails.
func (a *tenants) manifestError(t *testing.T, tenant, manifest string) string {
	t.Helper()
	j := tenantJob(tenant, natsconn.NewID())
	var err error
	if j.Spec, err = json.Marshal(StreamSpec{
		Name: "n", Candidates: []string{"a", "b"},
		Columns: rows.ColumnSpec{Timestamp: "t", Features: []string{"v"}}, Manifest: manifest, Output: "object:o",
		Rejects: "object:r", Summary: "object:s",
	}); err != nil {
		t.Fatalf("json.Marshal: %v, want no error", err)
	}
	if _, err = a.Handle(t.Context(), j, func(any) {}); err == nil {
		t.Fatalf("%s runs %s", tenant, manifest)
	}
	return err.Error()
}

// TestTenantsFiles: a tenant opens its own folders and the folders for all, and no other; nor
// objects of others, specs of jobs among them.
func TestTenantsFiles(t *testing.T) {
	a := startTenants(t)
	for _, c := range []struct {
		tenant, uri string
		opens       bool
	}{
		{"umbrella", "file:data/m.json", true},
		{"umbrella", "file:private/m.json", true},
		{"umbrella", "file:common/m.json", true},
		{"acme", "file:data/m.json", true},
		{"acme", "file:private/m.json", false},
		{"acme", "file:common/m.json", true},
		{"acme", "file:umbrella/m.json", false},
		{"other", "file:data/m.json", false},
		{"other", "file:private/m.json", false},
		{jobs.DefaultTenant, "file:data/m.json", true},
		{"", "file:data/m.json", true},
		{jobs.DefaultTenant, "file:private/m.json", false},
	} {
		f, err := a.of(tenantJob(c.tenant, "j")).Files.Open(t.Context(), c.uri)
		if (err == nil) != c.opens {
			t.Errorf("%s opens %s: %v", c.tenant, c.uri, err)
		}
		if err == nil {
			_ = f.Close()
		}
	}
	if got := a.manifestError(t, "acme", "file:private/m.json"); strings.Contains(got, "hunter2") ||
		!strings.Contains(got, "--root tenant=acme,name=private") {
		t.Errorf("the error is %q, want one with the flag to set and without the secret", got)
	}
	// What a tenant writes under one name is its own.
	for _, tenant := range []string{"acme", "umbrella", ""} {
		o, err := a.of(tenantJob(tenant, "j")).Files.Create(t.Context(), "file:data/out.txt")
		if err != nil {
			t.Fatalf("Files.Create: %v, want no error", err)
		}
		_, _ = io.WriteString(o, tenant)
		if err := o.Commit(); err != nil {
			t.Fatalf("o.Commit: %v, want no error", err)
		}
	}
	for tenant, dir := range map[string]string{"acme": "acme", "umbrella": "umbrella", "": "none"} {
		if data, err := os.ReadFile(filepath.Join(a.dirs[dir], "out.txt")); err != nil || string(data) != tenant {
			t.Errorf("out.txt of %s has %q, %v, want %q", dir, data, err, tenant)
		}
	}
	// The spec of a job is an object, and its name can be foretold.
	large := tenantJob("umbrella", "umbrella--large")
	large.Spec = []byte(`"` + umbrellaSecret + strings.Repeat("x", jobs.MaxInline) + `"`)
	if err := a.conn.Queue.Submit(t.Context(), large); err != nil {
		t.Fatalf("Queue.Submit: %v, want no error", err)
	}
	var names []string
	if err := a.conn.Objects.Objects(t.Context(), func(o natsobjects.Object) bool {
		names = append(names, o.Name)
		return true
	}); err != nil || len(names) != 1 {
		t.Fatalf("objects: %v, %v, want one", names, err)
	}
	if _, err := a.conn.Objects.PutObject(t.Context(), "m", jobs.Owner{Tenant: "umbrella", Job: "umbrella--large"},
		strings.NewReader(umbrellaSecret)); err != nil {
		t.Fatalf("Objects.PutObject: %v, want no error", err)
	}
	for _, name := range []string{names[0], "m", "umbrella/m", "../umbrella/m", "/umbrella/m"} {
		for _, tenant := range []string{"acme", "other"} {
			if got := a.manifestError(t, tenant, "object:"+name); strings.Contains(got, "hunter2") ||
				!strings.Contains(got, "no such object") {
				t.Errorf("%s reads %s: %s", tenant, name, got)
			}
		}
	}
	if got := a.manifestError(t, "umbrella", "object:m"); !strings.Contains(got, "manifest") {
		t.Errorf("the error is %q, want one about the manifest", got)
	}
}

// TestTenantsSecretsAndHosts: secrets and hosts are the tenant's own, and a bound secret goes to
// its host alone.
func TestTenantsSecretsAndHosts(t *testing.T) {
	a := startTenants(t)
	t.Setenv("EXOSWARM_SECRET_KEY", "none")
	t.Setenv("EXOSWARM_SECRET_acme__KEY", "of acme")
	t.Setenv("EXOSWARM_SECRET_umbrella__KEY", umbrellaSecret)
	t.Setenv("EXOSWARM_SECRET_umbrella__ONLY", umbrellaSecret)
	t.Setenv("EXOSWARM_SECRET_a__b__KEY", umbrellaSecret)
	for tenant, want := range map[string]string{
		"": "none", jobs.DefaultTenant: "none", "acme": "of acme",
		"umbrella": umbrellaSecret, "other": "", "a__b": "",
	} {
		v, err := a.of(tenantJob(tenant, "j")).Secrets.Get("env:KEY")
		if v.Reveal() != want || (err == nil) != (want != "") {
			t.Errorf("%q has %q, %v", tenant, v.Reveal(), err)
		}
	}
	for _, ref := range []string{"env:umbrella__KEY", "env:UMBRELLA", "file:../umbrella/KEY", "file:umbrella/KEY"} {
		if v, err := a.of(tenantJob("acme", "j")).Secrets.Get(ref); err == nil {
			t.Errorf("%s gives the secret %q, want an error", ref, v.Reveal())
		}
	}
	dir := t.TempDir()
	for file, text := range map[string]string{"KEY": "none", "acme/KEY": "of acme", "umbrella/KEY": umbrellaSecret} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, file)), 0o700); err != nil {
			t.Fatalf("os.MkdirAll: %v, want no error", err)
		}
		if err := os.WriteFile(filepath.Join(dir, file), []byte(text), 0o600); err != nil {
			t.Fatalf("os.WriteFile: %v, want no error", err)
		}
	}
	kept, err := access.OpenSecrets(dir)
	if err != nil {
		t.Fatalf("secret.Open: %v, want no error", err)
	}
	defer kept.Close()
	for tenant, want := range map[string]string{
		"": "none", "acme": "of acme", "umbrella": umbrellaSecret,
		"other": "",
	} {
		if v, err := kept.For(tenant).Get("file:KEY"); v.Reveal() != want {
			t.Errorf("%q has %q, %v", tenant, v.Reveal(), err)
		}
	}
	if err := a.Secrets.Bind([]string{"tenant=umbrella,name=ONLY,host=api.umbrella.example", "tenant=umbrella," +
		"name=ONLY,host=*.umbrella.test"}); err != nil {
		t.Fatalf("Secrets.Bind: %v, want no error", err)
	}
	mine := a.of(tenantJob("umbrella", "j")).Secrets
	for host, want := range map[string]bool{
		"api.umbrella.example": true, "API.umbrella.example.": true,
		"x.umbrella.test": true, "umbrella.test": false, "common.example": false, "": false,
	} {
		if _, err := mine.At(host).Get("env:ONLY"); (err == nil) != want || err != nil &&
			!errors.Is(err, access.ErrSecretHost) {
			t.Errorf("to %q: %v", host, err)
		}
	}
	for tenant, hosts := range map[string]string{
		"": "plain common", "acme": "acme common",
		"umbrella": "umbrella common", "other": "common",
	} {
		for _, h := range []string{"plain", "acme", "umbrella", "common"} {
			_, err := a.of(tenantJob(tenant, "j")).sourceResources().Check(t.Context(), "j", 0,
				source.Series{Name: "n", URI: "https://" + h + ".example/x"}, rows.ColumnSpec{})
			if (err == nil) != strings.Contains(hosts, h) {
				t.Errorf("%q reaches %s: %v", tenant, h, err)
			}
		}
	}
}

// TestTenantsStreams: a tenant reads and writes the streams that are bound to it and pushes of its
// own, and no consumer is touched that it has not made.
func TestTenantsStreams(t *testing.T) {
	a := startTenants(t)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	stream, err := a.js.CreateStream(ctx, jetstream.StreamConfig{Name: "plant", Subjects: []string{"plant.>"}})
	if err != nil {
		t.Fatalf("js.CreateStream: %v, want no error", err)
	}
	for _, c := range []string{"others", "exoswarm-x"} {
		if _, err := stream.CreateConsumer(ctx, jetstream.ConsumerConfig{
			Durable: c, FilterSubject: "plant.a",
			AckPolicy: jetstream.AckExplicitPolicy,
		}); err != nil {
			t.Fatalf("stream.CreateConsumer: %v, want no error", err)
		}
	}
	for range 3 {
		if _, err := a.js.Publish(ctx, "plant.a", []byte(`{"t":1}`)); err != nil {
			t.Fatalf("js.Publish: %v, want no error", err)
		}
	}
	read := func(tenant, consumer string) error {
		id := "job-of-" + tenant
		from := a.of(tenantJob(tenant, id)).sourceResources()
		src := source.Series{
			Name: "n", URI: "nats:plant/plant.a",
			NATS: &source.SubjectSpec{Messages: 1, BatchMessages: 1, Consumer: consumer},
		}
		columns := rows.ColumnSpec{Timestamp: "t"}
		remove, err := from.Check(ctx, id, 0, src, columns)
		if err != nil {
			return err
		}
		r, err := from.OpenRemote(ctx, a.conn.Swarms.Log(id+"-"+consumer, 1, swarms.In), id, 0, src, columns)
		if err != nil {
			return err
		}
		defer r.Close()
		_, _, err = r.Next()
		return errors.Join(err, remove(ctx))
	}
	for tenant, want := range map[string]bool{"": true, "umbrella": true, "acme": false} {
		if err := read(tenant, ""); (err == nil) != want {
			t.Errorf("%q reads the stream: %v", tenant, err)
		}
	}
	if err := read("umbrella", "mine"); err != nil {
		t.Errorf("read: %v, want no error", err)
	}
	for tenant, consumer := range map[string]string{
		"": "mine", "umbrella": "others",
		jobs.DefaultTenant: "exoswarm-x",
	} {
		if err := read(tenant, consumer); err == nil || !strings.Contains(err.Error(), "was not made for this job "+
			"or its tenant") {
			t.Errorf("%q takes consumer %s: %v", tenant, consumer, err)
		}
	}
	if err := a.conn.Streams.Unsubscribe(ctx, "plant", "others"); err != nil {
		t.Errorf("Streams.Unsubscribe: %v, want no error", err)
	}
	if err := a.conn.Streams.Unsubscribe(ctx, "plant", "mine"); err != nil {
		t.Errorf("Streams.Unsubscribe: %v, want no error", err)
	}
	var left []string
	names := stream.ConsumerNames(ctx)
	for n := range names.Name() {
		left = append(left, n)
	}
	if got := strings.Join(left, " "); !strings.Contains(got, "others") || !strings.Contains(got, "mine") ||
		!strings.Contains(got, "exoswarm-x") || len(left) != 3 {
		t.Errorf("left: %s", got)
	}
	for tenant, want := range map[string]bool{"": true, "umbrella": true, "acme": false} {
		_, err := a.of(tenantJob(tenant, "j")).sinkResources().New("j", 0, sink.Spec{URI: "nats:plant/plant.b"},
			rows.Layout{Candidates: []string{"a", "b"}, Features: []string{"v"}})
		if (err == nil) != want {
			t.Errorf("%q publishes: %v", tenant, err)
		}
	}
}
