package training

import (
	"cmp"
	"encoding/csv"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/testkit"
)

var (
	tracingFolder = flag.String("tracing", "", "a folder with answers.csv of knowledge tracing: columns fold, uid, "+
		"concepts and responses")
	tracingFolds   = flag.String("tracing.folds", "0", "the folds that are held out in turn")
	tracingEpochs  = flag.Int("tracing.epochs", 11, "passes over the other folds")
	tracingRate    = flag.Float64("tracing.rate", 3e-3, "of Adam")
	tracingDropout = flag.Float64("tracing.dropout", 0.15, "share of units")
	tracingHidden  = flag.Int("tracing.hidden", 32, "units, and inputs of a step")
)

// tracing are the answers of students: the row of a moment is the skill, and whether its answer was right;
// the item is the skill of the next answer.
type tracing struct {
	Sequences
	folds []string
}

func loadTracing(t testing.TB, folder string) (d tracing) {
	t.Helper()
	f, err := os.Open(filepath.Join(folder, "answers.csv"))
	testkit.NoError(t, "Open", err)
	defer f.Close()
	rows, err := csv.NewReader(f).ReadAll()
	testkit.NoError(t, "ReadAll", err)
	number := func(s string) int32 {
		v, err := strconv.Atoi(s)
		testkit.NoError(t, "Atoi", err)
		return int32(v)
	}
	for _, row := range rows[1:] {
		skills, answers := strings.Split(row[2], ","), strings.Split(row[3], ",")
		d.folds = append(d.folds, row[0])
		d.Lengths = append(d.Lengths, int32(len(skills)))
		for i := range skills {
			d.Numbers = append(d.Numbers, 2*number(skills[i])+number(answers[i]))
			item, target := int32(-1), int32(-1)
			if i+1 < len(skills) {
				item, target = number(skills[i+1]), number(answers[i+1])
			}
			d.Items, d.Targets = append(d.Items, item), append(d.Targets, target)
		}
	}
	return d
}

// scored is a prediction of a target.
type scored struct {
	p     float32
	right bool
}

// area returns the area under the curve of ROC.
func area(all []scored) float64 {
	slices.SortFunc(all, func(a, b scored) int { return cmp.Compare(a.p, b.p) })
	ranks, right := 0.0, 0.0
	for i := 0; i < len(all); {
		j, of := i, 0.0
		for ; j < len(all) && all[j].p == all[i].p; j++ {
			if all[j].right {
				of++
			}
		}
		ranks += of * float64(i+j+1) / 2
		right += of
		i = j
	}
	return (ranks - right*(right+1)/2) / (right * (float64(len(all)) - right))
}

// predictAll returns the predictions of whole sequences.
func predictAll(t testing.TB, tr *Trainer, b *Batcher, batches [][]Window) (all []scored) {
	t.Helper()
	for _, windows := range batches {
		batch := b.Batch(windows)
		p := make([]float32, batch.Sequences*batch.Moments)
		_, err := tr.Evaluate(t.Context(), batch, nil, p)
		testkit.NoError(t, "Evaluate", err)
		for n, length := range batch.Lengths {
			for at := range int(length) {
				if i := at*batch.Sequences + n; batch.Targets[i] >= 0 {
					all = append(all, scored{p[i], batch.Targets[i] == 1})
				}
			}
		}
	}
	return all
}

// TestTracing trains on the answers of students and prints the area under the curve of each epoch for the
// fold that is held out.
func TestTracing(t *testing.T) {
	if *tracingFolder == "" {
		t.Skip("it needs -tracing FOLDER")
	}
	d := loadTracing(t, *tracingFolder)
	for _, fold := range strings.Split(*tracingFolds, ",") {
		t.Run(fold, func(t *testing.T) {
			var train, held []int
			for n, of := range d.folds {
				if of == fold {
					held = append(held, n)
				} else {
					train = append(train, n)
				}
			}
			o := Options{
				Shape: Shape{Hidden: *tracingHidden, Inputs: *tracingHidden, Rows: 200, Items: 100},
				Adam:  Adam{Rate: float32(*tracingRate), Decay: 1e-5}, Clip: 1, Dropout: float32(*tracingDropout),
				Window: 200, Seed: 1,
			}
			tr := openTrainer(t, o, nil)
			b, err := NewBatcher(o.Shape, &d.Sequences)
			testkit.NoError(t, "NewBatcher", err)
			windows, best := d.Windows(train, o.Window), 0.0
			for epoch := range *tracingEpochs {
				start, sum, count, cut := time.Now(), 0.0, int64(0), int64(0)
				for _, batch := range Shuffle(windows, 64, o.Seed, epoch) {
					loss, err := tr.TrainStep(t.Context(), b.Batch(batch))
					testkit.NoError(t, "TrainStep", err)
					sum, count, cut = sum+loss.Sum, count+loss.Count, cut+loss.Saturated
				}
				auc := area(predictAll(t, tr, b, d.Whole(held, 512)))
				best = max(best, auc)
				t.Logf("epoch %d: loss %.4f, area %.4f, %d gradients cut off, %v", epoch+1, sum/float64(count), auc, cut,
					time.Since(start).Round(time.Second/10))
			}
			if *tracingEpochs > 5 && best < 0.725 {
				t.Errorf("the largest area is %.4f, want 0.725 at least", best)
			}
		})
	}
}
