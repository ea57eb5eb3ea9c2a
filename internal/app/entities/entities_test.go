package entities_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/exoswarm/exoswarm/cpuagents/rows"
	"github.com/exoswarm/exoswarm/gpuagents/swarm"
	"github.com/exoswarm/exoswarm/internal/app/entities"
	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/jobstest"
	"github.com/exoswarm/exoswarm/jobs/natsq"
	"github.com/exoswarm/exoswarm/jobs/natsq/server"
	"github.com/exoswarm/exoswarm/jobs/swarms"
	"github.com/exoswarm/exoswarm/jobs/swarms/statelog"
)

func connect(t *testing.T) *natsq.Conn {
	t.Helper()
	return jobstest.Open(t, jobstest.Start(t, server.Options{Dir: t.TempDir(), Port: server.InProcess}), natsq.Connect)
}

func record(t *testing.T, id, key string, groups int) swarms.Swarm {
	t.Helper()
	spec, err := swarm.Parse("swarm.yaml", []byte("name: "+id+"\nagents_per_group: 16\n"+key))
	if err != nil {
		t.Fatalf("swarm.Parse: %v", err)
	}
	spec.GroupCount = groups
	data, err := json.Marshal(spec)
	if err != nil {
		t.Fatalf("json.Marshal: %v", err)
	}
	return swarms.Swarm{Version: jobs.Version, ID: id, Nonce: swarms.NewNonce(), Spec: data, Groups: groups}
}

// store returns a function that appends keys to the dictionary of a swarm.
func store(t *testing.T, conn *natsq.Conn, s swarms.Swarm) func(keep int, keys ...string) {
	t.Helper()
	return func(keep int, keys ...string) {
		t.Helper()
		k := statelog.NewKeys(conn.Swarms.Log(s.Key(), statelog.KeyShard, swarms.In))
		if err := k.Open(t.Context()); err != nil {
			t.Fatalf("Keys.Open: %v", err)
		}
		if _, err := k.Load(t.Context(), keep); err != nil {
			t.Fatalf("Keys.Load: %v", err)
		}
		if err := k.Store(t.Context(), keys, nil); err != nil {
			t.Fatalf("Keys.Store: %v", err)
		}
	}
}

// TestFind: an entity is found by its key in each of the forms, and a key that is not there is an
// error with the nearest ones.
func TestFind(t *testing.T) {
	conn := connect(t)
	one, two := record(t, "one", "key: id\n", 10), record(t, "two", "key: [site, id]\n", 10)
	store(t, conn, one)(-1, "sensor-17", "sensor-4", "id=x", "a,b", "Sensor 9")
	store(t, conn, two)(-1, rows.JoinKey([]string{"a", "7"}), rows.JoinKey([]string{"b", "7"}),
		rows.JoinKey([]string{"a", `x,"y"`}), rows.JoinKey([]string{"site=a", " "}))
	for _, c := range []struct {
		of    swarms.Swarm
		key   string
		group int
		fails string
	}{
		{of: one, key: "sensor-17"},
		{of: one, key: "sensor-4", group: 1},
		{of: one, key: "id=sensor-4", group: 1},
		{of: one, key: "id=x", group: 2},
		{of: one, key: "a,b", group: 3},
		{of: one, key: "id=a,b", group: 3},
		{of: one, key: `id="a,b"`, group: 3},
		{of: one, key: "Sensor 9", group: 4},
		{of: one, key: "sensor-71", fails: `swarm one has no entity "sensor-71" among its 5: the nearest are ` +
			`"sensor-17", "sensor-4", "Sensor 9"`},
		{of: one, key: "entirely another one", fails: `has no entity "entirely another one" among its 5: not found`},
		{of: one, key: "", fails: `has no entity ""`},
		{of: two, key: "site=a,id=7"},
		{of: two, key: " id = 7 , site = a "},
		{of: two, key: "a, 7"},
		{of: two, key: "site=b,id=7", group: 1},
		{of: two, key: `site=a,id="x,\"y\""`, group: 2},
		{of: two, key: `a, "x,\"y\""`, group: 2},
		{of: two, key: `site="site=a",id=" "`, group: 3},
		{of: two, key: "7", fails: `key "7" of swarm two: write it as site=…,id=…`},
		{of: two, key: "site=a", fails: "column id is missing"},
		{of: two, key: "site=a,site=b", fails: "column site is named twice"},
		{of: two, key: "site=a,device=7", fails: "write it as"},
		{of: two, key: `site="a"id=7`, fails: "write a comma"},
		{of: two, key: "site=c,id=7", fails: "the nearest are (a, 7), (b, 7)"},
	} {
		got, err := entities.Find(t.Context(), conn.Swarms, c.of, c.key)
		switch {
		case c.fails != "":
			if err == nil || !strings.Contains(err.Error(), c.fails) {
				t.Errorf("Find(%s) of %s returns %+v, %v, want %s", c.key, c.of.ID, got, err, c.fails)
			}
		case err != nil || len(got) != 1 || got[0].Group != c.group:
			t.Errorf("Find(%s) of %s returns %+v, %v, want group %d", c.key, c.of.ID, got, err, c.group)
		}
	}
	if _, err := entities.Find(t.Context(), conn.Swarms, one, "none"); !errors.Is(err, jobs.ErrNotFound) {
		t.Errorf("Find of a key that is not there returns %v, want jobs.ErrNotFound", err)
	}
	if _, err := entities.Find(t.Context(), conn.Swarms, record(t, "s", "", 3), "a"); !errors.Is(err,
		entities.ErrNoKey) {
		t.Errorf("Find in a swarm without a key returns %v, want ErrNoKey", err)
	}
	_, err := entities.Find(t.Context(), conn.Swarms, record(t, "new", "key: id\n", 3), "a")
	if !errors.Is(err, jobs.ErrNotFound) || !strings.Contains(err.Error(), "swarm new has no entity yet") {
		t.Errorf("Find in a swarm without rows returns %v", err)
	}
}

func names(all []entities.Entity) (list []string) {
	for _, e := range all {
		list = append(list, e.Name)
	}
	return list
}

// TestSearch: matches are ranked, bounded and counted, and where none matches the nearest come.
func TestSearch(t *testing.T) {
	conn := connect(t)
	s := record(t, "s", "key: id\n", 100)
	store(t, conn, s)(-1, "x-pump-1", "Pump-12", "pump-1", "valve", "pump-10")
	d, err := entities.NewCache(conn.Swarms).Directory(t.Context(), s)
	if err != nil {
		t.Fatalf("Cache.Directory: %v", err)
	}
	for _, c := range []struct {
		text    string
		limit   int
		matches int
		want    string
	}{
		{"pump-1", 10, 4, "pump-1 Pump-12 pump-10 x-pump-1"},
		{"PUMP-1", 2, 4, "pump-1 Pump-12"},
		{"", 3, 5, "x-pump-1 Pump-12 pump-1"},
		{"vavle", 10, 0, "valve"},
		{"nothing like that", 10, 0, ""},
	} {
		p := d.Search(c.text, c.limit)
		if got := strings.Join(names(p.Entities), " "); got != c.want || p.Matches != c.matches || p.Count != 5 ||
			!slices.Equal(p.Columns, []string{"id"}) {
			t.Errorf("Search(%q, %d) returns %q of %+v, want %q of %d", c.text, c.limit, got, p, c.want, c.matches)
		}
	}
}

// TestUpdate: a directory that is asked again knows new entities, and the entities that replace the
// keys of a batch that was not stored. A cache forgets the least recently used swarm.
func TestUpdate(t *testing.T) {
	conn := connect(t)
	s := record(t, "s", "key: id\n", 100)
	add := store(t, conn, s)
	cache := entities.NewCache(conn.Swarms)
	check := func(want ...string) {
		t.Helper()
		d, err := cache.Directory(t.Context(), s)
		if err != nil || d.Len() != len(want) {
			t.Fatalf("Cache.Directory has %d entities, want %d: %v", d.Len(), len(want), err)
		}
		for g, key := range want {
			if e, err := d.Find(key); err != nil || e.Group != g || d.Name(g) != key {
				t.Errorf("Directory.Find(%s) returns %+v, %v, and the name of group %d is %s", key, e, err, g,
					d.Name(g))
			}
		}
		if _, err := d.Find("lost"); !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("Directory.Find of a replaced key returns %v", err)
		}
		if d.Name(len(want)) != "" || d.Name(-1) != "" {
			t.Error("a group without an entity has a name")
		}
	}
	check()
	add(-1, "a", "b")
	check("a", "b")
	add(-1, "lost")
	if d, _ := cache.Directory(t.Context(), s); d.Len() != 3 {
		t.Errorf("%d entities, want 3", d.Len())
	}
	add(2, "c", "d")
	check("a", "b", "c", "d")
	// A group that goes to another entity, and one that becomes free.
	k := statelog.NewKeys(conn.Swarms.Log(s.Key(), statelog.KeyShard, swarms.In))
	if err := k.Open(t.Context()); err != nil {
		t.Fatalf("Keys.Open: %v", err)
	}
	if _, err := k.Load(t.Context(), -1); err != nil {
		t.Fatalf("Keys.Load: %v", err)
	}
	if err := k.Assign(t.Context(), []statelog.Assignment{{Group: 1, Key: "x"}, {Group: 2}}, 9, nil); err != nil {
		t.Fatalf("Keys.Assign: %v", err)
	}
	first, err := cache.Directory(t.Context(), s)
	if p := first.Search("", 10); err != nil || strings.Join(names(p.Entities), " ") != "a x d" || p.Count != 3 {
		t.Errorf("after evictions Search returns %+v, %v", p, err)
	}
	for _, key := range []string{"b", "c"} {
		if _, err := first.Find(key); !errors.Is(err, entities.ErrEvicted) || !errors.Is(err, jobs.ErrNotFound) {
			t.Errorf("Directory.Find of %s, which was evicted, returns %v", key, err)
		}
	}
	if e, err := first.Find("x"); err != nil || e.Group != 1 || first.Name(2) != "" {
		t.Errorf("Directory.Find of x returns %+v, %v", e, err)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range 20 {
		if _, err := cache.Directory(t.Context(), record(t, fmt.Sprint("s", i), "key: id\n", 3)); err != nil {
			t.Fatal(err)
		}
		if again, _ := cache.Directory(t.Context(), s); i < 10 && again != first {
			t.Fatal("a directory in use is forgotten")
		}
	}
}
