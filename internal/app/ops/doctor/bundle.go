package doctor

// This file writes what is needed to understand a problem of a cluster into one file, and reads it
// back for the doctor.
//
// A bundle never holds job specs, rows, results, credentials or contents of objects: it is made of
// parts that have none, and text passes redaction besides.

import (
	"archive/zip"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/exoswarm/exoswarm/internal/base/redact"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/telemetry"
)

// BundleFormat is the version of the files of a bundle.
const BundleFormat = 1

// BundleCluster is the cluster that a bundle describes. BundleOver makes one.
type BundleCluster interface {
	// BundleFacts returns what the doctor sees.
	Facts(ctx context.Context) *Facts
	// Document returns a document of an agent; see telemetry.CPU and those after it.
	Document(ctx context.Context, agent, what string, seconds int) ([]byte, error)
	// Dead returns at most n dead letters, without their messages.
	Dead(ctx context.Context, n int) ([]jobs.DeadLetter, error)
}

// BundleOptions bound a bundle.
type BundleOptions struct {
	// Profile is the length of the CPU profiles; 0: there are none.
	Profile time.Duration
	// Max is the size of the bundle in bytes before compression; parts beyond it are left out.
	Max int64
	// Agents names the agents to ask; empty: all.
	Agents []string
	// Lite leaves out profiles.
	Lite bool
	// Version is the version of this program.
	Version string
}

// BundleEntry is a file of a bundle.
type BundleEntry struct {
	Name   string `json:"name"`
	Bytes  int    `json:"bytes"`
	SHA256 string `json:"sha256"`
}

// BundleManifest is the first file of a bundle.
type BundleManifest struct {
	Format  int           `json:"format"`
	At      time.Time     `json:"at"`
	Version string        `json:"version"`
	Files   []BundleEntry `json:"files"`
	// Missing are the parts that could not be had, with the reason.
	Missing map[string]string `json:"missing,omitempty"`
	// Redactions counts the words that were replaced.
	Redactions int `json:"redactions"`
}

const (
	partPatience = 20 * time.Second
	deadLetters  = 100
)

// WriteBundle writes a bundle. A part that fails becomes NAME.err.txt and never ends the bundle.
// Profiles of all agents come first and at once, before the bundle itself disturbs them.
func WriteBundle(ctx context.Context, out io.Writer, c BundleCluster, o BundleOptions) (BundleManifest, error) {
	if o.Max <= 0 {
		o.Max = 64 << 20
	}
	b := &builder{
		left: o.Max, files: map[string][]byte{},
		manifest: BundleManifest{
			Format: BundleFormat, At: time.Now().UTC(), Version: o.Version, Missing: map[string]string{},
		},
	}
	facts := c.Facts(ctx)
	agents := o.Agents
	if len(agents) == 0 && facts.State != nil {
		for _, a := range facts.State.Agents {
			if a.Lost == nil {
				agents = append(agents, a.Name)
			}
		}
	}
	if !o.Lite && o.Profile > 0 {
		var wait sync.WaitGroup
		for _, a := range agents {
			wait.Go(func() { b.document(ctx, c, a, telemetry.CPU, ".pprof", o.Profile) })
		}
		wait.Wait()
	}
	for _, a := range agents {
		b.document(ctx, c, a, telemetry.Process, ".json", 0)
		b.document(ctx, c, a, telemetry.Metrics, ".1.txt", 0)
		b.document(ctx, c, a, telemetry.Log, ".jsonl", 0)
		b.document(ctx, c, a, telemetry.Goroutines, ".txt", 0)
		if !o.Lite {
			b.document(ctx, c, a, telemetry.Heap, ".pprof", 0)
		}
	}
	dead, err := c.Dead(ctx, deadLetters)
	for i, d := range dead {
		dead[i].Data = nil
		if d.Reason != nil {
			dead[i].Reason = &jobs.Error{Code: d.Reason.Code, Message: hide(d.Reason.Message)}
		}
	}
	b.json("dead_letters.json", dead, err)
	for _, a := range agents { // some seconds after the first: counters have moved
		b.document(ctx, c, a, telemetry.Metrics, ".2.txt", 0)
	}
	strip(facts)
	b.json("facts.json", facts, nil)
	b.json("doctor.json", Examine(facts), nil)
	return b.finish(out)
}

// strip takes out of the facts what may hold anything: specs of swarms.
func strip(f *Facts) {
	if f.State == nil {
		return
	}
	s := *f.State
	s.Swarms = slices.Clone(s.Swarms)
	for i := range s.Swarms {
		s.Swarms[i].Spec = nil
	}
	s.Agents = slices.Clone(s.Agents)
	f.State = &s
}

type builder struct {
	mu       sync.Mutex
	left     int64
	files    map[string][]byte
	manifest BundleManifest
}

func (b *builder) document(ctx context.Context, c BundleCluster, agent, what, suffix string, profile time.Duration) {
	seconds := int(profile / time.Second)
	try, cancel := context.WithTimeout(ctx, partPatience+profile)
	defer cancel()
	data, err := c.Document(try, agent, what, seconds)
	if what == telemetry.Log {
		data = hideLines(data)
	}
	b.add("agents/"+fileName(agent)+"/"+what+suffix, data, err)
}

// fileName makes a name of a folder of the name of an agent, which anybody may choose.
func fileName(agent string) string {
	name := []rune(agent[:min(len(agent), 100)])
	for i, r := range name {
		if (r < 'a' || r > 'z') && (r < 'A' || r > 'Z') && (r < '0' || r > '9') && r != '-' && r != '_' {
			name[i] = '_'
		}
	}
	return string(name)
}

func (b *builder) json(name string, v any, err error) {
	var data []byte
	if err == nil {
		data, err = json.MarshalIndent(v, "", " ")
	}
	b.add(name, data, err)
}

// add takes a part, or the reason why it is missing.
func (b *builder) add(name string, data []byte, err error) {
	if err == nil && !binary(name) {
		clean := redact.Secrets(string(data))
		if clean != string(data) {
			b.mu.Lock()
			b.manifest.Redactions++
			b.mu.Unlock()
			data = []byte(clean)
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if err == nil && int64(len(data)) > b.left {
		err = fmt.Errorf("it has %d bytes, and %d are left of the limit of the bundle", len(data), b.left)
	}
	if err != nil {
		text := redact.Secrets(err.Error())
		b.manifest.Missing[name] = text
		name, data = name+".err.txt", []byte(text+"\n")
	}
	b.left -= int64(len(data))
	b.files[name] = data
}

func binary(name string) bool { return len(name) > 6 && name[len(name)-6:] == ".pprof" }

func (b *builder) finish(out io.Writer) (BundleManifest, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for name, data := range b.files {
		sum := sha256.Sum256(data)
		b.manifest.Files = append(b.manifest.Files, BundleEntry{name, len(data), hex.EncodeToString(sum[:])})
	}
	slices.SortFunc(b.manifest.Files, func(x, y BundleEntry) int { return cmp.Compare(x.Name, y.Name) })
	z := zip.NewWriter(out)
	write := func(name string, data []byte) error {
		w, err := z.CreateHeader(&zip.FileHeader{Name: name, Method: zip.Deflate, Modified: b.manifest.At})
		if err == nil {
			_, err = w.Write(data)
		}
		return err
	}
	head, err := json.MarshalIndent(b.manifest, "", " ")
	if err != nil {
		return b.manifest, fmt.Errorf("write a bundle: %w", err)
	}
	if err := write("manifest.json", head); err != nil {
		return b.manifest, fmt.Errorf("write a bundle: %w", err)
	}
	for _, f := range b.manifest.Files {
		if err := write(f.Name, b.files[f.Name]); err != nil {
			return b.manifest, fmt.Errorf("write a bundle: %w", err)
		}
	}
	if err := z.Close(); err != nil {
		return b.manifest, fmt.Errorf("write a bundle: %w", err)
	}
	return b.manifest, nil
}

// ErrBundle marks a file that is no bundle, or one of a later version.
var ErrBundle = errors.New("not a bundle of this version")

// maxFacts bounds the facts of a bundle that is read: anybody may have made it.
const maxFacts = 256 << 20

// BundleFacts reads the facts of a bundle.
func BundleFacts(in io.ReaderAt, size int64) (*Facts, error) {
	z, err := zip.NewReader(in, size)
	if err != nil {
		return nil, fmt.Errorf("read a bundle: %w: %w", ErrBundle, err)
	}
	var m BundleManifest
	if err := decode(z, "manifest.json", &m); err != nil {
		return nil, err
	}
	if m.Format != BundleFormat {
		return nil, fmt.Errorf("read a bundle: %w: it has format %d, this program reads %d", ErrBundle, m.Format,
			BundleFormat)
	}
	f := &Facts{}
	return f, decode(z, "facts.json", f)
}

func decode(z *zip.Reader, name string, v any) error {
	f, err := z.Open(name)
	if err != nil {
		return fmt.Errorf("read a bundle: %w: %w", ErrBundle, err)
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxFacts)).Decode(v); err != nil {
		return fmt.Errorf("read a bundle: %s: %w: %w", name, ErrBundle, err)
	}
	return nil
}
