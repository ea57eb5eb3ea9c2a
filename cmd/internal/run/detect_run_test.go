package run

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/testkit"
	"github.com/exoswarm/exoswarm/jobs"
)

// childDir makes the test binary a detector over the files of a folder, which a test kills.
const childDir = "EXOSWARM_TEST_DETECTOR"

func TestMain(m *testing.M) {
	testkit.TempInMemory()
	if dir := os.Getenv(childDir); dir != "" {
		if err := runDetector(context.Background(), detectTestOptions(dir)); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	testkit.CheckLeaks(m)
}

// detectTestOptions are the options of a detector whose files are in a folder. It follows rows.csv.
func detectTestOptions(dir string) detectOptions {
	return detectOptions{
		Out: io.Discard, Err: os.Stderr, Log: slog.New(slog.DiscardHandler), All: true,
		SpecFile: filepath.Join(dir, "swarm.yaml"), DataDir: filepath.Join(dir, "data"),
		Follow: filepath.Join(dir, "rows.csv"), Output: filepath.Join(dir, "out.ndjson"),
		Rejects: filepath.Join(dir, "rejects.ndjson"), Anomalies: filepath.Join(dir, "incidents.ndjson"),
		MaxRejects: 1,
	}
}

// folder makes a folder with a specification. Entities of some hundred rows alarm.
func folder(t *testing.T, more string) string {
	t.Helper()
	dir := t.TempDir()
	writeText(t, filepath.Join(dir, "swarm.yaml"), "name: d\nkey: id\nagents_per_group: 16\nmax_entities: 50\n"+
		"explain: true\ncell: {kind: predictor, params: {alarm: 0.3, suspect: 0.25, block: 16}}\n"+more)
	return dir
}

func writeText(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatalf("write %s: %v", path, err)
	}
}

func readText(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("read %s: %v", path, err)
	}
	return string(data)
}

const detectHeader = "timestamp,value,id\n"

// detectRows returns n rows of 40 entities in random order.
func detectRows(n int) []string {
	r := rand.New(rand.NewPCG(3, 3))
	all := make([]string, n)
	for i := range all {
		v := r.NormFloat64()
		if r.IntN(500) == 0 {
			v += 1000
		}
		all[i] = fmt.Sprintf("%d,%.3f,e%d\n", 1700000000+i, v, r.IntN(40))
	}
	return all
}

// stdin runs a detector over a text as a file that is standard input, and returns its messages.
func stdin(t *testing.T, dir, name, text string, change func(*detectOptions)) (string, error) {
	t.Helper()
	path := filepath.Join(dir, name)
	if text != "" {
		writeText(t, path, text)
	}
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	o := detectTestOptions(dir)
	var messages bytes.Buffer
	o.Follow, o.In, o.Err = "", f, &messages
	if change != nil {
		change(&o)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	err = runDetector(ctx, o)
	return messages.String(), err
}

// await waits until the output has a number of lines.
func await(t *testing.T, dir string, lines int) {
	t.Helper()
	testkit.Until(t, fmt.Sprintf("%d lines of output", lines), func() bool {
		return strings.Count(readText(t, filepath.Join(dir, "out.ndjson")), "\n") >= lines
	})
}

// TestGoesOn: entities continue in the next call, a file is read once, also if it has grown, and
// the parts give the decisions of the whole.
func TestGoesOn(t *testing.T) {
	all := detectRows(8000)
	whole, parts := folder(t, ""), folder(t, "")
	if _, err := stdin(t, whole, "a.csv", detectHeader+strings.Join(all, ""), nil); err != nil {
		t.Fatalf("whole: %v", err)
	}
	want := readText(t, filepath.Join(whole, "out.ndjson"))
	if strings.Count(want, "\n") != 8000 || !strings.Contains(want, `"decision":"anomalous"`) ||
		!strings.HasPrefix(want, `{"id":"e`) {
		t.Fatalf("the output has %d lines: %.200s", strings.Count(want, "\n"), want)
	}
	for i, text := range []string{
		detectHeader + strings.Join(all[:1000], ""), "", detectHeader + strings.Join(all[:2500], ""),
		detectHeader + strings.Join(all, ""),
	} {
		message, err := stdin(t, parts, "a.csv", text, nil)
		if err != nil {
			t.Fatalf("part %d: %v", i, err)
		}
		got := []string{"1000 rows", "0 rows read of 40 entities", "1500 rows", "5500 rows"}[i]
		if !strings.HasPrefix(message, got) {
			t.Errorf("part %d: %s, want %s", i, message, got)
		}
	}
	if got := readText(t, filepath.Join(parts, "out.ndjson")); got != want {
		t.Errorf("the parts give %d bytes, the whole %d", len(got), len(want))
	}
	want = readText(t, filepath.Join(whole, "incidents.ndjson"))
	if got := readText(t, filepath.Join(parts, "incidents.ndjson")); got != want ||
		!strings.Contains(want, `"kinds":["`) {
		t.Errorf("the parts give the incidents\n%swant\n%s", got, want)
	}
	writeText(t, filepath.Join(parts, "swarm.yaml"), "name: other\n")
	if _, err := stdin(t, parts, "a.csv", "", nil); err == nil || !strings.Contains(err.Error(),
		"has the state of another specification") {
		t.Errorf("another specification: %v", err)
	}
}

// TestShow: the state of an entity is shown by its key, and the detector continues after it as if
// nothing had been asked.
func TestShow(t *testing.T) {
	dir := folder(t, "")
	data, quiet := filepath.Join(dir, "data"), slog.New(slog.DiscardHandler)
	var out bytes.Buffer
	if err := showEntity(t.Context(), data, []string{"e1"}, &out, quiet); err == nil || !strings.Contains(err.Error(),
		"has no state of a detector") {
		t.Errorf("Show without a detector: %v", err)
	}
	if _, err := os.Stat(data); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("Show has made the folder: %v", err)
	}
	all := detectRows(2000)
	if _, err := stdin(t, dir, "a.csv", detectHeader+strings.Join(all[:1000], ""), nil); err != nil {
		t.Fatalf("detect: %v", err)
	}
	if err := showEntity(t.Context(), data, []string{"e1", "id=e2"}, &out, quiet); err != nil {
		t.Fatalf("Show: %v", err)
	}
	lines := strings.Split(out.String(), "\n")
	n := strings.Count(strings.Join(all[:1000], ""), ",e1\n")
	if len(lines) != 3 || !strings.HasPrefix(lines[0], `{"name":"e1","key":{"id":"e1"},"group":`) ||
		!strings.Contains(lines[0], fmt.Sprintf(`"round":%d`, n)) || !strings.HasPrefix(lines[1], `{"name":"e2",`) {
		t.Errorf("Show writes %s, want e1 with %d rounds", out.String(), n)
	}
	err := showEntity(t.Context(), data, []string{"f1"}, &out, quiet)
	if !errors.Is(err, jobs.ErrNotFound) || !strings.Contains(err.Error(), `the nearest are "e1"`) {
		t.Errorf("Show of a key that is not there: %v", err)
	}
	if _, err := stdin(t, dir, "a.csv", detectHeader+strings.Join(all, ""), nil); err != nil {
		t.Fatalf("detect: %v", err)
	}
	whole := folder(t, "")
	if _, err := stdin(t, whole, "a.csv", detectHeader+strings.Join(all, ""), nil); err != nil {
		t.Fatalf("detect: %v", err)
	}
	got, want := readText(t, filepath.Join(dir, "out.ndjson")), readText(t, filepath.Join(whole, "out.ndjson"))
	if got != want {
		t.Errorf("after Show the decisions are %d bytes, a detector without it makes %d bytes", len(got), len(want))
	}
}

// TestBadRows: rows without a key, beyond max_entities and behind the last of their entity are
// counted with a sentence, and a pipe is read to its end.
func TestBadRows(t *testing.T) {
	dir := folder(t, "")
	writeText(t, filepath.Join(dir, "swarm.yaml"), "name: d\nkey: id\nagents_per_group: 16\nmax_entities: 2\n")
	r, w := io.Pipe()
	go func() {
		_, _ = io.WriteString(w, detectHeader)
		_, _ = io.WriteString(w, "5,1,a\n5,1,b\n4,1,a\n6,1,c\n7,1,\n8,x,a\n9,1,"+strings.Repeat("k", 2000)+
			"\n9,1,a\n10,1")
		_ = w.Close()
	}()
	o := detectTestOptions(dir)
	var messages bytes.Buffer
	o.Follow, o.In, o.Err = "", r, &messages
	if err := runDetector(t.Context(), o); err != nil {
		t.Fatalf("detect: %v", err)
	}
	for _, want := range []string{
		`the last line has no line end and is left out: "10,1"`,
		"4 rows rejected (2 without a key, 1 beyond max_entities); the first: row 4: there are 2 " +
			"entities already, and " + `"c" is another one: raise max_entities`,
		"4 rows read of 2 entities, 3 decisions, 0 anomalies, 1 dropped",
	} {
		if !strings.Contains(messages.String(), want) {
			t.Errorf("messages: %s\nwant %s", messages.String(), want)
		}
	}
	if got := readText(t, filepath.Join(dir, "rejects.ndjson")); strings.Count(got, `"cause":"key"`) != 2 ||
		strings.Count(got, "\n") != 4 {
		t.Errorf("rejects: %s", got)
	}
	for text, want := range map[string]string{
		"time,value,id\n1,1,a\n": `no column "timestamp"`, "PAR1xxxx": "only plain CSV and NDJSON",
		"timestamp,value\n1,1\n": `no column "id"`,
	} {
		if _, err := stdin(t, folder(t, ""), "bad", text, nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// TestTooManyRejects: a call whose input ends fails if too many of its rows are rejected, after it
// has written everything.
func TestTooManyRejects(t *testing.T) {
	dir := folder(t, "")
	text := detectHeader + "1,1,a\n2,1,a\n3,1,a\n4,x,a\n5,y,a\n6,1,\n"
	said, err := stdin(t, dir, "rows.csv", text, func(o *detectOptions) { o.MaxRejects = 0.49 })
	if err == nil || !strings.Contains(err.Error(), `3 of 6 rows are rejected`) ||
		!strings.Contains(err.Error(), `of 2 rows, is: column "value": "x" is not a number`) {
		t.Errorf("the error is %v, messages %s", err, said)
	}
	if got := readText(t, filepath.Join(dir, "out.ndjson")); strings.Count(got, "\n") != 3 {
		t.Errorf("the output is %s", got)
	}
	if _, err := stdin(t, dir, "more.csv", text, func(o *detectOptions) { o.MaxRejects = 0.5 }); err != nil {
		t.Errorf("half of the rows may be rejected: %v", err)
	}
}

// TestLocalTimeGoesOn: calls that read some rows each, over the end of daylight saving time, give
// the times of one call, and a file in falling order is recognised.
func TestLocalTimeGoesOn(t *testing.T) {
	zone, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	dir := folder(t, "csv: {zone: Europe/Berlin}\n")
	text, want := detectHeader, []string{}
	for i := range 24 {
		for e := range 3 {
			at := time.Date(2026, 10, 24, 21, 15*i, e, 0, time.UTC)
			text += fmt.Sprintf("%s,%d,e%d\n", at.In(zone).Format("2006-01-02 15:04:05"), i, e)
			want = append(want, at.Format(time.RFC3339))
		}
	}
	lines := strings.SplitAfter(text, "\n")
	for i, step := 0, 0; i < len(lines); step++ {
		i = min(len(lines), i+1+step%13)
		if said, err := stdin(t, dir, "rows.csv", strings.Join(lines[:i], ""), nil); err != nil {
			t.Fatalf("%d lines: %v\n%s", i, err, said)
		}
	}
	var got []string
	for _, m := range regexp.MustCompile(`"timestamp":"([^"]*)"`).FindAllStringSubmatch(
		readText(t, filepath.Join(dir, "out.ndjson")), -1,
	) {
		got = append(got, m[1])
	}
	if !slices.Equal(got, want) {
		t.Errorf("the times are %s\nwant %s", got, want)
	}
	slices.Reverse(lines)
	said, err := stdin(t, folder(t, ""), "falling.csv", detectHeader+strings.Join(lines[1:len(lines)-1], ""), nil)
	if err != nil || !strings.Contains(said, "falling order, newest first") {
		t.Errorf("falling rows: %v, %s", err, said)
	}
}

// TestFollow: rows come while the file grows, is renamed and made again, also while no detector
// runs, and half a row waits for its other half.
func TestFollow(t *testing.T) {
	dir := folder(t, "")
	all := detectRows(400)
	path := filepath.Join(dir, "rows.csv")
	grow := func(text string) {
		t.Helper()
		f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			_, err = f.WriteString(text)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			t.Fatal(err)
		}
	}
	rotate := func(to string) {
		t.Helper()
		if err := os.Rename(path, filepath.Join(dir, to)); err != nil {
			t.Fatal(err)
		}
		grow(detectHeader)
	}
	run := func(work func()) {
		t.Helper()
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- runDetector(ctx, detectTestOptions(dir)) }()
		work()
		stop()
		if err := <-done; !errors.Is(err, command.ErrInterrupted) {
			t.Fatalf("detect: %v, want an interruption", err)
		}
	}
	grow(detectHeader + strings.Join(all[:50], ""))
	run(func() {
		await(t, dir, 50)
		grow(strings.Join(all[50:100], "") + all[100][:5])
		await(t, dir, 100)
		grow(all[100][5:])
		await(t, dir, 101)
		grow(strings.Join(all[101:150], ""))
		rotate("rows.csv.1")
		grow(strings.Join(all[150:200], "") + all[200][:5])
		await(t, dir, 200)
	})
	grow(all[200][5:] + strings.Join(all[201:250], ""))
	rotate("rows.csv.2")
	grow(strings.Join(all[250:], ""))
	run(func() { await(t, dir, 400) })
	got := readText(t, filepath.Join(dir, "out.ndjson"))
	for i, line := range strings.Split(strings.TrimSuffix(got, "\n"), "\n") {
		if !strings.Contains(line, `"timestamp":"`+fmt.Sprint(1700000000+i)+`"`) {
			t.Fatalf("line %d is %s", i+1, line)
		}
	}
	if strings.Count(got, "\n") != 400 {
		t.Errorf("the output has %d lines", strings.Count(got, "\n"))
	}
}

// TestKill: a detector that is killed again and again loses no row of a file, and none counts
// twice.
func TestKill(t *testing.T) {
	t.Run("plain", func(t *testing.T) { testKill(t, "", func(spec string) string { return spec }) })
	t.Run("shards", func(t *testing.T) {
		testkit.OnlyLong(t)
		testKill(t, "", func(spec string) string { return spec + "shards: 3\n" })
	})
	t.Run("evict", func(t *testing.T) {
		testkit.OnlyLong(t)
		testKill(t, "", func(spec string) string {
			return strings.Replace(spec, "max_entities: 50", "max_entities: 39\nevict_after: 30s", 1)
		})
	})
	t.Run("both", func(t *testing.T) {
		testKill(t, "", func(spec string) string {
			return strings.Replace(spec, "max_entities: 50", "max_entities: 39\nevict_after: 30s\nshards: 3", 1)
		})
	})
}

// TestKillFleet is TestKill of a detector whose fleet is limited: the kills and the shards change
// no decision. Slots are 20 minutes, which no shard is late by.
func TestKillFleet(t *testing.T) {
	const limits = "fleet: {alarms_per_day: 700, false_discoveries: 0.5, window: 224h}\n"
	t.Run("together", func(t *testing.T) {
		const moves = "fleet: {together: 1m}\n"
		dir := testKill(t, moves, func(spec string) string { return spec })
		if !regexp.MustCompile(`"entities":([5-9]|\d\d)`).
			MatchString(readText(t, filepath.Join(dir, "incidents.ndjson"))) {
			t.Error("no incident is a move: the test reaches nothing")
		}
	})
	t.Run("plain", func(t *testing.T) {
		testkit.OnlyLong(t) // the next one has kills, shards and evictions
		testKill(t, limits, func(spec string) string { return spec })
	})
	t.Run("both", func(t *testing.T) {
		testKill(t, limits, func(spec string) string {
			return strings.Replace(spec, "max_entities: 50", "max_entities: 39\nevict_after: 30s\nshards: 3", 1)
		})
	})
}

// varies is what depends on the order of decisions of several entities and on groups.
var varies = regexp.MustCompile(`,"(leader":\d+|related":\[[^]]*\])`)

// testKill is TestKill with a specification that is changed for the detector that is killed. It
// returns the folder of that one.
func testKill(t *testing.T, more string, change func(spec string) string) string {
	t.Helper()
	all := detectRows(testkit.Of(30_000, 12_000))
	if strings.Contains(more, "together") { // and all entities move once
		for i := 3 * len(all) / 4; i < 3*len(all)/4+60; i++ {
			part := strings.Split(all[i], ",")
			all[i] = part[0] + ",500," + part[2]
		}
	}
	whole, killed := folder(t, more), folder(t, more)
	spec := readText(t, filepath.Join(killed, "swarm.yaml"))
	writeText(t, filepath.Join(killed, "swarm.yaml"), change(spec))
	plain, each := change(spec) == spec, 6000 // rows for each process
	if !plain && more == "" {
		all, each = all[:len(all)/2], 3000
	}
	text := detectHeader + strings.Join(all, "")
	lines := func(dir, name string) string {
		all := strings.SplitAfter(readText(t, filepath.Join(dir, name)), "\n")
		if !plain { // the order is kept within an entity only, and a leader has the number of a group
			for i := range all {
				all[i] = varies.ReplaceAllString(all[i], "")
			}
			slices.Sort(all)
		}
		return strings.Join(all, "")
	}
	if _, err := stdin(t, whole, "rows.csv", text, nil); err != nil {
		t.Fatalf("whole: %v", err)
	}
	shown := strings.Count(readText(t, filepath.Join(whole, "out.ndjson")), `"decision":"anomalous"`)
	if more != "" && shown < 5 {
		t.Fatalf("%d incidents are shown: the test reaches nothing", shown)
	}
	path := filepath.Join(killed, "rows.csv")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteString(detectHeader); err != nil {
		t.Fatal(err)
	}
	r := rand.New(rand.NewPCG(5, 5))
	kills := 0
	for at := 0; at < len(all); {
		child := exec.Command(os.Args[0], "-test.run=^$")
		child.Env = append(os.Environ(), childDir+"="+killed)
		child.Stderr = os.Stderr
		if err := child.Start(); err != nil {
			t.Fatal(err)
		}
		for end := min(at+each, len(all)); at < end; { // rows in small pieces, so that there are many batches
			n := min(at+1+r.IntN(200), end)
			if _, err := f.WriteString(strings.Join(all[at:n], "")); err != nil {
				t.Fatal(err)
			}
			at = n
			<-time.After(time.Millisecond) // the rate of the rows
		}
		await(t, killed, (at-each)+1+r.IntN(each*2/3))
		if err := child.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		_ = child.Wait()
		kills++
	}
	if _, err := stdin(t, killed, "rows.csv", "", nil); err != nil {
		t.Fatalf("the last part: %v", err)
	}
	want, got := lines(whole, "incidents.ndjson"), lines(killed, "incidents.ndjson")
	if got != want || plain && strings.Count(want, "\n") < 5 {
		t.Errorf("after %d kills the incidents are\n%swant\n%s", kills, got, want)
	}
	want, got = lines(whole, "out.ndjson"), lines(killed, "out.ndjson")
	if got != want || kills < len(all)/each {
		t.Errorf("after %d kills the output has %d bytes, without %d", kills, len(got), len(want))
	}
	return killed
}

// TestDamagedSnapshot: a detector whose last snapshot is damaged goes back to the snapshot before
// it, or to the start of its log, and decides as if nothing had happened. Without one it ends with
// a sentence.
func TestDamagedSnapshot(t *testing.T) {
	for name, more := range map[string]string{"plain": "", "shards": "shards: 3\n"} {
		t.Run(name, func(t *testing.T) {
			all := detectRows(2000)
			text := func(n int) string { return detectHeader + strings.Join(all[:n], "") }
			whole, dir := folder(t, more), folder(t, more)
			if _, err := stdin(t, whole, "a.csv", text(2000), nil); err != nil {
				t.Fatalf("whole: %v", err)
			}
			// harm changes a byte of a file of the last snapshots.
			harm := func(last int, file string) {
				t.Helper()
				found, err := filepath.Glob(filepath.Join(dir, "data", "snapshots", "at-*"))
				if err != nil || len(found) == 0 {
					t.Fatalf("snapshots: %q, %v", found, err)
				}
				slices.SortFunc(found, func(a, b string) int {
					return cmp.Or(cmp.Compare(len(a), len(b)), cmp.Compare(a, b))
				})
				if more != "" {
					last *= 3
				}
				for _, of := range found[len(found)-last:] {
					files, err := filepath.Glob(filepath.Join(of, file))
					if err != nil || len(files) == 0 {
						t.Fatalf("files of %s: %v", of, err)
					}
					data := []byte(readText(t, files[0]))
					data[len(data)/2] ^= 1
					writeText(t, files[0], string(data))
				}
			}
			run := func(n int, want string) {
				t.Helper()
				message, err := stdin(t, dir, "a.csv", text(n), nil)
				if err != nil || !strings.Contains(message, want) ||
					want == "" && strings.Contains(message, "damaged") {
					t.Fatalf("%d rows: %v\n%s", n, err, message)
				}
			}
			const back = "goes back to the one before"
			run(400, "")
			harm(1, "*.npy")
			run(800, back) // to the start
			run(1200, "")
			harm(1, "*.npy")
			run(1500, back)
			harm(1, "*.json")
			run(1800, back)
			run(2000, "")
			lines := func(dir string) string {
				all := strings.SplitAfter(
					varies.ReplaceAllString(readText(t, filepath.Join(dir, "out.ndjson")), ""),
					"\n",
				)
				if more != "" {
					slices.Sort(all)
				}
				return strings.Join(all, "")
			}
			if got, want := lines(dir), lines(whole); got != want {
				t.Errorf("the output has %d bytes, without damage %d", len(got), len(want))
			}
			harm(2, "*.npy")
			if _, err := stdin(t, dir, "a.csv", "", nil); err == nil || !strings.Contains(err.Error(),
				"are damaged") || !strings.Contains(err.Error(), "and there is none before: name another --data-dir") {
				t.Errorf("two damaged snapshots: %v", err)
			}
		})
	}
}

// TestDetectWebhook: a receiver gets the anomalies of a detector, and rows wait while it is away.
func TestDetectWebhook(t *testing.T) {
	t.Parallel()
	dir := folder(t, "")
	var mu sync.Mutex
	var got strings.Builder
	refused := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		if !refused { // the sink sends it again
			refused = true
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.Copy(&got, r.Body)
	}))
	defer server.Close()
	to := func(o *detectOptions) { o.Webhook.URL, o.Webhook.All = server.URL, true }
	if text, err := stdin(t, dir, "in.csv", detectHeader+strings.Join(detectRows(4000), ""), to); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	if want := readText(t, filepath.Join(dir, "out.ndjson")); want == "" || got.String() != want {
		t.Errorf("the receiver got\n%.500s\nwant\n%.500s", got.String(), want)
	}
	for _, url := range []string{"nowhere", "ftp://127.0.0.1/x", "http://%zz"} {
		_, err := stdin(t, dir, "in.csv", "", func(o *detectOptions) { o.Webhook.URL = url })
		var e *jobs.Error
		if !errors.As(err, &e) || !strings.Contains(err.Error(), "webhook") {
			t.Errorf("--webhook %s: %v, want an error of usage", url, err)
		}
	}
}
