package quality

// This file measures anomaly detectors on the labelled streams of the Numenta Anomaly Benchmark
// (NAB v1.1), which tests find beside the repository and which are never part of it. It reads the
// streams and scores a detector's output by the benchmark's rules (Lavin and Ahmad, arXiv
// 1510.03336).

import (
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/dialect"
)

// NABEnv names the environment variable that overrides where the data is looked for.
const NABEnv = "EXOSWARM_NAB"

// ErrNoData says that the streams are not on this machine; tests skip on it.
var ErrNoData = errors.New("no NAB streams")

// Stream is one labelled series.
type Stream struct {
	// Name is the file below the data folder, with forward slashes.
	Name string
	// Times are unix nanoseconds, the file's timestamps read as UTC. They need not be regular or
	// increasing.
	Times []int64
	// Values are as in the file.
	Values []float64
	// Windows are the labelled anomalies: first and last row of each, in order, apart from each
	// other.
	Windows []Window
}

// Window is a labelled anomaly: rows First to Last, both inside.
type Window struct{ First, Last int }

// NABDir finds the folder with data/ and windows.json: $EXOSWARM_NAB, or shared/nab next to the
// repository, in a folder above the working directory. It returns ErrNoData when there is none.
func NABDir() (string, error) {
	if dir := os.Getenv(NABEnv); dir != "" {
		if _, err := os.Stat(filepath.Join(dir, "windows.json")); err != nil {
			return "", fmt.Errorf("%s=%s: %w: %w", NABEnv, dir, ErrNoData, err)
		}
		return dir, nil
	}
	at, err := os.Getwd()
	if err != nil {
		return "", fmt.Errorf("find shared/nab: %w", err)
	}
	for ; ; at = filepath.Dir(at) {
		dir := filepath.Join(at, "shared", "nab")
		if _, err := os.Stat(filepath.Join(dir, "windows.json")); err == nil {
			return dir, nil
		}
		if at == filepath.Dir(at) {
			return "", fmt.Errorf("%w: neither $%s nor shared/nab beside the repository holds windows.json",
				ErrNoData, NABEnv)
		}
	}
}

// LoadNAB reads every stream that windows.json lists, in the order of their names.
func LoadNAB(dir string) ([]Stream, error) {
	text, err := os.ReadFile(filepath.Join(dir, "windows.json"))
	if err != nil {
		return nil, err
	}
	var limits map[string][][2]string
	if err := json.Unmarshal(text, &limits); err != nil {
		return nil, fmt.Errorf("windows.json: %w", err)
	}
	streams := make([]Stream, 0, len(limits))
	for name, edges := range limits {
		s, err := readStream(filepath.Join(dir, "data", filepath.FromSlash(name)), edges)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		s.Name = name
		streams = append(streams, s)
	}
	slices.SortFunc(streams, func(a, b Stream) int { return strings.Compare(a.Name, b.Name) })
	return streams, nil
}

// readStream reads one file of timestamp,value rows under a header; edges are the first and last
// timestamps of windows.
func readStream(path string, edges [][2]string) (Stream, error) {
	f, err := os.Open(path)
	if err != nil {
		return Stream{}, err
	}
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	if err != nil {
		return Stream{}, err
	}
	var s Stream
	row := make(map[string]int, len(rows)) // first row with a timestamp
	for i, r := range rows[1:] {
		t, err := time.Parse(time.DateTime, r[0])
		if err != nil {
			return Stream{}, err
		}
		v, err := dialect.Float(r[1], 64)
		if err != nil {
			return Stream{}, err
		}
		s.Times, s.Values = append(s.Times, t.UnixNano()), append(s.Values, v)
		if _, seen := row[r[0]]; !seen {
			row[r[0]] = i
		}
	}
	for _, e := range edges {
		var w [2]int
		for k := range e {
			at, _, _ := strings.Cut(e[k], ".")
			i, ok := row[at]
			if !ok {
				return Stream{}, fmt.Errorf("window edge %s is not a row", e[k])
			}
			w[k] = i
		}
		s.Windows = append(s.Windows, Window{w[0], w[1]})
	}
	return s, nil
}
