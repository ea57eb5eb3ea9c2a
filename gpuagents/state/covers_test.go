package state

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/gpuagents/snapshot"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/swarms"
)

// TestCovers: agents start from a snapshot with all groups of a swarm, or from the snapshot of
// their shard.
func TestCovers(t *testing.T) {
	mine := swarms.Swarm{ID: "x", Name: "x", Nonce: "1"}
	other := mine
	other.Nonce = "2"
	k := &Snapshotter{swarm: mine, groups: GroupRange{Shard: 1, Shards: 3, First: 10, Groups: 5, All: 15}}
	part := func(of swarms.Swarm, number, first, groups int) *snapshot.Manifest {
		return &snapshot.Manifest{Name: "s", Swarm: snapshot.OriginOf(of), Shard: &snapshot.Shard{
			Number: number, Of: 3,
			First: first, Groups: 15,
		}, Groups: groups}
	}
	for name, c := range map[string]struct {
		parts []*snapshot.Manifest
		ok    bool
	}{
		"a whole swarm": {[]*snapshot.Manifest{{Name: "s", Groups: 99}}, true},
		"all shards of another swarm": {[]*snapshot.Manifest{part(other, 0, 0, 5), part(other, 1, 5, 5), part(other, 2,
			10, 5)}, true},
		"its own shard":            {[]*snapshot.Manifest{part(mine, 1, 10, 5)}, true},
		"a shard of another swarm": {[]*snapshot.Manifest{part(other, 1, 10, 5)}, false},
		"groups from another on":   {[]*snapshot.Manifest{part(mine, 1, 9, 5)}, false},
		"fewer groups":             {[]*snapshot.Manifest{part(mine, 1, 10, 4)}, false},
		"two shards of three":      {[]*snapshot.Manifest{part(other, 0, 0, 5), part(other, 1, 5, 5)}, false},
	} {
		err := k.covers(c.parts)
		if (err == nil) != c.ok || err != nil && (!errors.Is(err, snapshot.ErrMismatch) ||
			!strings.Contains(err.Error(), fmt.Sprintf("it has shard %d of 3 of a swarm alone",
				c.parts[0].Shard.Number))) {
			t.Errorf("%s: %v, want it accepted: %t", name, err, c.ok)
		}
	}
}

// TestPartNames: a snapshot of a swarm with several shards has a part for each, by its number, and
// one of a single shard has the name that was asked for.
func TestPartNames(t *testing.T) {
	d, store := openHost(t), openStore(t)
	for shards := 1; shards <= 3; shards++ {
		spec, err := swarm.Parse("test.yaml", []byte(workText+fmt.Sprintf("shards: %d\n", shards)))
		if err != nil {
			t.Fatalf("swarm.Parse: %v, want no error", err)
		}
		for k := range shards {
			name := fmt.Sprintf("of%d", shards)
			want := name
			if shards > 1 {
				want = snapshot.PartName(name, k)
			}
			if got := take(t, openShard(t, d, nil, store, spec, spec.Groups(), k, nil), name, 1); got.Name != want ||
				got.Version != jobs.Version {
				t.Errorf("shard %d of %d: %+v, want the name %s", k, shards, got, want)
			}
		}
	}
}

// workText is a swarm whose answers depend on every entry before.
const workText = "name: x\naddressed: agent\nagents: 64\nagents_per_group: 8\npage_size: 64KiB\nfeatures: [a]\n" +
	"cell: {kind: leaky}\ncheckpoint: {interval: 1h, entries: 1000}\n"
