package snapshot

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"regexp"
	"time"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// The versions of the format that this code writes and reads: of a whole swarm, and of one shard of
// several.
const (
	Version      = 1
	ShardVersion = 2
)

const format = "exoswarm-snapshot"

// ManifestName is the object that describes a snapshot. It is written last, so a snapshot without
// it does not exist, whatever files are there.
const ManifestName = "manifest.json"

// Limits of a manifest.
const (
	// maxManifest is in bytes. A file of 64 MiB takes about 200 of them, so a manifest describes up
	// to 20 TB.
	maxManifest  = 64 << 20
	maxVariables = 64
	maxWidth     = 1 << 16
	maxPerGroup  = 1 << 16
)

// FileBytes is the approximate size of a file: a file has as many groups as fit for the largest
// variable, and one at least. It is large compared with the cost of opening and syncing a file, and
// small enough that a state of a gigabyte keeps all writers busy.
const FileBytes = 64 << 20

// Manifest describes a snapshot. It holds neither a time nor a place of its writer, so two writers
// of the same state write the same bytes.
type Manifest struct {
	Format  string `json:"format"`
	Version int    `json:"v"`
	Name    string `json:"name"`
	// Swarm is the swarm of the state. Entry is the last entry of its log that the state includes:
	// the entry that asked for the snapshot.
	Swarm Origin `json:"swarm"`
	Entry uint64 `json:"entry"`
	// Round is the last round in which the agents have voted, up to Entry; 0: there was none.
	Round uint64 `json:"round,omitempty"`
	// Outcome is the decision of the last round that was concluded; nil: there was none.
	Outcome *swarms.Voted `json:"outcome,omitempty"`
	// Model is the model that the agents have adopted last; nil: they have the weights of Spec.
	Model *swarms.ModelRef `json:"model,omitempty"`
	// Shard describes the part of the swarm, if it has several shards; nil: the snapshot has all
	// groups.
	Shard *Shard `json:"shard,omitempty"`
	// Cell and Seed are copied from Spec, which is the specification in the record of the swarm.
	Cell string          `json:"cell"`
	Seed uint64          `json:"seed"`
	Spec json.RawMessage `json:"spec"`
	// Agents is the number of agents in this snapshot: Groups times PerGroup. File k of a variable
	// has up to PerFile groups, from group k times PerFile on.
	Agents    int64      `json:"agents"`
	Groups    int        `json:"groups"`
	PerGroup  int        `json:"agents_per_group"`
	PerFile   int        `json:"groups_per_file"`
	Variables []Variable `json:"variables"`
}

// Origin identifies a swarm. Created and Nonce tell it from an earlier or later swarm of the same
// id.
type Origin struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
	Nonce   string    `json:"nonce,omitempty"` // as in the swarm's record; earlier versions have none
}

// OriginOf returns the origin of snapshots of s.
func OriginOf(s swarms.Swarm) Origin {
	return Origin{ID: s.ID, Name: s.Name, Created: s.Created, Nonce: s.Nonce}
}

// Of reports whether s is the swarm.
func (o Origin) Of(s swarms.Swarm) bool { return o.same(OriginOf(s)) }

// same ignores the name, which does not identify a swarm.
func (o Origin) same(p Origin) bool {
	return o.ID == p.ID && o.Created.Equal(p.Created) && o.Nonce == p.Nonce
}

// Shard is a part of the groups of a swarm, see swarms.Swarm.ShardGroups.
type Shard struct {
	Number int `json:"number"`      // from 0 on
	Of     int `json:"of"`          // 2 or more
	First  int `json:"first_group"` // number, in the swarm, of its first group
	Groups int `json:"groups"`      // groups of the swarm
}

// First returns the number in the swarm of the first group of the snapshot.
func (m *Manifest) First() int {
	if m.Shard == nil {
		return 0
	}
	return m.Shard.First
}

// Variable is one state variable: rows of Width elements, one row for each agent or group in their
// order. Elements are little-endian.
type Variable struct {
	Name  string `json:"name"`
	DType string `json:"dtype"` // float32, uint32, uint64, int64, uint8, or bfloat16 in files of uint16
	Per   string `json:"per"`   // agent or group
	Width int    `json:"width"`
	Files []File `json:"files"`
}

// File is one .npy file.
type File struct {
	Name   string `json:"name"`
	Rows   int64  `json:"rows"`
	Bytes  int64  `json:"bytes"`  // with its header
	SHA256 string `json:"sha256"` // of the whole file
}

// variable describes v, without files.
func variable(v kernels.Var) Variable {
	per := "agent"
	if v.Group {
		per = "group"
	}
	return Variable{Name: v.Name, DType: elements[v.Elem].dtype, Per: per, Width: v.Width}
}

// array returns the array that the header of file k of a variable must describe.
func (m *Manifest) array(v, k int) array {
	of := m.Variables[v]
	elem, _ := elemOf(of.DType)
	rows := int64(m.part(k).n)
	if of.Per == "agent" {
		rows *= int64(m.PerGroup)
	}
	return array{elements[elem].descr, rows, int64(of.Width)}
}

func (m *Manifest) parts() int { return (m.Groups + m.PerFile - 1) / m.PerFile }

// part returns the groups of file k, counted from the first group of the snapshot. Only the last
// file may have fewer than PerFile.
func (m *Manifest) part(k int) slots {
	first := k * m.PerFile
	return slots{first, min(m.PerFile, m.Groups-first)}
}

// Bytes returns the sum of the lengths of all files, without the manifest.
func (m *Manifest) Bytes() (n int64) {
	for _, v := range m.Variables {
		for _, f := range v.Files {
			n += f.Bytes
		}
	}
	return n
}

// plan fills in variables and files from a layout, without checksums. Groups must be set, and Shard
// for one of several shards.
func (m *Manifest) plan(l *kernels.Layout, fileBytes int) {
	largest := 1
	m.Variables = nil
	for _, v := range l.Vars {
		m.Variables = append(m.Variables, variable(v))
		largest = max(largest, rowBytes(v)*rowsPerGroup(v, l.Agents))
	}
	m.Version = Version
	if m.Shard != nil {
		m.Version = ShardVersion
	}
	m.Format, m.PerGroup, m.Agents = format, l.Agents, int64(m.Groups)*int64(l.Agents)
	m.PerFile = min(max(1, fileBytes/largest), m.Groups)
	for v := range m.Variables {
		for k := range m.parts() {
			m.Variables[v].Files = append(m.Variables[v].Files, m.file(v, k))
		}
	}
}

// file returns the description of file k of a variable without its checksum. check compares stored
// descriptions with it.
func (m *Manifest) file(v, k int) File {
	a, of := m.array(v, k), m.Variables[v]
	elem, _ := elemOf(of.DType)
	return File{
		Name: fmt.Sprintf("%s-%05d.npy", of.Name, k), Rows: a.rows,
		Bytes: int64(len(a.header())) + a.rows*a.width*int64(elem.Bytes()),
	}
}

var (
	variableName = regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`)
	sumPattern   = regexp.MustCompile(`^[0-9a-f]{64}$`)
)

// ParseManifest reads a manifest from bytes that anybody may have written. It returns one whose
// parts agree with each other, an ErrCorrupt, or an ErrMismatch for another version of the format.
// So a loader may rely on the names, sizes and numbers in it; that the files match is checked when
// they are read.
func ParseManifest(data []byte) (*Manifest, error) {
	bad := func(format string, args ...any) error {
		return fmt.Errorf("%w: %s: %s", ErrCorrupt, ManifestName, fmt.Sprintf(format, args...))
	}
	var head struct {
		Format  string `json:"format"`
		Version int    `json:"v"`
	}
	if err := json.Unmarshal(data, &head); err != nil {
		return nil, bad("%v", err)
	}
	if head.Format != format {
		return nil, bad("its format is %.100q, not %q", head.Format, format)
	}
	if head.Version != Version && head.Version != ShardVersion {
		return nil, fmt.Errorf("%w: it is of version %d of the format, this program reads %d and %d: update the "+
			"older side", ErrMismatch, head.Version, Version, ShardVersion)
	}
	m := &Manifest{}
	dec := json.NewDecoder(bytes.NewReader(data))
	dec.DisallowUnknownFields()
	if err := dec.Decode(m); err != nil {
		return nil, bad("%v", err)
	}
	if err := m.check(bad); err != nil {
		return nil, err
	}
	return m, nil
}

// check returns the error of bad for the first part that contradicts another. It checks sizes
// before it computes with them.
func (m *Manifest) check(bad func(string, ...any) error) error {
	for what, id := range map[string]string{"name": m.Name, "swarm.id": m.Swarm.ID} {
		if err := jobs.CheckID(what, id); err != nil {
			return bad("%v", err)
		}
	}
	switch {
	case m.Groups < 1 || m.Groups > swarms.MaxGroups || m.PerGroup < 1 || m.PerGroup > maxPerGroup ||
		m.Agents != int64(m.Groups)*int64(m.PerGroup):
		return bad("%d agents in %d groups of %d", m.Agents, m.Groups, m.PerGroup)
	case m.PerFile < 1 || m.PerFile > m.Groups:
		return bad("%d groups a file of %d", m.PerFile, m.Groups)
	case m.Model != nil && m.Model.Validate() != nil:
		return bad("%v", m.Model.Validate())
	case m.Entry < 1:
		return bad("it is of no log entry")
	case (m.Version == ShardVersion) != (m.Shard != nil):
		return bad("version %d is of a shard, and version %d of a whole swarm", ShardVersion, Version)
	case m.Shard != nil && !m.Shard.has(m.Groups):
		return bad("%d groups of shard %d of %d, from %d on, of %d", m.Groups, m.Shard.Number, m.Shard.Of,
			m.Shard.First, m.Shard.Groups)
	case len(m.Variables) < 1 || len(m.Variables) > maxVariables:
		return bad("%d variables", len(m.Variables))
	}
	seen := map[string]bool{}
	for v, of := range m.Variables {
		if !variableName.MatchString(of.Name) || seen[of.Name] {
			return bad("variable %.100q is no name, or is there twice", of.Name)
		}
		seen[of.Name] = true
		if _, ok := elemOf(of.DType); !ok || of.Per != "agent" && of.Per != "group" || of.Width < 1 ||
			of.Width > maxWidth {
			return bad("variable %s: %d elements of type %.100q a %.100q", of.Name, of.Width, of.DType, of.Per)
		}
		if len(of.Files) != m.parts() {
			return bad("variable %s has %d files of %d", of.Name, len(of.Files), m.parts())
		}
		for k, f := range of.Files {
			want := m.file(v, k)
			want.SHA256 = f.SHA256
			if f != want || !sumPattern.MatchString(f.SHA256) {
				return bad("file %d of variable %s is %.100q of %d rows and %d bytes, want %q of %d and %d, and a "+
					"SHA-256", k, of.Name, f.Name, f.Rows, f.Bytes, want.Name, want.Rows, want.Bytes)
			}
		}
	}
	return nil
}

// has reports whether a shard with these numbers has the given number of groups. The division must
// equal the one of swarms.Swarm, or parts of a set would overlap.
func (s *Shard) has(groups int) bool {
	if s.Of < 2 || s.Of > swarms.MaxShards || s.Number < 0 || s.Number >= s.Of || s.Groups < s.Of ||
		s.Groups > swarms.MaxGroups {
		return false
	}
	first, end := swarms.Swarm{Groups: s.Groups, Shards: s.Of}.ShardGroups(s.Number)
	return s.First == first && groups == end-first
}

// ReadManifest reads the manifest of a snapshot. digest is its SHA-256, which identifies the whole
// snapshot, since the manifest has the checksum of every file. A name without a manifest is an
// ErrNotFound.
func ReadManifest(ctx context.Context, store Store, name string) (m *Manifest, digest string, err error) {
	if err := jobs.CheckID("snapshot", name); err != nil {
		return nil, "", err
	}
	r, err := store.Open(ctx, name+"/"+ManifestName)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", fmt.Errorf("snapshot %s: %w", name, ErrNotFound)
	}
	if err != nil {
		return nil, "", fmt.Errorf("snapshot %s: %w", name, err)
	}
	data, err := io.ReadAll(io.LimitReader(r, maxManifest+1))
	if err = errors.Join(err, r.Close()); err != nil {
		return nil, "", fmt.Errorf("snapshot %s: read the manifest: %w", name, err)
	}
	if len(data) > maxManifest {
		return nil, "", fmt.Errorf("snapshot %s: %w: a manifest of more than %d bytes", name, ErrCorrupt, maxManifest)
	}
	if m, err = ParseManifest(data); err != nil {
		return nil, "", fmt.Errorf("snapshot %s: %w", name, err)
	}
	if m.Name != name {
		return nil, "", fmt.Errorf("snapshot %s: %w: it was written as %s", name, ErrCorrupt, m.Name)
	}
	return m, sum(data), nil
}

func sum(data []byte) string {
	s := sha256.Sum256(data)
	return hex.EncodeToString(s[:])
}
