package userfile

import "testing"

// TestPaths: each name of a stream is recognised where it may be used, and a file is none.
func TestPaths(t *testing.T) {
	for _, c := range []struct {
		path                string
		in, out, descriptor bool
	}{
		{"-", true, true, false},
		{"/dev/stdin", true, false, true},
		{"/dev/fd/0", true, false, true},
		{"/dev/stdout", false, true, false},
		{"/dev/fd/1", false, true, true},
		{"/proc/self/fd/1", false, true, true},
		{"/dev/fd/63", false, false, true},
		{"/dev/stderr", false, false, true},
		{"/dev/null", false, false, false},
		{"./-", false, false, false},
		{"", false, false, false},
	} {
		if in, out, d := IsStdin(c.path), IsStdout(c.path), IsDescriptor(c.path); in != c.in || out != c.out ||
			d != c.descriptor {
			t.Errorf("%q: standard input %v, standard output %v, descriptor %v; want %v, %v, %v", c.path, in, out, d,
				c.in, c.out, c.descriptor)
		}
	}
}
