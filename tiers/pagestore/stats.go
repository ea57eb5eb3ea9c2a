package pagestore

// Stats is what a store holds, at one moment.
type Stats struct {
	// Epoch is the last committed epoch.
	Epoch uint64
	// Pages counts committed pages, Pending the changes since.
	Pages, Pending int
	// Lost counts pages that cannot be served.
	Lost int
	// IndexBytes is the length of the index's files.
	IndexBytes int64
	// Healed reports whether Open rebuilt the index, repaired one copy of its superblock or of a
	// segment header, or undid a commit that was cut short.
	Healed bool
	Tiers  []TierStats
}

// TierStats is what one tier holds.
type TierStats struct {
	Name string
	Usage
	// Pages counts committed pages whose record is here, LogicalBytes their length before encoding.
	Pages        int
	LogicalBytes int64
	// Unavailable is why the directory could not be read when the store was opened, empty when it
	// could.
	Unavailable string
	// Failures counts failed reads, writes and syncs since Open.
	Failures uint64
}

// Stats takes time in proportion to the number of pages.
func (s *Store) Stats() Stats {
	s.commitMu.Lock()
	st := Stats{Healed: s.healed, IndexBytes: s.index.Bytes()}
	s.commitMu.Unlock()
	st.Lost = len(s.Lost())
	for i, d := range s.records.dirs {
		st.Tiers = append(st.Tiers, TierStats{Name: d.name, Usage: d.Usage(), Failures: s.records.failures[i].Load()})
		if err := d.Unavailable(); err != nil {
			st.Tiers[i].Unavailable = err.Error()
		}
		st.Healed = st.Healed || d.Usage().Healed > 0
	}
	s.table.mu.RLock()
	defer s.table.mu.RUnlock()
	st.Epoch, st.Pages, st.Pending = s.table.epoch, s.table.committed.len(), len(s.table.pending)
	for page, e := range s.table.committed.all() {
		if _, gone := s.table.damaged[page]; !gone {
			st.Tiers[e.tier()].Pages++
			st.Tiers[e.tier()].LogicalBytes += int64(s.opts.PageSize)
		}
	}
	return st
}

// Usage returns what the files of a tier hold; a tier that does not exist has none. It takes time
// in proportion to the number of files.
func (s *Store) Usage(tier int) Usage {
	if tier < 0 || tier >= len(s.records.dirs) {
		return Usage{}
	}
	return s.records.dirs[tier].Usage()
}

// Unavailable is why a tier's directory could not be read when the store was opened, nil when it
// could.
func (s *Store) Unavailable(tier int) error {
	if tier < 0 || tier >= len(s.records.dirs) {
		return nil
	}
	return s.records.dirs[tier].Unavailable()
}

// Fill is the part of a tier's capacity, less what the index may take of it, or of its quota, that
// records use: 0 to 1.
func (s *Store) Fill(tier int) float64 {
	if tier < 0 || tier >= len(s.records.dirs) {
		return 0
	}
	room := s.opts.Tiers[tier].Capacity - s.indexReserve()
	if room <= 0 {
		return 1
	}
	u := s.records.dirs[tier].Usage()
	return max(min(float64(u.SlotBytes)/float64(room), 1), s.opts.Tiers[tier].Quota.Fill(u))
}
