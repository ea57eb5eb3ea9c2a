package rows

import (
	"bytes"
	"encoding/binary"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"unicode/utf16"

	"pgregory.net/rapid"
)

// utf16Of returns a text as UTF-16.
func utf16Of(text string, order binary.AppendByteOrder, mark bool) (b []byte) {
	if mark {
		text = "\ufeff" + text
	}
	for _, unit := range utf16.Encode([]rune(text)) {
		b = order.AppendUint16(b, unit)
	}
	return b
}

// TestText: UTF-16 is read as UTF-8, in pieces of any size, and other texts are not changed.
func TestText(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := "a" + rapid.StringN(0, 50, -1).Draw(t, "text")
		mark := rapid.Bool().Draw(t, "mark")
		want := text
		if mark {
			want = "\ufeff" + text
		}
		for _, order := range []binary.AppendByteOrder{binary.LittleEndian, binary.BigEndian} {
			data := utf16Of(text, order, mark)
			for _, r := range []io.Reader{bytes.NewReader(data), iotest.OneByteReader(bytes.NewReader(data))} {
				got, err := io.ReadAll(Text(r))
				if err != nil || string(got) != strings.ToValidUTF8(want, "\ufffd") {
					t.Fatalf("%q as UTF-16 is read as %q, %v", want, got, err)
				}
			}
		}
	})
	for _, plain := range []string{"", "a", "ab", "\xef\xbb\xbfa,b\n", "é", "\xff", "\xff\xff"} {
		if got, err := io.ReadAll(Text(strings.NewReader(plain))); err != nil || string(got) != plain {
			t.Errorf("%q is read as %q, %v", plain, got, err)
		}
	}
	for damaged, want := range map[string]string{
		"a\x00\x00\xd8": "a\ufffd", "a\x00\x00\xd8b\x00": "a\ufffdb", "a\x00\x00\xdc": "a\ufffd", "a\x00b": "a\ufffd",
		"a\x00\x00\xd8\x00\xd8\x00\xdc": "a\ufffd\U00010000", "a\x00\x00\xd8\xfd\xff": "a\ufffd\ufffd",
	} {
		if got, err := io.ReadAll(Text(strings.NewReader(damaged))); err != nil || string(got) != want {
			t.Errorf("%q is read as %q, %v; want %q", damaged, got, err, want)
		}
	}
}

// TestOldTexts: tables in UTF-16 and with CR at the ends of their lines give the rows of the plain
// one.
func TestOldTexts(t *testing.T) {
	table := "timestamp,value\n1,1\n2,2\n3,x\n\n4,4\n"
	values, rejects := readAll(t, table, valueSpec)
	for name, text := range map[string]string{
		"UTF-16":                string(utf16Of(table, binary.LittleEndian, true)),
		"UTF-16, CRLF":          string(utf16Of(strings.ReplaceAll(table, "\n", "\r\n"), binary.BigEndian, true)),
		"UTF-16 without a mark": string(utf16Of(table, binary.LittleEndian, false)),
		"CR":                    strings.ReplaceAll(table, "\n", "\r"),
		"UTF-16, CR":            string(utf16Of(strings.ReplaceAll(table, "\n", "\r"), binary.LittleEndian, true)),
		"CRLF":                  strings.ReplaceAll(table, "\n", "\r\n"), "a mark": "\ufeff" + table,
	} {
		got, bad := readAll(t, text, valueSpec)
		if len(got) != len(values) || len(bad) != len(rejects) || bad[0] != rejects[0] {
			t.Errorf("%s: %v, %q; want %v, %q", name, got, bad, values, rejects)
		}
	}
	long := strings.ReplaceAll("timestamp,value\n"+strings.Repeat("1,1\n", 100_000), "\n", "\r")
	if got, bad := readAll(t, long, valueSpec); len(got) != 100_000 || len(bad) != 0 {
		t.Errorf("a long text with CR: %d rows, %d rejects", len(got), len(bad))
	}
	in, err := OpenText(
		"a",
		io.NopCloser(bytes.NewReader(utf16Of("{\"timestamp\":1,\"value\":2}\r{\"timestamp\":2,\"value\":3}",
			binary.LittleEndian, true))),
		"ndjson",
		valueSpec,
	)
	if err != nil {
		t.Fatal(err)
	}
	for want := range 2 {
		if row, reject, err := in.Next(); err != nil || reject != nil || row.Values[0] != float64(want+2) {
			t.Errorf("row %d of NDJSON: %+v, %+v, %v", want, row, reject, err)
		}
	}
}
