package jobs

import (
	"fmt"
	"time"
)

// AgentLost is the state of an agent that ended without giving back what it held.
const AgentLost = "lost"

// Lost is what an agent held that ended without giving it back.
type Lost struct {
	Since  time.Time `json:"since"`            // when its session was renewed for the last time, by the server's clock
	Shards []string  `json:"shards,omitempty"` // lease keys, see LeaseKey, that no agent has taken since
}

// Team says on which devices of an agent the ticks of a shard are, when these are several.
type Team struct {
	Shard   string   `json:"shard"`   // its lease key, see LeaseKey
	Devices []string `json:"devices"` // the first has the pages of the shard
}

// Recovery is how far an agent is that replays a shard: entries that an earlier process has
// answered change the agents again and are not answered a second time.
type Recovery struct {
	Shard string  `json:"shard"`              // its lease key, see LeaseKey
	Entry uint64  `json:"entry"`              // the last replayed entry
	Of    uint64  `json:"of"`                 // the last answered entry: the replay ends with it
	Rate  float64 `json:"entries_per_second"` // since the replay began
}

// String says it for people.
func (r Recovery) String() string {
	return fmt.Sprintf("replaying entry %d of %d (%.0f %%, %.3g entries/s)", r.Entry, r.Of,
		100*float64(r.Entry)/float64(max(1, r.Of)), r.Rate)
}
