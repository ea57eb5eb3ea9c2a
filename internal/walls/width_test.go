package walls

import (
	"bufio"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

// cWidth is the most columns of a line of C, C++ or CUDA, with tabs of four.
const cWidth = 120

// TestWidthOfC: no line of C, C++ or CUDA, headers included, is wider than cWidth.
func TestWidthOfC(t *testing.T) {
	ends := []string{".c", ".h", ".cu", ".cuh", ".cc", ".cpp", ".hpp"}
	files := 0
	err := filepath.WalkDir("../..", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && strings.HasPrefix(d.Name(), ".") && path != "../..":
			return filepath.SkipDir
		case d.IsDir() || !slices.Contains(ends, filepath.Ext(path)):
			return nil
		}
		files++
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		defer f.Close()
		lines := bufio.NewScanner(f)
		for n := 1; lines.Scan(); n++ {
			width := utf8.RuneCountInString(strings.ReplaceAll(lines.Text(), "\t", "    "))
			if width > cWidth {
				t.Errorf("%s:%d has %d columns, at most %d", path, n, width, cWidth)
			}
		}
		return lines.Err()
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 50 {
		t.Errorf("only %d files of C and CUDA were found", files)
	}
}
