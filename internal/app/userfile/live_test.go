package userfile

import (
	"bytes"
	"context"
	"encoding/csv"
	"fmt"
	"io"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/exoswarm/exoswarm/cpuagents/source"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// TestRecords: documents are cut at the ends of records alone, however the stream comes, and
// together they are the stream with its header before each.
func TestRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		field := rapid.SampledFrom([]string{
			"1", "", "a,b", "a\nb", `a"b`, "\"", "\r\n",
			"long" + strings.Repeat("x", 3000),
		})
		var text bytes.Buffer
		w := csv.NewWriter(&text)
		want := [][]string{{"timestamp", "value", "note"}}
		for i := range rapid.IntRange(0, 60).Draw(t, "rows") {
			want = append(want, []string{fmt.Sprint(i), field.Draw(t, "value"), field.Draw(t, "note")})
		}
		if err := w.WriteAll(want); err != nil {
			t.Fatal(err)
		}
		stream := text.Bytes()
		if rapid.Bool().Draw(t, "no end") {
			stream = bytes.TrimSuffix(stream, []byte("\n"))
		}
		l, err := openRecords(rapid.SampledFrom([]int{1, 7, 100, 5000, 1 << 20}).Draw(t, "piece"), stream)
		if err != nil {
			t.Fatal(err)
		}
		var got [][]string
		for n := uint64(1); ; n++ {
			answer := l.Answer(n)
			document, ok := bytes.CutPrefix(answer, []byte(source.InputDocument))
			if !ok {
				if string(answer) != source.InputEnd {
					t.Fatalf("document %d: %q", n, answer)
				}
				break
			}
			if again := l.Answer(n); !bytes.Equal(again, answer) {
				t.Fatalf("document %d is another one when it is requested again", n)
			}
			if len(document) > source.MaxInputDocument {
				t.Fatalf("document %d has %d bytes", n, len(document))
			}
			all, err := csv.NewReader(bytes.NewReader(document)).ReadAll()
			if err != nil || len(all) == 0 {
				t.Fatalf("document %d: %v", n, err)
			}
			if n > 1 {
				if fmt.Sprint(all[0]) != fmt.Sprint(want[0]) {
					t.Fatalf("document %d begins with %q", n, all[0])
				}
				all = all[1:]
			}
			got = append(got, all...)
		}
		for _, r := range want { // the package reads a line end in quotes as \n
			for i := range r {
				r[i] = strings.ReplaceAll(r[i], "\r\n", "\n")
			}
		}
		if fmt.Sprintf("%q", got) != fmt.Sprintf("%q", want) {
			t.Fatalf("the documents hold %d records, the stream %d", len(got), len(want))
		}
	})
}

// openRecords returns the live input of a CSV stream that comes in pieces of a size in bytes.
func openRecords(piece int, stream []byte) (*Live, error) {
	r, w := io.Pipe()
	go func() {
		for len(stream) > 0 {
			n := min(piece, len(stream))
			if _, err := w.Write(stream[:n]); err != nil {
				return
			}
			stream = stream[n:]
		}
		_ = w.Close()
	}()
	l, _, err := OpenLive(context.Background(), []string{"-"}, r, dialect.CSV{})
	return l, err
}

// TestLongRecord: a record that is longer than a document is cut, and the stream continues behind
// it.
func TestLongRecord(t *testing.T) {
	long := strings.Repeat("x", 3*source.MaxInputDocument)
	l, err := openRecords(64<<10, []byte("timestamp,value\n1,"+long+"\n2,5\n"))
	if err != nil {
		t.Fatal(err)
	}
	var all []byte
	for n := uint64(1); ; n++ {
		document, ok := bytes.CutPrefix(l.Answer(n), []byte(source.InputDocument))
		if !ok {
			break
		}
		if len(document) > source.MaxInputDocument {
			t.Fatalf("document %d has %d bytes", n, len(document))
		}
		if n > 1 {
			document = bytes.TrimPrefix(document, []byte("timestamp,value\n"))
		}
		all = append(all, document...)
	}
	if string(all) != "timestamp,value\n1,"+long+"\n2,5\n" {
		t.Errorf("%d bytes came of a stream of %d", len(all), len(long)+23)
	}
}
