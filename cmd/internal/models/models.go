// Package models has the commands of exoswarm model, and opens the place of models and snapshots for
// other commands.
package models

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exoswarm/exoswarm/cmd/internal/cli"
	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/internal/app/bucket"
	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/gguf"
	"github.com/exoswarm/exoswarm/internal/base/safetensors"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// Command returns exoswarm model. Its commands read and write the place of snapshots. They ask the
// GPU agents of a cluster about the models that they hold if one is named. run is a further one.
func Command(run cli.Verb) *cobra.Command {
	verb := func(
		use, short, long string, do func(cmd *cobra.Command, b bucket.Bucket, c *natsq.Conn, names []string) error,
	) cli.Verb {
		return cli.Verb{
			Use: use, Short: short, Long: short + ".\n\n" + long, Lists: true, Flags: PlaceFlags,
			Do: cli.Link(func(cmd *cobra.Command, args []string) (err error) {
				b, err := openPlace(cmd, strings.HasPrefix(use, "load "))
				if err != nil {
					return err
				}
				defer func() { err = errors.Join(err, b.Close()) }()
				return withCluster(cmd, func(c *natsq.Conn) error { return do(cmd, b, c, args) })
			}),
		}
	}
	load := verb("load NAME [--file FILE|FOLDER]", "Store trained weights, or a language model, as a model",
		`A FILE of safetensors, of at most 160 MiB, is the weights of a gru. A specification names the model
(cell: {kind: gru, model: NAME}), and exoswarm swarm adopt changes a swarm to it.

A FILE of GGUF, or a FOLDER with config.json and model.safetensors, or with several files and
model.safetensors.index.json, is a language model of the families llama, mistral, qwen2 or qwen3. The
types F32, F16, BF16, Q8_0, Q4_0, Q4_K and Q6_K are read. tokenizer.json and tokenizer_config.json of
the folder are stored with it. Nothing in a file is executed.

A model never changes: a name is taken once. The digest, the SHA-256 of the manifest, pins it.

With --nats, or beside exoswarm serve in this folder, all GPU agents of the cluster also hold the
language model in the memory of their devices, until exoswarm model unload or the end of the agent
process. Without --file a model that is stored is held. The command waits until it is.`, modelLoad)
	load.Flags = func(f *pflag.FlagSet) {
		PlaceFlags(f)
		f.String("file", "", "file of safetensors or GGUF, or folder of a language model")
		f.String("licence", "", "licence of a language model, such as Apache-2.0; as the GGUF file says if empty")
		f.String("source", "", "where a language model is from; as the GGUF file says if empty")
		f.Bool("exact", true, "have agents hold all tensors as F32, as swarms with exact: true do; else BF16 and Q8_0 "+
			"stay as they are")
		f.Duration("timeout", 10*time.Minute, "longest wait for the agents; they load further")
	}
	remove := verb("delete NAME", "Delete a model",
		`Keep a model as long as a swarm has its weights: an agent process reads it when it starts to serve
the swarm.`, modelDelete)
	remove.Flags = func(f *pflag.FlagSet) {
		PlaceFlags(f)
		f.Bool("yes", false, "do not ask for confirmation")
	}
	remove.Lists = false
	return cli.Noun{
		Use: "model", Short: "Keep trained weights as named models, for swarms",
		Verbs: []cli.Verb{
			load,
			verb("list", "List the models", "A model that cannot be read is an item with an error. HELD has the "+
				"devices that hold the model, of a\ncluster that --nats names.", modelList),
			verb("info NAME", "Show the tensors of a model, their types and shapes",
				"A summary has the parameters, the files, and what each device of the cluster holds. It reads the\n"+
					"manifest alone.", modelInfo),
			verb("verify [NAME...]", "Read the files of the named models, or of all, and compare their checksums",
				"It decodes the tensors of language models. With --nats the GPU agents of the cluster compare what\n"+
					"they hold with its claims too. It fails in the end if one is damaged.", modelVerify),
			tokensVerb,
			run,
			unloadVerb,
			remove,
		},
	}.Command()
}

// PlaceFlags adds the flags of the place of models.
func PlaceFlags(f *pflag.FlagSet) {
	f.String("snapshots", "", "folder, s3://BUCKET/PREFIX or gs://BUCKET/PREFIX of the models and snapshots, as for "+
		"gpuagent --snapshots; empty: of exoswarm serve in this folder, also before it is started")
	KeyFileFlag(f)
}

// OpenPlace opens the place of --snapshots. Without it, the place is of exoswarm serve in this folder,
// whether it runs or not, unless the flags name another cluster. The caller closes it.
func OpenPlace(cmd *cobra.Command) (bucket.Bucket, error) { return openPlace(cmd, false) }

// openPlace is OpenPlace. Without create a place of exoswarm serve that is not there is an error of
// usage.
func openPlace(cmd *cobra.Command, create bool) (bucket.Bucket, error) {
	place, _ := cmd.Flags().GetString("snapshots")
	served := command.ServedFolder()
	switch {
	case place != "":
	case served != "":
		place = filepath.Join(served, command.ServedSnapshots)
	case command.NamesServer(cmd):
		return nil, command.Usage("--snapshots is missing: name the place of the models, as the GPU agents have it")
	default:
		place = filepath.Join(command.DataFolder(), command.ServedSnapshots)
		if _, err := os.Stat(place); err != nil && !create {
			return nil, command.Usage("no models are stored here: there is no folder %s: load one with exoswarm model "+
				"load NAME --file FILE, or name the place of the models with --snapshots", place)
		}
	}
	return OpenBucket(cmd, place)
}

// modelItem is an item of the commands about models.
type modelItem struct {
	Name    string `json:"name"`
	Tensors int    `json:"tensors,omitempty"`
	Bytes   int64  `json:"bytes,omitempty"`
	SHA256  string `json:"sha256,omitempty"` // of the manifest
	Error   string `json:"error,omitempty"`

	// Of a language model.
	Parameters *architecture.Parameters `json:"parameters,omitempty"`
	Tokenizer  string                   `json:"tokenizer,omitempty"`
	Licence    string                   `json:"licence,omitempty"`
	Source     string                   `json:"source,omitempty"`

	Held []heldItem `json:"held,omitempty"`
}

var modelTable = cli.Table[modelItem]{
	Columns: []string{"MODEL", "TENSORS", "BYTES", "DIGEST", "HELD", "ERROR"},
	Row: func(m modelItem) []any {
		if m.Error != "" {
			return []any{m.Name, "", "", "", heldText(m.Held), m.Error}
		}
		return []any{m.Name, m.Tensors, command.Size(m.Bytes), m.SHA256, heldText(m.Held), ""}
	},
}

func itemOf(m *model.Manifest, digest string) modelItem {
	return modelItem{
		Name: m.Name, Tensors: len(m.Tensors), Bytes: m.Bytes(), SHA256: digest,
		Parameters: m.Parameters, Tokenizer: m.Tokenizer, Licence: m.Licence, Source: m.Source,
	}
}

// modelLoad stores the file or the folder of --file as a model, has the agents of a cluster hold it,
// and prints it. The same content under the same name changes nothing.
//
// Fields: name, tensors (their number), bytes, and sha256 of the manifest; of a language model also
// parameters, tokenizer (the file that has it), licence and source, and held, a heldItem for each
// device.
func modelLoad(cmd *cobra.Command, b bucket.Bucket, c *natsq.Conn, names []string) (err error) {
	file, _ := cmd.Flags().GetString("file")
	if file == "" && c == nil {
		return command.Usage("model load: --file is missing: name a file of safetensors or GGUF, or the folder of a " +
			"language model")
	}
	if err := jobs.CheckID("model", names[0]); err != nil {
		return command.Usage("model load: %v", err)
	}
	var m *model.Manifest
	var digest string
	if file == "" {
		m, digest, err = model.ReadManifest(cmd.Context(), b, names[0])
	} else {
		m, digest, err = storeModel(cmd, b, names[0], file)
	}
	if err != nil {
		return err
	}
	item := itemOf(m, digest)
	if c != nil && m.Parameters != nil {
		item.Held, err = holdModel(cmd, c, swarms.ModelRef{Name: m.Name, SHA256: digest})
	}
	if err = errors.Join(modelTable.Print(cmd, item), err); err != nil {
		return err
	}
	if place, _ := cmd.Flags().GetString("snapshots"); c == nil && place == "" && m.Parameters != nil {
		cmd.PrintErrf("model %s is stored: talk with it (exoswarm chat %[1]s), or serve it to programs (exoswarm "+
			"serve --models %[1]s)\n", m.Name)
	}
	return nil
}

// storeModel stores the file or folder of --file.
func storeModel(
	cmd *cobra.Command, b bucket.Bucket, name, file string,
) (m *model.Manifest, digest string, err error) {
	var about model.About
	about.Licence, _ = cmd.Flags().GetString("licence")
	about.Source, _ = cmd.Flags().GetString("source")
	files, err := openParts(file)
	defer func() { err = errors.Join(err, files.Close()) }()
	if err != nil {
		return nil, "", err
	}
	if files.cell != nil {
		var data []byte
		if data, err = io.ReadAll(io.LimitReader(files.cell, model.MaxBytes+1)); err != nil {
			return nil, "", fmt.Errorf("read %s: %w", file, err)
		}
		if about != (model.About{}) {
			return nil, "", command.Usage("--licence and --source: the weights of a gru have neither")
		}
		m, digest, err = model.Save(cmd.Context(), b, name, data)
	} else {
		m, digest, err = model.Load(cmd.Context(), b, name, files.Files, about)
	}
	for _, class := range []error{
		safetensors.ErrFormat, gguf.ErrFormat, architecture.ErrArchitecture, model.ErrFiles, model.ErrTooLarge,
		model.ErrExists,
	} {
		if errors.Is(err, class) {
			return nil, "", command.Usage("--file %s: %v", file, err)
		}
	}
	return m, digest, err
}

// modelList prints the complete models by name, one item for each. A manifest that cannot be read
// is an item with an error.
func modelList(cmd *cobra.Command, b bucket.Bucket, c *natsq.Conn, _ []string) error {
	names, err := model.Names(cmd.Context(), b)
	if err != nil {
		return err
	}
	held, err := heldModels(cmd, c)
	if err != nil {
		return err
	}
	return modelTable.Stream(cmd, 0, func(fn func(modelItem) bool) error {
		for _, name := range names {
			item := modelItem{Name: name}
			m, digest, err := model.ReadManifest(cmd.Context(), b, name)
			switch {
			case errors.Is(err, model.ErrNotFound): // it is being written, or was given up
				continue
			case err != nil:
				item.Error = err.Error()
			default:
				item = itemOf(m, digest)
			}
			if item.Held = held[name]; !fn(item) {
				break
			}
		}
		return nil
	})
}

var tensorTable = cli.Table[model.Tensor]{
	Columns: []string{"TENSOR", "TYPE", "SHAPE"},
	Row:     func(t model.Tensor) []any { return []any{t.Name, t.Type, fmt.Sprint(t.Shape)} },
}

// modelInfo prints one item for each tensor of a model, and a summary to stderr.
//
// Fields of a tensor: name, dtype, shape, and file, the index of its file, which is left out if it
// is 0.
func modelInfo(cmd *cobra.Command, b bucket.Bucket, c *natsq.Conn, names []string) error {
	m, digest, err := model.ReadManifest(cmd.Context(), b, names[0])
	if err != nil {
		return err
	}
	held, err := heldModels(cmd, c)
	if err != nil {
		return err
	}
	defer printHeld(cmd, held[names[0]])
	if err := tensorTable.Print(cmd, m.Tensors...); err != nil {
		return err
	}
	if p := m.Parameters; p != nil {
		cmd.PrintErrf("%s: family %s, %d layers of width %d and %d, %d heads of %d, %d of keys and values, "+
			"vocabulary %d, context %d\n", m.Name, p.Family, p.Layers, p.Width, p.Inner, p.Heads, p.HeadWidth,
			p.KVHeads, p.Vocabulary, p.Context)
		cmd.PrintErrf("%s: tokenizer %s, licence %q, source %q\n", m.Name, cmp.Or(m.Tokenizer, "none"),
			cmp.Or(m.Licence, "unknown"), cmp.Or(m.Source, "unknown"))
	}
	if len(m.Files) > 1 {
		for _, f := range m.Files {
			cmd.PrintErrf("%s: file %s, %s, SHA-256 %s\n", m.Name, f.Name, command.Size(f.Bytes), f.SHA256)
		}
		cmd.PrintErrf("%s: %d tensors, %s, digest %s\n", m.Name, len(m.Tensors), command.Size(m.Bytes()), digest)
		return nil
	}
	cmd.PrintErrf("%s: %d tensors, %s, SHA-256 of the file %s, digest %s\n", m.Name, len(m.Tensors),
		command.Size(m.Bytes()), m.Files[0].SHA256, digest)
	return nil
}

// modelVerify reads the files of the named models, or of all, and prints an item for each. It fails
// in the end when one is damaged or missing.
func modelVerify(cmd *cobra.Command, b bucket.Bucket, c *natsq.Conn, names []string) error {
	named := len(names) > 0
	if !named {
		var err error
		if names, err = model.Names(cmd.Context(), b); err != nil {
			return err
		}
	}
	var bad []error
	err := modelTable.Stream(cmd, 0, func(fn func(modelItem) bool) error {
		for _, name := range names {
			m, digest, err := model.ReadManifest(cmd.Context(), b, name)
			if !named && errors.Is(err, model.ErrNotFound) {
				continue
			}
			if err == nil {
				err = m.Verify(cmd.Context(), b)
			}
			if cmd.Context().Err() != nil {
				return errors.Join(err, command.ErrInterrupted)
			}
			item := modelItem{Name: name}
			if err != nil {
				item.Error = err.Error()
				bad = append(bad, err)
			} else {
				item = itemOf(m, digest)
			}
			if !fn(item) {
				break
			}
		}
		return nil
	})
	return errors.Join(append(bad, err, checkClaims(cmd, c))...)
}

// modelDelete removes a model after a confirmation, or without one with --yes.
func modelDelete(cmd *cobra.Command, b bucket.Bucket, _ *natsq.Conn, names []string) error {
	if err := jobs.CheckID("model", names[0]); err != nil {
		return command.Usage("model delete: %v", err)
	}
	if _, _, err := model.ReadManifest(cmd.Context(), b, names[0]); errors.Is(err, model.ErrNotFound) {
		return err
	}
	if err := command.Confirm(cmd, fmt.Sprintf("delete model %s, without which no agent process starts to serve a "+
		"swarm that has its weights", names[0])); err != nil {
		return err
	}
	if err := b.Remove(cmd.Context(), model.Folder(names[0])); err != nil {
		return err
	}
	cmd.PrintErrf("model %s is deleted\n", names[0])
	return nil
}

// modelFiles are the open files of a model to load. The caller closes them, also after an error.
type modelFiles struct {
	model.Parts          // of a language model
	cell        *os.File // the weights of a cell; nil: it is a language model
}

// Close closes the files.
func (m *modelFiles) Close() error {
	if m.cell == nil {
		return m.Parts.Close()
	}
	return errors.Join(m.Parts.Close(), m.cell.Close())
}

// openParts opens the file of a model, or the files of a folder that a language model has.
func openParts(name string) (*modelFiles, error) {
	m := &modelFiles{}
	path, err := filepath.Abs(name)
	if err != nil {
		return m, fmt.Errorf("--file: %w", err)
	}
	is, err := m.Open(os.DirFS(filepath.Dir(path)), filepath.Base(path))
	if err == nil && !is {
		m.cell, err = os.Open(path)
	}
	if err != nil {
		return m, command.Usage("--file %s: %v", name, err)
	}
	return m, nil
}
