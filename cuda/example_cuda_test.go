//go:build cuda

package cuda_test

import (
	"context"
	"io"
	"os"
	"testing"

	"github.com/exoswarm/exoswarm/cuda"
)

// The examples need a GPU, so that they are tests here and not by their output.
func TestExamples(t *testing.T) {
	d, err := cuda.Open(context.Background(), "cuda:0", cuda.Options{})
	if err != nil {
		if os.Getenv("EXOSWARM_SKIP_GPU") == "1" {
			t.Skip("EXOSWARM_SKIP_GPU=1: ", err)
		}
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	for _, c := range []struct {
		example func()
		want    string
	}{{Example_vectorAdd, "[11 22 33 44] <nil>\n"}, {Example_matrixMultiply, "[19 22 43 50] <nil>\n"}} {
		if got := printed(t, c.example); got != c.want {
			t.Errorf("printed %q, want %q", got, c.want)
		}
	}
}

// printed is what fn writes to the standard output.
func printed(t *testing.T, fn func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	old := os.Stdout
	os.Stdout = w
	func() {
		defer func() { os.Stdout = old; _ = w.Close() }()
		fn()
	}()
	text, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
