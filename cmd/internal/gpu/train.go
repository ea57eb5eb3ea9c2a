package gpu

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/app/userfile"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/gpujob"
	"github.com/exoswarm/exoswarm/jobs/natsq/natsconn"
)

// training are the flags of exoswarm train.
type training struct {
	file, model, hold, predictions, from string
	inputs, csv                          []string
	program                              programTraining
}

// Train returns exoswarm train. The files are read and checked here; the agent trains, and stores
// the model itself, so that it is there also if nobody waits any more.
func Train() *cobra.Command {
	t := &training{}
	cmd := cli.Verb{
		Use:   "train -f swarm.yaml --input PATH [PATH ...] [--out MODEL]",
		Short: "Train a model for a swarm on a table of sequences",
		Long: `Train the weights of a gru on the devices of the GPU agents, as the key train of a specification
says (docs/training.md). PATH is a file or a folder, as for exoswarm run. A row is an event of a
sequence. The model is stored in the place of models of the agents (gpuagent --snapshots; of exoswarm
serve the folder gpu/snapshots below its data folder), also if this command has ended.

A line for each epoch says the loss of training and of validation. The weights with the lowest loss of
validation are the model. The same files and specification give the same bits on every device.

Ctrl-C ends this command, and not the training: exoswarm job watch ID goes on with the lines, and
exoswarm job cancel ID ends it and keeps its last checkpoint. --continue ID goes on from there. With
exoswarm job cancel --finish ID the best weights so far become the model.

With --program the weights of an expression are trained (docs/training.md): --out is a folder then, for
NAME.npy of each --param and losses.npy.`,
		Args: cobra.ArbitraryArgs, // more inputs, as from --input data/*.csv
		Do:   cli.Here(t.run),
	}.Command()
	f := cmd.Flags()
	f.StringVarP(&t.file, "file", "f", "", "specification of the swarm, with the key train (required)")
	f.StringArrayVar(&t.inputs, "input", nil, "file or folder, or - for standard input; may be given several times")
	f.StringVar(&t.model, "out", "", "name of the model; empty: cell.model of the specification. With --program a "+
		"folder")
	f.StringVar(&t.hold, "hold-out", "", "COLUMN=VALUE of the sequences that are not trained with")
	f.StringVar(&t.predictions, "predictions", "", "CSV file for the predictions of the rows of --hold-out: the "+
		"columns uid, position, probability and target")
	f.StringVar(&t.from, "continue", "", "id of a job whose last checkpoint is gone on from, with the same data")
	f.StringArrayVar(&t.csv, "csv", nil, "KEY=VALUE of the dialect of CSV files, in place of csv in the specification")
	t.program.flags(f)
	submissionFlags(f)
	cli.CompleteFlag(cmd, "continue", cli.JobIDs)
	return cmd
}

// run reads the files, submits the job and waits for its result. An error of usage or of the input
// is found before a connection is made.
func (t *training) run(cmd *cobra.Command, args []string) error {
	hold, err := userfile.ParseHoldOut(t.hold)
	if err != nil {
		return err
	}
	inputs := append(slices.Clone(t.inputs), args...)
	if t.program.text != "" {
		if t.file != "" || len(inputs) > 0 {
			return command.Usage("train: --program has no specification and no rows: leave out -f and --input, " +
				"use --in")
		}
		return t.program.run(cmd, t.model, t.from)
	}
	switch {
	case t.file == "":
		return command.Usage("train: -f is missing: name a specification, such as examples/tracing/swarm.yaml")
	case len(inputs) == 0:
		return command.Usage("train: --input is missing: name a file or a folder of them")
	case t.predictions != "" && t.hold == "":
		return command.Usage("train: --predictions is for rows that are held out: add --hold-out COLUMN=VALUE")
	}
	spec, err := userfile.ReadSpec(t.file)
	if err != nil {
		return err
	}
	if err := errors.Join(spec.Trains(), userfile.SetCSV(&spec.CSV, t.csv)); err != nil {
		return command.Usage("train: %s: %v", t.file, err)
	}
	if t.model == "" {
		t.model = spec.Cell.Model
	}
	if t.model == "" {
		return command.Usage("train: --out is missing: name the model")
	}
	data, err := userfile.ReadSequences(cmd.Context(), inputs, cmd.InOrStdin(), spec, hold)
	if err != nil {
		return err
	}
	s, err := trainSpec(spec, data)
	if err != nil {
		return err
	}
	s.Model, s.Continue = t.model, t.from
	if err := s.Check(); err != nil {
		return err
	}
	cmd.PrintErrf("%d sequences with %d moments, %d of them held out\n", len(data.Keys), len(data.Targets),
		data.HeldOut)
	if data.Single > 0 {
		cmd.PrintErrf("left out: %d sequences of one row, whose target has no row before it\n", data.Single)
	}
	return cli.Jobs(func(cmd *cobra.Command, _ []string, c command.JobClient) error {
		return t.submit(cmd, c, spec, data, s)
	}).Run(cmd, nil)
}

// trainSpec returns the specification of the job without its model.
func trainSpec(spec *swarm.Spec, data *userfile.Sequences) (*gpujob.TrainSpec, error) {
	cell, err := spec.Address()
	if err != nil {
		return nil, err
	}
	of := &spec.Train
	moments := int64(len(data.Targets))
	s := &gpujob.TrainSpec{
		Hidden: int(cell.Value("hidden")), Width: cell.Features, Rows: spec.Cell.Embed.Rows, Items: spec.Cell.Items,
		Window: of.Window, Batch: of.Batch, Epochs: of.Epochs, Patience: of.Patience, Rate: float32(of.Rate),
		Clip: float32(of.Clip), Decay: float32(of.Decay), Dropout: float32(of.Dropout), Validate: of.Validate,
		Seed: of.Seed, Lengths: gpujob.From(data.Lengths), HeldOut: data.HeldOut,
		Targets: gpujob.From(data.Targets),
	}
	if s.Rows == 0 {
		s.Inputs = gpujob.From(data.Inputs, moments, int64(s.Width))
	} else {
		numbers := make([]uint32, moments)
		for i, v := range data.Inputs {
			numbers[i] = uint32(v)
		}
		s.Inputs = gpujob.From(numbers)
	}
	if s.Items == 0 {
		s.Candidates = cell.Candidates
	} else {
		asked := gpujob.From(data.Asked)
		s.Asked = &asked
	}
	return s, nil
}

// submit submits the job and shows what it reaches.
func (t *training) submit(
	cmd *cobra.Command, c command.JobClient, spec *swarm.Spec, data *userfile.Sequences, s *gpujob.TrainSpec,
) error {
	id, _ := cmd.Flags().GetString("id")
	if id == "" {
		id = natsconn.NewID()
	}
	tenant, _ := cmd.Flags().GetString("tenant")
	arrays := map[string]*gpujob.Array{"lengths": &s.Lengths, "inputs": &s.Inputs, "targets": &s.Targets}
	if s.Asked != nil {
		arrays["asked"] = s.Asked
	}
	if err := storeLarge(cmd, c, "--input", arrays, jobs.Owner{Tenant: tenant, Job: id}); err != nil {
		return err
	}
	j, err := gpujob.NewJob(id, s)
	if err != nil {
		return err
	}
	j.Tenant, j.Submitted, j.Waited = tenant, time.Now().UTC(), true
	cmd.PrintErrf("job %s: exoswarm job watch %s shows it, exoswarm job cancel %s ends it\n", id, id, id)
	out, shown := &gpujob.TrainOutput{}, trainingShown{devices: 1}
	r, err := execute(cmd, c, j, out, func(data json.RawMessage) {
		var p gpujob.TrainProgress
		if json.Unmarshal(data, &p) == nil { // anybody may publish it
			shown.show(cmd.ErrOrStderr(), p.Devices, p.Epochs)
		}
	})
	if err != nil {
		return err
	}
	shown.show(cmd.ErrOrStderr(), out.Devices, out.Epochs)
	if err := t.writePredictions(cmd, c, spec, data, out); err != nil {
		return err
	}
	best := out.Epochs[out.Best-1]
	columns := []string{"MODEL", "EPOCH", "LOSS", "VALIDATION", "DIGEST", "DEVICE", "DEVICES", "SECONDS", "JOB"}
	if err := cli.PrintOne(cmd, columns, r, out.Name, out.Best, fmt.Sprintf("%.4f", best.Loss),
		fmt.Sprintf("%.4f", best.Validation), out.SHA256, out.Device, out.Devices,
		fmt.Sprintf("%.1f", out.Seconds), r.JobID); err != nil {
		return err
	}
	if out.Predictions != nil {
		cmd.PrintErrf("held out: loss %.4f\n", out.HeldOutLoss)
	}
	cmd.PrintErrf("a swarm has these weights with cell: {model: %s}: exoswarm swarm create -f %s --snapshots PLACE\n",
		out.Name, t.file)
	return nil
}

// trainingShown is what has been shown of a training.
type trainingShown struct{ epoch, devices int }

// show prints a line for each epoch behind the last one that was shown, and for another number of
// devices.
func (s *trainingShown) show(w io.Writer, devices int, all []gpujob.TrainEpoch) {
	if devices > 0 && devices != s.devices {
		s.devices = devices
		fmt.Fprintf(w, "devices that share each batch: %d\n", devices)
	}
	for _, e := range all {
		if e.Epoch <= s.epoch {
			continue
		}
		s.epoch = e.Epoch
		fmt.Fprintf(w, "epoch %d: loss %.4f, validation %.4f\n", e.Epoch, e.Loss, e.Validation)
	}
}

// largeInput is the most bytes of arrays inside a specification.
var largeInput = maxInput

// storeLarge makes objects of arrays that do not fit into a specification. They belong to the job
// that is to be submitted. flag names them in errors.
func storeLarge(
	cmd *cobra.Command, c command.JobClient, flag string, arrays map[string]*gpujob.Array, of jobs.Owner,
) error {
	total := 0
	for _, a := range arrays {
		total += len(a.Data)
	}
	if total <= largeInput {
		return nil
	}
	conn := command.QueueOf(c)
	if conn == nil {
		return command.Usage("%s: arrays of %d bytes, at most %d with the login of a tenant: train on fewer rows",
			flag, total, largeInput)
	}
	for field, a := range arrays {
		name := "train-" + of.Job + "-" + field
		if _, err := conn.Objects.PutObject(cmd.Context(), name, of, bytes.NewReader(a.Data)); err != nil {
			return fmt.Errorf("store %s: %w", field, err)
		}
		a.Object, a.Data = name, nil
	}
	return nil
}

// writePredictions writes the file of --predictions: a row for each moment of the sequences that
// are held out, with its target, if that is known. With two candidates or with items it has one
// probability, the one of 1.
func (t *training) writePredictions(
	cmd *cobra.Command, c command.JobClient, spec *swarm.Spec, data *userfile.Sequences, out *gpujob.TrainOutput,
) (err error) {
	if t.predictions == "" {
		return nil
	}
	a := out.Predictions
	if a.Object != "" {
		if a.Data, err = readObject(cmd, c, a.Object); err != nil {
			return fmt.Errorf("predictions, object %s: %w", a.Object, err)
		}
	}
	values, width := gpujob.Decode[float32](a.Data), int(a.Shape[1])
	first, head := width-1, []string{"uid", "position", "probability"}
	if width > 2 {
		first, head = 0, head[:2]
		for _, name := range spec.Vote.Candidates {
			head = append(head, "probability."+name)
		}
	}
	f, err := os.Create(t.predictions)
	if err != nil {
		return command.Usage("--predictions: %v", err)
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := csv.NewWriter(f)
	err = w.Write(append(head, "target"))
	at := 0
	targets := data.Targets[len(data.Targets)-len(values)/width:]
	for i := len(data.Keys) - data.HeldOut; i < len(data.Keys); i++ {
		for moment := range int(data.Lengths[i]) {
			record := []string{data.Keys[i], strconv.Itoa(moment + spec.Train.Ahead)}
			for _, v := range values[at*width:][first:width] {
				record = append(record, strconv.FormatFloat(float64(v), 'g', -1, 32))
			}
			target := ""
			if targets[at] >= 0 {
				target = strconv.Itoa(int(targets[at]))
			}
			err = errors.Join(err, w.Write(append(record, target)))
			at++
		}
	}
	w.Flush()
	return errors.Join(err, w.Error())
}
