package worker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"

	"github.com/exoswarm/exoswarm/gpuagents/model"
	"github.com/exoswarm/exoswarm/gpuagents/transformer"
	"github.com/exoswarm/exoswarm/gpuagents/weights"
	"github.com/exoswarm/exoswarm/internal/base/architecture"
	"github.com/exoswarm/exoswarm/internal/base/tokenizer"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// pagePositions is the number of positions of a page of keys and values. An inference has all its
// pages in one buffer from its start, so the number decides only what is allocated beyond its last
// position.
const pagePositions = 64

// loaded is a language model in device memory.
type loaded struct {
	life
	session *session
	info    ModelInfo
	holder  *weights.Holder // of this model alone
	weights *weights.Model
	words   *tokenizer.Tokenizer

	mu      sync.Mutex // held during each call of machine
	machine *transformer.Machine
}

func (m *loaded) kind() string   { return "model" }
func (m *loaded) parent() object { return m.session }

func (m *loaded) close(l *Library) error {
	defer m.session.parts.Done()
	return errors.Join(l.end(m, &m.life), m.machine.Close(), m.weights.Release())
}

// ModelInfo describes a model.
type ModelInfo struct {
	Name       string // the last part of the path
	Parameters *architecture.Parameters
	Bytes      uint64 // of device memory that the weights have
}

// source is a model of files that nobody else has open.
type source struct {
	*model.Opened
	files *model.Parts
}

func (s source) Close() error { return errors.Join(s.Opened.Close(), s.files.Close()) }

// openSource opens the model of a path, and its tokenizer. The caller closes the source.
func openSource(path string) (_ weights.Source, words *tokenizer.Tokenizer, err error) {
	if path, err = filepath.Abs(path); err != nil {
		return nil, nil, err
	}
	s := source{files: &model.Parts{}}
	is, err := s.files.Open(os.DirFS(filepath.Dir(path)), filepath.Base(path))
	if err == nil && !is {
		err = fmt.Errorf("%w: name a file of GGUF, or a folder with safetensors", model.ErrFiles)
	}
	if err == nil {
		s.Opened, err = model.OpenFiles(filepath.Base(path), s.files.Files)
	}
	if err == nil {
		words, err = model.Words(s.files.Files)
	}
	if err != nil {
		return nil, nil, errors.Join(err, s.files.Close())
	}
	return s, words, nil
}

// LoadModel loads the model of a path into the memory of the device of a context: a GGUF file, or a
// folder with config.json, safetensors and tokenizer.json. All weights fit there, or the error is
// an ErrRoom of package weights. Each call has a copy of its own.
func (l *Library) LoadModel(
	ctx context.Context, session uint64, path string,
) (handle uint64, info ModelInfo, err error) {
	s, err := l.session(session)
	if err != nil {
		return 0, info, err
	}
	defer s.done()
	m := &loaded{session: s}
	if err := m.load(ctx, path); err != nil {
		return 0, info, fmt.Errorf("load %s: %w", path, err)
	}
	s.parts.Add(1)
	if handle, err = l.handles.put(m, 0); err != nil {
		return 0, info, errors.Join(err, m.close(l))
	}
	return handle, m.info, nil
}

func (m *loaded) load(ctx context.Context, path string) (err error) {
	m.holder = weights.NewHolder(m.session.device, nil)
	ref := weights.Ref{ModelRef: swarms.ModelRef{Name: filepath.Base(path)}}
	m.weights, err = m.holder.Hold(ctx, ref, func(context.Context) (weights.Source, error) {
		s, words, err := openSource(path)
		m.words = words
		return s, err
	})
	if err != nil {
		return err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, m.weights.Release())
		}
	}()
	p := m.weights.Parameters()
	held := m.holder.Models()[0]
	if held.Passing > 0 {
		return fmt.Errorf("%w: %d of %d layers fit into the memory of the device", weights.ErrRoom,
			held.Layers-held.Passing, held.Layers)
	}
	if m.words.Size() > p.Vocabulary {
		return fmt.Errorf("%w: the tokenizer has %d tokens, and the model %d", model.ErrFiles, m.words.Size(),
			p.Vocabulary)
	}
	m.info = ModelInfo{strings.TrimSuffix(ref.Name, ".gguf"), p, uint64(held.Device)}
	m.machine, err = transformer.New(ctx, m.session.device, transformer.Options{
		Parameters: *p, PagePositions: pagePositions,
	}, m.weights)
	return err
}

// model returns a model that stays open until the caller calls done of it.
func (l *Library) model(handle uint64) (*loaded, error) {
	m, _, err := find[*loaded](&l.handles, handle)
	if err != nil {
		return nil, err
	}
	return m, m.begin(handle)
}

// ModelInfo describes a model.
func (l *Library) ModelInfo(handle uint64) (ModelInfo, error) {
	m, err := l.model(handle)
	if err != nil {
		return ModelInfo{}, err
	}
	defer m.done()
	return m.info, nil
}

// CheckResidency compares the checksums of all weights in device memory with the checksums of the loaded
// ones. A pages.ErrResidency says that they differ. They are loaded again then, and later calls of
// Next for the model fail: what it has computed may be wrong.
func (l *Library) CheckResidency(ctx context.Context, handle uint64) error {
	m, err := l.model(handle)
	if err != nil {
		return err
	}
	defer m.done()
	if _, _, err := m.holder.Audit(ctx, true); err != nil {
		return err
	}
	return m.weights.Intact()
}

// FreeModel frees a model with its inferences. A handle of 0 is no error.
func (l *Library) FreeModel(handle uint64) error { return free[*loaded](l, handle) }
