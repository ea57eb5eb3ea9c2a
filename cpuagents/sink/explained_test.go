package sink

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/cpuagents/internal/fixture"
	"github.com/exoswarm/exoswarm/jobs/batch"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// explained is decided with an explanation: 500 and the number of the group are expected, and
// nothing of group 2.
func explained(at int64, rows ...[2]uint32) *batch.Decisions {
	d := decided(at, rows...)
	d.Explained = &batch.Explained{Features: 1}
	for _, g := range d.Group {
		v := 500 + float64(g)
		if g == 2 {
			v = math.NaN()
		}
		why := d.Explained
		why.Expected, why.Low, why.High = append(why.Expected, v), append(why.Low, v-1), append(why.High, v+1)
		why.Fault, why.Side = append(why.Fault, 0), append(why.Side, 1)
		why.Kind, why.Before = append(why.Kind, batch.LevelSurprise), append(why.Before, 2)
	}
	return d
}

// TestPrometheusExpected: a Prometheus has the expected value of each feature and the score, and no
// sample of one that is unknown.
func TestPrometheusExpected(t *testing.T) {
	base := prometheusServer(t)
	s, q, _, _ := resources(t)
	s.Name = "plant"
	layout := alertLayout()
	layout.Explain = true
	k, err := s.New("job", 0, Spec{URI: "prometheus:" + base + "/api/v1/write"}, layout)
	if err != nil {
		t.Fatalf("New: %v", err)
	}
	defer k.Close()
	if err := k.Open(fixture.Within(t), q.Swarms.Log("job", 9, swarms.Out)); err != nil {
		t.Fatalf("Open: %v", err)
	}
	send(t, k, 1, explained(time.Now().Unix()-10, [2]uint32{0, 0}, [2]uint32{1, 2}, [2]uint32{2, 0}))
	if err := k.End(fixture.Within(t)); err != nil {
		t.Fatalf("End: %v", err)
	}
	series := map[string]any{}
	for _, r := range query(t, base, `{__name__=~"exoswarm_.*",detector="plant"}`) {
		m := r.Metric
		series[m["__name__"]+" "+m["device_id"]+" "+m["feature"]] = r.Value[1]
	}
	want := "map[exoswarm_expected d0 value:500 exoswarm_expected d1 value:501 exoswarm_score d0 :0.25 " +
		"exoswarm_score d1 :0.75 exoswarm_score d2 :0.25]"
	if fmt.Sprint(series) != want {
		t.Errorf("Prometheus has %v, want %s", series, want)
	}
	if text := describe(layout, explained(5, [2]uint32{1, 2}), 0); !strings.HasSuffix(text,
		": level of value above the expected 501") {
		t.Errorf("an alert says %q", text)
	}
}
