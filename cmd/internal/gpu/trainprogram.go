package gpu

import (
	"encoding/json"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/dialect"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// programTraining are the flags of exoswarm train for a program of expressions.
type programTraining struct {
	text        string
	in, weights []string
	numbers     map[string]string
	steps       int
	rate, decay float64
	seed        uint64
	inexact     bool
}

func (p *programTraining) flags(f *pflag.FlagSet) {
	f.StringVar(&p.text, "program", "", "expression with one output, the loss, in place of -f: its --param are trained")
	f.StringArrayVar(&p.in, "in", nil, "NAME=FILE.npy of an array of --program; may be repeated")
	f.StringArrayVar(&p.weights, "param", nil, "NAME=FILE.npy with the first values of a weight of --program, or "+
		"NAME=ROWSxCOLUMNS for values drawn by --seed; may be repeated")
	f.StringToStringVar(&p.numbers, "set", nil, "NAME=VALUE of a number of --program; may be repeated")
	f.IntVar(&p.steps, "steps", 1000, "steps of Adam over all rows, for --program")
	f.Float64Var(&p.rate, "rate", 1e-3, "rate of Adam, for --program")
	f.Float64Var(&p.decay, "decay", 0, "factor of the weights that is added to their derivatives, for --program")
	f.Uint64Var(&p.seed, "seed", 1, "seed of weights that are drawn, for --program")
	f.BoolVar(&p.inexact, "inexact", false, "allow products of more than 64 columns in --program, whose bits differ "+
		"between devices")
}

// largestArrays bounds the bytes of the arrays of a program: an agent has no more for a training.
const largestArrays = 4 << 30

// run reads the arrays, submits the job, shows the loss and writes the weights into a folder.
// Mistakes of files and flags are found before a connection is made.
func (p *programTraining) run(cmd *cobra.Command, folder, from string) error {
	s := &gpujob.TrainProgramSpec{
		Expr: p.text, In: map[string]*gpujob.Array{}, Weights: map[string]*gpujob.Array{},
		Numbers: map[string]float32{}, Steps: p.steps, Rate: p.rate, Decay: p.decay, Inexact: p.inexact, Continue: from,
	}
	if folder == "" {
		return command.Usage("train: --out is missing: name the folder for the weights")
	}
	for _, text := range p.in {
		if err := p.array("--in", text, s.In); err != nil {
			return err
		}
	}
	for _, text := range p.weights {
		if err := p.array("--param", text, s.Weights); err != nil {
			return err
		}
	}
	for name, text := range p.numbers {
		v, err := dialect.Float(text, 32)
		if err != nil {
			return command.Usage("--set %s=%s: use a number", name, text)
		}
		s.Numbers[name] = float32(v)
	}
	if err := s.Check(); err != nil {
		return err
	}
	if s.Weights["losses"] != nil {
		return command.Usage("--param losses: the file losses.npy has the loss of each step: use another name")
	}
	return cli.Jobs(func(cmd *cobra.Command, _ []string, c command.JobClient) error {
		return p.submit(cmd, c, s, folder)
	}).Run(cmd, nil)
}

// drawn is the value of a --param without a file.
var drawn = regexp.MustCompile(`^([0-9]{1,8})x([0-9]{1,8})$`)

// array adds the array of a flag to the arrays by name.
func (p *programTraining) array(flag, text string, to map[string]*gpujob.Array) error {
	name, file, found := strings.Cut(text, "=")
	if !found || to[name] != nil {
		return command.Usage("%s %s: use NAME=FILE, each name once", flag, text)
	}
	if shape := drawn.FindStringSubmatch(file); shape != nil && flag == "--param" {
		rows, _ := strconv.ParseInt(shape[1], 10, 64)
		columns, _ := strconv.ParseInt(shape[2], 10, 64)
		if rows*columns > 1<<26 || rows*columns == 0 {
			return command.Usage("%s %s: use 1 to %d elements, or a file", flag, text, 1<<26)
		}
		a := draw(p.seed, name, rows, columns)
		to[name] = &a
		return nil
	}
	a, err := readArrayUpTo(flag, file, largestArrays)
	to[name] = &a
	return err
}

// draw returns the first values of a weight: 0 for one row, otherwise uniform within the inverse of
// the root of the rows, which are the inputs of a product.
func draw(seed uint64, name string, rows, columns int64) gpujob.Array {
	values := make([]float32, rows*columns)
	if rows > 1 {
		h := fnv.New64a()
		h.Write([]byte(name))
		r := rand.New(rand.NewPCG(seed, h.Sum64())) //nolint:gosec // weights are no secrets
		for i := range values {
			values[i] = float32((2*r.Float64() - 1) / math.Sqrt(float64(rows)))
		}
	}
	return gpujob.From(values, rows, columns)
}

// submit submits the job, waits for its result, and writes a file for each weight and for the
// losses.
func (p *programTraining) submit(
	cmd *cobra.Command, c command.JobClient, s *gpujob.TrainProgramSpec, folder string,
) error {
	id, _ := cmd.Flags().GetString("id")
	if id == "" {
		id = natsconn.NewID()
	}
	tenant, _ := cmd.Flags().GetString("tenant")
	arrays := maps.Clone(s.Weights)
	maps.Copy(arrays, s.In)
	if err := storeLarge(cmd, c, "--in", arrays, jobs.Owner{Tenant: tenant, Job: id}); err != nil {
		return err
	}
	j, err := gpujob.NewJob(id, s)
	if err != nil {
		return err
	}
	j.Tenant, j.Submitted, j.Waited = tenant, time.Now().UTC(), true
	out := &gpujob.TrainProgramOutput{}
	shown := time.Now()
	r, err := execute(cmd, c, j, out, func(data json.RawMessage) {
		var at gpujob.TrainProgramProgress // anybody may publish it
		if json.Unmarshal(data, &at) == nil && at.Step > 0 && time.Since(shown) > time.Second {
			shown = time.Now()
			cmd.PrintErrf("step %d of %d: loss %.6g\n", at.Step, s.Steps, at.Loss)
		}
	})
	if err != nil {
		return err
	}
	if err := os.MkdirAll(folder, 0o755); err != nil { //nolint:gosec // results are as readable as other files
		return command.Usage("--out: %v", err)
	}
	out.Weights["losses"] = out.Losses
	for _, name := range slices.Sorted(maps.Keys(out.Weights)) {
		a := out.Weights[name]
		err = errors.Join(err, writeArray(cmd, c, filepath.Join(folder, name+".npy"), &a))
	}
	if err != nil {
		return err
	}
	return show(cmd, r, out.Ran, "LOSS", fmt.Sprintf("%.6g", out.Loss))
}
