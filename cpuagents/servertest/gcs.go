// Package servertest starts servers for tests: fakes of object stores in this process, and
// PostgreSQL and mosquitto as processes.
package servertest

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/exoswarm/exoswarm/cpuagents/access"
	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
)

// GCS is a server of Google's storage protocol in this process, which knows one service account.
type GCS struct {
	*fakestorage.Server
	http *httptest.Server
	URL  string

	Mu     sync.Mutex
	Tokens int // that were asked for
	bad    []string
	Busy   int // answers 503 to this number of requests
}

const googleToken = "a-token-of-the-account"

// NewGCS starts the store with an empty bucket, and sets the account's key as the secret
// env:ACCOUNT.
func NewGCS(t *testing.T) *GCS {
	t.Helper()
	g := &GCS{}
	// The store's own handler, with a look at who asks before it.
	var handler http.Handler
	g.http = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		g.Mu.Lock()
		if r.URL.Path == "/token" {
			g.Tokens++
			g.Mu.Unlock()
			w.Header().Set("Content-Type", "application/json")
			_, _ = w.Write([]byte(`{"access_token":"` + googleToken + `","token_type":"Bearer","expires_in":3600}`))
			return
		}
		if a := r.Header.Get("Authorization"); a != "Bearer "+googleToken {
			g.bad = append(g.bad, r.Method+" "+r.URL.Path+" with authorization "+a)
		}
		if g.Busy > 0 {
			g.Busy--
			g.Mu.Unlock()
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		g.Mu.Unlock()
		if want := r.URL.Query().Get("ifGenerationMatch"); want != "" && r.Method == http.MethodGet &&
			!g.stands(r.URL.Path, want) {
			w.WriteHeader(http.StatusPreconditionFailed)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	t.Cleanup(g.http.Close)
	g.URL = g.http.URL
	s, err := fakestorage.NewServerWithOptions(
		fakestorage.Options{NoListener: true, ExternalURL: g.URL, PublicHost: strings.TrimPrefix(g.URL, "http://")},
	)
	if err != nil {
		t.Fatalf("start the object store: %v", err)
	}
	t.Cleanup(s.Stop)
	g.Server, handler = s, s.HTTPHandler()
	s.CreateBucketWithOpts(fakestorage.CreateBucketOpts{Name: "bucket"})
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		t.Fatalf("make a key: %v", err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		t.Fatalf("encode the key: %v", err)
	}
	account, err := json.Marshal(map[string]string{
		"type": "service_account", "client_email": "agent@example.com", "private_key_id": "1",
		"token_uri":   g.URL + "/token",
		"private_key": string(pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der})),
	})
	if err != nil {
		t.Fatalf("encode the credentials: %v", err)
	}
	t.Setenv(access.Prefix+"ACCOUNT", string(account))
	t.Setenv("GOOGLE_APPLICATION_CREDENTIALS", "/the/agent's/own")
	return g
}

// stands reports whether an object still has a generation. The fake store itself does not check it
// when it is read.
func (g *GCS) stands(path, generation string) bool {
	o, err := g.GetObject("bucket", strings.TrimPrefix(path, "/storage/v1/b/bucket/o/"))
	return err == nil && strconv.FormatInt(o.Generation, 10) == generation
}

// Put writes an object with the rows from to to.
func (g *GCS) Put(key string, from, to int) {
	var b strings.Builder
	fixture.Page(&b, from, to)
	g.CreateObject(
		fakestorage.Object{
			ObjectAttrs: fakestorage.ObjectAttrs{BucketName: "bucket", Name: key},
			Content:     []byte(b.String()),
		},
	)
}

// Check fails the test for each request that was not as it must be.
func (g *GCS) Check(t *testing.T) {
	t.Helper()
	g.Mu.Lock()
	defer g.Mu.Unlock()
	for _, b := range g.bad {
		t.Errorf("a request that the store refuses: %s", b)
	}
}
