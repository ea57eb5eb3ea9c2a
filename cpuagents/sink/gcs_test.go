package sink

import (
	"fmt"
	"strings"
	"testing"

	"github.com/fsouza/fake-gcs-server/fakestorage"

	"github.com/exoswarm/exoswarm/cpuagents/remote"
	"github.com/exoswarm/exoswarm/cpuagents/servertest"
)

// TestGCSSink: a stream's sink, put again where the store was busy.
func TestGCSSink(t *testing.T) {
	s, q, _, _ := resources(t)
	g := servertest.NewGCS(t)
	g.Busy = 3
	sinkSuite(t, q, s, place{
		spec: func(id string) Spec {
			return Spec{
				URI: "gs://bucket/out/" + id + "/", Format: "parquet", PartRows: 50, Backoff: 0.001,
				Object: &remote.StoreSpec{Endpoint: g.URL, Account: "env:ACCOUNT"},
			}
		},
		read: func(id string) string {
			all, err := g.ListObjectsWithOptionsPaginated("bucket", fakestorage.ListOptions{Prefix: "out/" + id + "/"})
			if err != nil {
				t.Fatalf("g.ListObjectsWithOptionsPaginated: %v, want no error", err)
			}
			var b strings.Builder
			for _, o := range all.Objects {
				whole, err := g.GetObject("bucket", o.Name)
				if err != nil || whole.ContentType != "application/vnd.apache.parquet" {
					t.Fatalf("object %s: type %q, %v, want Parquet", o.Name, whole.ContentType, err)
				}
				fmt.Fprintf(&b, "%s\n%s\n", strings.TrimPrefix(o.Name, "out/"+id+"/"), whole.Content)
			}
			return b.String()
		},
	})
	g.Check(t)
}
