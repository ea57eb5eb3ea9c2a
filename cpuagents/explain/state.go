package explain

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/gob"
	"fmt"
	"slices"

	"github.com/exoswarm/exoswarm/jobs/batch"
)

// stored is the state of an explainer as State encodes it.
type stored struct {
	Version int
	Groups  map[uint32]*entity
	Away    []*entity
	Turns   uint64
	Moves   []move
	Fleet   ControlState
	Commons []*common
}

// stateVersion changes with the meaning of the state. A state of another version is ErrState.
const stateVersion = 1

// State returns the state as bytes: an explainer that Restore makes of them explains the decisions
// that follow as this one does. It has about 300 to 600 bytes for each feature of an entity.
func (x *Explainer) State() ([]byte, error) {
	s := stored{Version: stateVersion, Groups: map[uint32]*entity{}, Turns: x.turns, Moves: x.moves}
	for g, e := range x.groups {
		if e != nil {
			s.Groups[uint32(g)] = e
		}
	}
	if x.fleet != nil {
		s.Fleet, s.Commons = x.fleet.State(), x.commons
	}
	for _, e := range x.away {
		s.Away = append(s.Away, e)
	}
	var b bytes.Buffer
	b.Write(make([]byte, sha256.Size))
	if err := gob.NewEncoder(&b).Encode(&s); err != nil {
		return nil, fmt.Errorf("encode the summaries of entities: %w", err)
	}
	sum := sha256.Sum256(b.Bytes()[sha256.Size:])
	copy(b.Bytes(), sum[:])
	return b.Bytes(), nil
}

// Restore replaces the state by a result of State. It fails with ErrState for damaged bytes, for
// another version, and for other features; the explainer is unchanged then.
func (x *Explainer) Restore(data []byte) error {
	if len(data) < sha256.Size || sha256.Sum256(data[sha256.Size:]) != [sha256.Size]byte(data[:sha256.Size]) {
		return fmt.Errorf("%w: the sum is wrong", ErrState)
	}
	var s stored
	if err := gob.NewDecoder(bytes.NewReader(data[sha256.Size:])).Decode(&s); err != nil {
		return fmt.Errorf("%w: %w", ErrState, err)
	}
	if s.Version != stateVersion {
		return fmt.Errorf("%w: version %d, want %d", ErrState, s.Version, stateVersion)
	}
	groups, away, byKey := []*entity{}, map[string]*entity{}, map[string]*entity{}
	for g, e := range s.Groups {
		if len(e.Features) != len(x.names) {
			return fmt.Errorf("%w: %d features, want %d", ErrState, len(e.Features), len(x.names))
		}
		for int(g) >= len(groups) {
			groups = append(groups, nil)
		}
		e.widen()
		if groups[g] = e; e.Key != "" {
			byKey[e.Key] = e
		}
	}
	var left []leaving
	slices.SortFunc(s.Away, func(a, b *entity) int { return cmp.Compare(a.Left, b.Left) })
	for _, e := range s.Away {
		e.widen()
		away[e.Key], byKey[e.Key] = e, e
		left = append(left, leaving{e, e.Left})
	}
	x.groups, x.byKey, x.away, x.left, x.turns, x.moves = groups, byKey, away, left, s.Turns, s.Moves
	if x.fleet != nil {
		x.fleet.Restore(s.Fleet)
		x.commons = s.Commons
	}
	return nil
}

// widen makes room for kinds of surprise that an earlier program did not know.
func (e *entity) widen() {
	width := int(batch.FeatureSurprises)
	if len(e.Before) < width*len(e.Features) {
		e.Before = widened(e.Before, len(e.Features), width)
	}
	for _, in := range []*incident{e.Open, e.Hidden} {
		if in != nil && len(in.Sizes) < width*len(e.Features) {
			in.Sizes = widened(in.Sizes, len(e.Features), width)
		}
	}
	if e.Related == nil {
		e.Related = newRelations(len(e.Features))
	}
}

// widened returns rows of a greater width, with zeros behind the values of each.
func widened[T any](all []T, rows, width int) []T {
	old, wide := len(all)/max(rows, 1), make([]T, rows*width)
	for i := range rows {
		copy(wide[i*width:], all[i*old:][:old])
	}
	return wide
}
