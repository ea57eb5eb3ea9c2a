package natsconn

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/exoswarm/exoswarm/jobs"
)

// Change is a difference between what the server has and what the protocol wants.
type Change struct {
	Stream string `json:"stream"`
	Field  string `json:"field"` // of its configuration, as the server names it; empty when the stream is missing
	Have   string `json:"have"`  // as JSON
	Want   string `json:"want"`  // as JSON
	// Drops reports whether the change can lose messages or copies of them. Apply refuses it.
	Drops bool `json:"drops"`
}

// wanted lists the streams of everything the protocol needs, by the names that the server knows. Of
// buckets it has the fields that matter to the protocol.
func (c *Conn) wanted() []jetstream.StreamConfig {
	all := c.streams()
	for _, kv := range c.buckets() {
		all = append(all, jetstream.StreamConfig{Name: "KV_" + kv.Bucket, MaxAge: kv.TTL, Replicas: c.Replicas})
	}
	o := objectsOf(c)
	return append(all, jetstream.StreamConfig{Name: "OBJ_" + o.Bucket, MaxAge: o.TTL, Replicas: c.Replicas})
}

// fields is a stream's configuration by the server's names. A field that is not set is not in it.
func fields(cfg jetstream.StreamConfig) (map[string]any, error) {
	data, err := json.Marshal(cfg)
	if err != nil {
		return nil, err
	}
	m := map[string]any{}
	return m, json.Unmarshal(data, &m)
}

// compared are the fields that the protocol needs. The other fields are the operator's to set.
var compared = []string{
	"subjects", "retention", "storage", "discard", "discard_new_per_subject", "max_msgs", "max_bytes",
	"max_msgs_per_subject", "max_msg_size",
	"max_age", "num_replicas", "allow_msg_ttl", "allow_atomic", "allow_msg_schedules", "allow_direct", "republish",
}

// ofBucket are the compared fields of a bucket.
var ofBucket = []string{"max_age", "num_replicas"}

// Plan lists what Apply would change, and what it would refuse, by stream. It changes nothing.
func (c *Conn) Plan(ctx context.Context) ([]Change, error) {
	var all []Change
	for _, want := range c.wanted() {
		changes, _, err := c.differences(ctx, want)
		if err != nil {
			return nil, err
		}
		all = append(all, changes...)
	}
	return all, nil
}

// differences compares one stream; merged is what the server has with the changes in it.
func (c *Conn) differences(ctx context.Context, want jetstream.StreamConfig) (changes []Change,
	merged jetstream.StreamConfig, err error,
) {
	var s jetstream.Stream
	err = c.Retry(ctx, "look at stream "+want.Name, func(ctx context.Context) (err error) {
		s, err = c.JS.Stream(ctx, want.Name)
		return err
	})
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return []Change{{Stream: want.Name, Want: "a stream"}}, merged, nil
	}
	if err != nil {
		return nil, merged, err
	}
	have, err := fields(s.CachedInfo().Config)
	if err != nil {
		return nil, merged, err
	}
	wish, err := fields(want)
	if err != nil {
		return nil, merged, err
	}
	names := compared
	if strings.HasPrefix(want.Name, "KV_") || strings.HasPrefix(want.Name, "OBJ_") {
		names = ofBucket
	}
	for _, f := range names {
		h, w := normal(f, have[f]), normal(f, wish[f])
		if reflect.DeepEqual(h, w) {
			continue
		}
		ch := Change{Stream: want.Name, Field: f, Have: asJSON(have[f]), Want: asJSON(wish[f]), Drops: drops(f, h, w)}
		changes = append(changes, ch)
		if wish[f] == nil {
			delete(have, f)
		} else {
			have[f] = wish[f]
		}
	}
	data, err := json.Marshal(have)
	if err != nil {
		return nil, merged, err
	}
	return changes, merged, json.Unmarshal(data, &merged)
}

func asJSON(v any) string {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	return string(data)
}

// normal maps values with the same meaning to one value: limits of 0, -1 and absent mean no limit,
// which is -1 here.
func normal(field string, v any) any {
	switch {
	case strings.HasPrefix(field, "max_"):
		if n, ok := v.(float64); ok && n > 0 {
			return n
		}
		return -1.0
	case field == "num_replicas":
		if n, ok := v.(float64); ok && n > 1 {
			return n
		}
		return 1.0
	case field == "subjects":
		var list []string
		if vs, ok := v.([]any); ok {
			for _, s := range vs {
				list = append(list, fmt.Sprint(s))
			}
		}
		sort.Strings(list)
		return list
	case v == nil:
		return false
	}
	return v
}

// drops reports whether a change of a normalised field can lose messages or copies.
func drops(field string, have, want any) bool {
	switch field {
	case "max_msgs", "max_bytes", "max_msgs_per_subject", "max_age":
		h, w := have.(float64), want.(float64)
		return w > 0 && (h < 0 || w < h)
	case "num_replicas":
		return want.(float64) < have.(float64)
	case "subjects":
		for _, s := range have.([]string) {
			if !slices.Contains(want.([]string), s) {
				return true // what is stored on it belongs to no queue any more
			}
		}
		return false
	case "discard":
		return want == "old"
	case "retention", "storage":
		return true // the server cannot change them: the stream would have to be made anew
	}
	return false
}

// Apply creates and updates the streams of the protocol and returns what it changed. When one of
// the changes could lose data it changes nothing and fails.
func (c *Conn) Apply(ctx context.Context) ([]Change, error) {
	plan, err := c.Plan(ctx)
	if err != nil {
		return nil, err
	}
	for _, ch := range plan {
		if ch.Drops {
			return nil, jobs.Errorf(jobs.CodeInvalid, "stream %s: changing %s from %s to %s can lose data: back the "+
				"stream up and change it by hand (nats stream edit %s)", ch.Stream, ch.Field, ch.Have, ch.Want,
				ch.Stream)
		}
	}
	if err := c.provision(ctx); err != nil {
		return nil, err
	}
	for _, want := range c.wanted() {
		changes, merged, err := c.differences(ctx, want)
		if err != nil {
			return nil, err
		}
		if len(changes) == 0 {
			continue
		}
		if _, err := c.JS.UpdateStream(ctx, merged); err != nil {
			return nil, fmt.Errorf("update stream %s: %w", want.Name, err)
		}
	}
	return plan, nil
}
