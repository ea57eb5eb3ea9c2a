package quality

import (
	"encoding/csv"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

// load returns the streams, or skips the test where they are not on the machine.
func load(t *testing.T) (string, []Stream) {
	t.Helper()
	dir, err := NABDir()
	if errors.Is(err, ErrNoData) {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
	streams, err := LoadNAB(dir)
	if err != nil {
		t.Fatal(err)
	}
	return dir, streams
}

// TestScoreEqualsScript holds Score to the scorer that comes with the data: random scores, and
// scores that find some windows, must get the same grade in all profiles.
func TestScoreEqualsScript(t *testing.T) {
	testkit.OnlyLong(t)
	dir, streams := load(t)
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3 to run score.py")
	}
	script := exactScript(t, dir)
	for name, found := range map[string]float64{"random": 0, "half": 0.002} {
		t.Run(name, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(1, 2))
			out, scores := t.TempDir(), make([][]float32, len(streams))
			for i, s := range streams {
				scores[i] = make([]float32, len(s.Times))
				for row := range scores[i] {
					scores[i][row] = float32(rng.IntN(1000)) / 2000
				}
				for _, w := range s.Windows {
					for row := w.First; row <= w.Last; row++ {
						if rng.Float64() < found {
							scores[i][row] = 0.5 + rng.Float32()/2
						}
					}
				}
				writeScores(t, filepath.Join(out, filepath.FromSlash(s.Name)), scores[i])
			}
			text, err := exec.Command(python, script, out, "--windows", filepath.Join(dir, "windows.json"), "--data",
				filepath.Join(dir, "data")).CombinedOutput()
			if err != nil {
				t.Fatalf("score.py: %v\n%s", err, text)
			}
			for profile, p := range map[string]Profile{
				"standard": Standard, "reward_low_FP": RewardLowFP,
				"reward_low_FN": RewardLowFN,
			} {
				m := regexp.MustCompile(profile +
					` +(-?[0-9.]+) +threshold ([0-9.e+-]+) +windows ([0-9]+)`).FindSubmatch(text)
				if m == nil {
					t.Fatalf("score.py does not print %s:\n%s", profile, text)
				}
				got, err := NABScore(p, streams, scores)
				if err != nil {
					t.Fatal(err)
				}
				want, _ := strconv.ParseFloat(string(m[1]), 64)
				if math.Abs(got.Score-want) > 1e-6 || fmt.Sprintf("%.6g", got.Threshold) != string(m[2]) ||
					strconv.Itoa(got.Windows) != string(m[3]) {
					t.Errorf("%s: got %+v, score.py prints %s", profile, got, m[0])
				}
				at, err := NABScoreAt(p, streams, scores, got.Threshold)
				if err != nil || math.Abs(at.Score-got.Score) > 1e-6 {
					t.Errorf("%s: ScoreAt the chosen threshold %v, Score %v (%v)", profile, at.Score, got.Score, err)
				}
			}
		})
	}
}

// exactScript is a copy of score.py that prints nine digits behind the point instead of two.
func exactScript(t *testing.T, dir string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, "score.py"))
	if err != nil {
		t.Fatal(err)
	}
	exact := strings.Replace(string(text), ":6.2f}", ":.9f}", 1)
	if exact == string(text) {
		t.Fatal("score.py does not print with :6.2f any more")
	}
	path := filepath.Join(t.TempDir(), "score.py")
	if err := os.WriteFile(path, []byte(exact), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func writeScores(t *testing.T, path string, scores []float32) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	w := csv.NewWriter(f)
	w.Write([]string{"score"})
	for _, s := range scores {
		w.Write([]string{strconv.FormatFloat(float64(s), 'g', -1, 64)})
	}
	w.Flush()
	if err := w.Error(); err != nil {
		t.Fatal(err)
	}
}

func TestScoreByHand(t *testing.T) {
	// 100 rows, probation 15, one window of rows 50..59.
	s := []Stream{{Name: "x", Times: make([]int64, 100), Windows: []Window{{50, 59}}}}
	cases := []struct {
		name  string
		fires map[int]float32
		want  float64
	}{
		{"never fires", nil, 0},
		{"first row of the window", map[int]float32{50: 1}, 100},
		{"found in probation only", map[int]float32{3: 1}, 0},
		{"false alarm above the detection", map[int]float32{20: 1, 50: 0.9}, 100 - 100*0.11/2},
		{"last row of the window", map[int]float32{59: 1}, 50 + 50*decay(-0.1)/decay(-1)},
		{"the best detection of a window counts", map[int]float32{50: 0.8, 59: 0.8}, 100},
	}
	for _, c := range cases {
		scores := make([]float32, 100)
		for row, v := range c.fires {
			scores[row] = v
		}
		got, err := NABScore(Standard, s, [][]float32{scores})
		if err != nil || math.Abs(got.Score-c.want) > 1e-9 {
			t.Errorf("%s: %v (%v), want %v", c.name, got.Score, err, c.want)
		}
	}
	for _, bad := range [][]float32{
		make([]float32, 99), append(make([]float32, 99), 1.5),
		append(make([]float32, 99), float32(math.NaN())),
	} {
		if _, err := NABScore(Standard, s, [][]float32{bad}); err == nil {
			t.Errorf("%d scores, the last %v: no error", len(bad), bad[len(bad)-1])
		}
	}
}

func TestDirSaysWhereItLooked(t *testing.T) {
	t.Setenv(NABEnv, t.TempDir())
	if _, err := NABDir(); !errors.Is(err, ErrNoData) {
		t.Errorf("an empty folder: %v, want ErrNoData", err)
	}
}
