package servertest

import (
	"crypto/sha256"
	"encoding/xml"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
)

// S3 is a server of the part of the S3 protocol that agents use.
type S3 struct {
	Mu      sync.Mutex
	Objects map[string]string                            // by key
	keys    []string                                     // in the order in which they are listed
	Busy    int                                          // answers 503 to this number of requests
	Bad     []string                                     // requests that were not as they must be
	List    func(w http.ResponseWriter) bool             // answers a list instead
	Get     func(w http.ResponseWriter, key string) bool // answers a get instead
	Gets    int
	Types   []string // of what was put
}

// ServeHTTP implements http.Handler.
func (s *S3) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.Mu.Lock()
	defer s.Mu.Unlock()
	auth := r.Header.Get("Authorization")
	if !strings.HasPrefix(auth, "AWS4-HMAC-SHA256 Credential=AKID/") ||
		!strings.Contains(auth, "/eu-west-1/s3/aws4_request") ||
		strings.Contains(fmt.Sprint(r.Header, r.URL), "hunter2") {
		s.Bad = append(s.Bad, "authorization "+auth)
	}
	if r.Header.Get("X-Amz-Security-Token") != "TOKEN" {
		s.Bad = append(s.Bad, "no session token")
	}
	if s.Busy > 0 {
		s.Busy--
		w.WriteHeader(http.StatusServiceUnavailable)
		return
	}
	key, _ := strings.CutPrefix(r.URL.Path, "/bucket/")
	if key == "" || r.URL.Path == "/bucket" {
		if s.List == nil || !s.List(w) {
			s.page(w, r)
		}
		return
	}
	s.Gets++
	if s.Get != nil && s.Get(w, key) {
		return
	}
	text, ok := s.Objects[key]
	switch {
	case r.Method == http.MethodPut:
		body, err := io.ReadAll(r.Body)
		if err != nil || strings.Contains(r.Header.Get("Content-Encoding"), "aws-chunked") {
			s.Bad = append(s.Bad, fmt.Sprint("body of ", key, err))
		}
		s.write(key, string(body))
		s.Types = append(s.Types, r.Header.Get("Content-Type"))
		w.Header().Set("ETag", tagOf(string(body)))
	case !ok:
		w.WriteHeader(http.StatusNotFound)
		_, _ = w.Write([]byte("<Error><Code>NoSuchKey</Code></Error>"))
	case r.Header.Get("If-Match") != tagOf(text):
		w.WriteHeader(http.StatusPreconditionFailed)
		_, _ = w.Write([]byte("<Error><Code>PreconditionFailed</Code></Error>"))
	default:
		w.Header().Set("ETag", tagOf(text))
		_, _ = w.Write([]byte(text))
	}
}

func tagOf(text string) string { return fmt.Sprintf(`"%x"`, sha256.Sum256([]byte(text))) }

type storePage struct {
	XMLName               xml.Name `xml:"ListBucketResult"`
	IsTruncated           bool
	NextContinuationToken string `xml:",omitempty"`
	Contents              []storeObject
}

type storeObject struct {
	Key, LastModified, ETag string
	Size                    int
}

// Put adds an object with the rows from to to at the end of the list.
func (s *S3) Put(key string, from, to int) {
	var b strings.Builder
	fixture.Page(&b, from, to)
	s.write(key, b.String())
}

func (s *S3) write(key, text string) {
	if s.Objects == nil {
		s.Objects = map[string]string{}
	}
	if _, ok := s.Objects[key]; !ok {
		s.keys = append(s.keys, key)
	}
	s.Objects[key] = text
}

// page answers with two objects at a time.
func (s *S3) page(w http.ResponseWriter, r *http.Request) {
	q := r.URL.Query()
	from, _ := strconv.Atoi(q.Get("continuation-token"))
	var p storePage
	for i := from; i < len(s.keys); i++ {
		if len(p.Contents) == 2 {
			p.IsTruncated, p.NextContinuationToken = true, strconv.Itoa(i)
			break
		}
		if k := s.keys[i]; strings.HasPrefix(k, q.Get("prefix")) {
			p.Contents = append(
				p.Contents, storeObject{k, "2026-01-02T03:04:05.000Z", tagOf(s.Objects[k]), len(s.Objects[k])},
			)
		}
	}
	_ = xml.NewEncoder(w).Encode(p)
}
