package gpuprocess

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/internal/app/command"
	"github.com/exoswarm/exoswarm/internal/base/memory"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
	"github.com/exoswarm/exoswarm/tiers/pager"
	"github.com/exoswarm/exoswarm/tiers/pagestore"
	"github.com/exoswarm/exoswarm/tiers/vfs"
)

// storeTier is a disk for the pages of all shards. parseTiers makes it, openTiers sets what the
// disk decides, and from then on only its quota changes.
type storeTier struct {
	name  string
	dir   string
	codec pagestore.Codec
	// age is the time without use after which a page moves to the next tier; 0: when this tier is
	// full.
	age time.Duration
	// capacity bounds the bytes of all shards, and quota has the bytes that they take. They are 0
	// and nil for a folder in which each shard takes as much as it needs.
	capacity int64
	quota    *pagestore.Quota
}

// folderTier returns the tier for a folder of checkpoints without --tier. It does not compress: a
// shard answers nothing while its checkpoint is stored, and LZ4 makes that 4 to 15 times as long on
// two loaded cores, to save a factor of 1.4 to 1.8 of the space (BenchmarkCheckpointCodec).
func folderTier(dir string) *storeTier { return &storeTier{name: "checkpoint", dir: dir} }

// codecs are the default codecs by the names of tiers. Tiers of other names are raw.
var codecs = map[string]pagestore.Codec{
	"nvme": {ID: pagestore.LZ4}, "ssd": {ID: pagestore.Zstd, Level: 3},
	"hdd": {ID: pagestore.Zstd, Level: 9},
}

// tierName is the form of the name of a tier, which is part of metrics and logs.
var tierName = regexp.MustCompile(`^[a-z][a-z0-9_-]{0,31}$`)

// parseTiers reads the values of --tier, the fastest tier first. A value may be several, separated
// by semicolons, as in an environment variable. Tiers have different names and folders that do not
// contain each other.
func parseTiers(values []string) ([]*storeTier, error) {
	var all []*storeTier
	for _, value := range strings.Split(strings.Join(values, ";"), ";") {
		if strings.TrimSpace(value) == "" {
			continue
		}
		t, err := parseTier(strings.TrimSpace(value), len(all))
		if err != nil {
			return nil, err
		}
		for _, other := range all {
			if other.name == t.name {
				return nil, command.Usage("--tier %s: there are two tiers of this name", t.name)
			}
			if within(t.dir, other.dir) || within(other.dir, t.dir) {
				return nil, command.Usage("--tier %s=%s: it is in the same place as %s=%s: a tier has a folder of "+
					"its own", t.name, t.dir, other.name, other.dir)
			}
		}
		all = append(all, t)
	}
	if len(all) > pagestore.MaxTiers {
		return nil, command.Usage("%d times --tier: there may be %d tiers", len(all), pagestore.MaxTiers)
	}
	if len(all) > 0 {
		all[len(all)-1].age = 0 // no tier follows
	}
	return all, nil
}

// within reports whether a path is root or below it.
func within(path, root string) bool {
	rel, err := filepath.Rel(root, path)
	return err == nil && rel != ".." && !strings.HasPrefix(rel, ".."+string(filepath.Separator))
}

// parseTier reads NAME=DIR[,codec=CODEC][,capacity=SIZE][,age=TIME]. place is the number of tiers
// before this one, which gives the default age.
func parseTier(value string, place int) (*storeTier, error) {
	parts := strings.Split(value, ",")
	name, dir, _ := strings.Cut(parts[0], "=")
	switch {
	case !tierName.MatchString(name) || dir == "":
		return nil, command.Usage("--tier %q: use NAME=DIR, as in nvme=/mnt/nvme, with a name of a-z, 0-9, - and _",
			value)
	case name == "gpu" || name == "cpu":
		return nil, command.Usage("--tier %q: %s is a tier of memory: see --page-memory and --host-page-memory", value,
			name)
	}
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, command.Usage("--tier %q: %v", value, err)
	}
	// The first two thresholds of the pager are for memory.
	t := &storeTier{
		name: name, dir: abs, codec: codecs[name],
		age: pager.AgingThresholds[min(2+place, len(pager.AgingThresholds)-1)],
	}
	for _, part := range parts[1:] {
		key, text, _ := strings.Cut(part, "=")
		switch key {
		case "codec":
			t.codec, err = pagestore.ParseCodec(text)
		case "capacity":
			t.capacity, err = strictyaml.ParseSize(text)
			if err == nil && t.capacity < leastTier {
				return nil, command.Usage("--tier %q: capacity %s: use at least %s: an index and a page", value, text,
					memory.Text(leastTier))
			}
		case "age":
			t.age, err = time.ParseDuration(text)
			if err == nil && t.age < 0 {
				return nil, command.Usage("--tier %q: age %s: use a duration, or 0 for a page to stay until the "+
					"tier is full", value, text)
			}
		default:
			return nil, command.Usage("--tier %q: %q is none of codec=, capacity= and age=", value, part)
		}
		if err != nil {
			return nil, command.Usage("--tier %q: %v", value, err)
		}
	}
	return t, nil
}

// openTiers checks the folders of tiers, takes them for this process, and sets the capacities that
// were not given. A folder that does not exist is an error of usage: for a disk that is not
// mounted, data would go to the root disk. So is one that another process has. A tier that fails in
// another way is logged, and the agent works with the others.
func openTiers(all []*storeTier, owned folders, log *slog.Logger) error {
	for _, t := range all {
		info, err := os.Stat(t.dir)
		if err == nil && !info.IsDir() {
			return command.Usage("--tier %s=%s: it is no folder", t.name, t.dir)
		}
		var free int64
		if err == nil {
			free, err = vfs.OS{}.Free(t.dir)
		}
		if err == nil {
			err = owned.own(t.dir)
		}
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return command.Usage("--tier %s=%s: there is no such folder: mount its disk, or make the folder if it "+
				"is new", t.name, t.dir)
		case errors.Is(err, fs.ErrPermission), errors.Is(err, vfs.ErrLocked):
			return command.Usage("--tier %s=%v", t.name, err)
		case err != nil:
			log.Error("a tier has failed, the others do without it", "tier", t.name, "folder", t.dir, "error", err)
		}
		if t.capacity == 0 { // the free space, and the space of the checkpoints that are there
			room := free + length(t.dir)
			t.capacity = max(room-room/diskShare, leastTier)
		}
		if size, serr := fileSystem(t.dir); err == nil && serr == nil {
			bytes := int64(size.Blocks) * int64(size.Bsize) //nolint:unconvert // of another type on other systems
			if bytes < leastTier {
				return command.Usage("--tier %s=%s: its disk has %s, and a tier needs %s: name a folder of another "+
					"disk", t.name, t.dir, memory.Text(bytes), memory.Text(leastTier))
			}
		}
		// One quota for the stores of all shards: each takes from it when it grows.
		t.quota = pagestore.NewQuota(t.capacity)
	}
	return nil
}

// leastTier is the least capacity of a tier: the index of a shard and a page of 2 MiB twice, see
// pagestore.Options.MinCapacity.
const leastTier = 8 << 20

// diskShare is the divisor for the part of a disk that a tier leaves free by default, because file
// systems become slow when they are full.
const diskShare = 20

// described returns the tiers for a line of the log, as NAME=DIR,CODEC, the fastest first.
func described(all []*storeTier) string {
	var names []string
	for _, t := range all {
		names = append(names, t.name+"="+t.dir+","+t.codec.String())
	}
	return strings.Join(names, " ")
}

// abandoned warns of checkpoints in a folder that is not one of the tiers. It removes nothing: the
// operator may have forgotten a flag.
func abandoned(dir string, all []*storeTier, log *slog.Logger) {
	if slices.ContainsFunc(all, func(t *storeTier) bool { return t.dir == dir }) {
		return
	}
	if ids, _ := newCheckpoints(folderTier(dir)).Shards(); len(ids) > 0 {
		log.Warn("there are checkpoints that no tier has: their shards start from their logs. Name the folder as "+
			"the first --tier to go on with them, or remove it", "folder", dir, "shards", len(ids))
	}
}
