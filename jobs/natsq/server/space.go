package server

import (
	"fmt"
	"syscall"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
)

// A server whose disk is full stops answering without a word, so the space is watched. A server on its own refuses what it would have to store
// when less than tightFree bytes are left, which callers are told at once, and takes it again when more than easyFree are. When less than minFree are
// left, because others write to the disk too, or in a cluster, whose other servers go on when this one is away, Full says so. A message, its index and
// a block of the file system fit into minFree.
const (
	startFree  = 12 << 20
	easyFree   = 12 << 20
	tightFree  = 8 << 20
	minFree    = 3 << 20
	watchEvery = 100 * time.Millisecond
)

// free is the number of bytes that may still be written to the disk of a folder.
func free(dir string) (int64, error) {
	var fs syscall.Statfs_t
	if err := syscall.Statfs(dir, &fs); err != nil {
		return 0, fmt.Errorf("space on the disk of %s: %w", dir, err)
	}
	return int64(fs.Bavail) * fs.Bsize, nil
}

// Full is closed when the disk of the store has no more room. The server must be stopped then.
func (s *Server) Full() <-chan struct{} { return s.full }

// watch follows the space on the disk of a folder until the server is closed or Full. refuses says that the server may refuse messages.
func (s *Server) watch(dir string, refuses bool) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var tight limits // nil while there is room
	var low int64    // the least room since there was too little: fast writers are refused early, and what they left is no new room
	for before := int64(0); ; {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		n, err := free(dir)
		if err != nil {
			continue
		}
		// What the last turn took the next may take twice, before anybody looks again.
		soon := n - 2*max(before-n, 0)
		before = n
		switch {
		case n < minFree:
			close(s.full)
			return
		case !refuses:
		case tight == nil && soon < tightFree:
			s.log.Error("the disk is nearly full: what would have to be stored is refused until there is room", "folder", dir, "free", n, "needed", easyFree)
			tight, low = limits{}, n
			s.refuse(tight)
		case tight != nil && n > easyFree && n > low+easyFree-tightFree:
			s.accept(tight)
			tight = nil
			s.log.Info("there is room on the disk again", "folder", dir, "free", n)
		case tight != nil: // an account may have come, or been handed over anew
			low = min(low, n)
			s.refuse(tight)
		}
	}
}

// limits are what accounts may store where nothing is refused, by account and tier.
type limits map[string]map[string]natsd.JetStreamAccountLimits

// refuse lets no account store anything, and keeps in held what they might. The limit is that of accounts because that of the server cannot be
// lowered while it runs. Messages are acknowledged and removed as before.
func (s *Server) refuse(held limits) {
	s.accounts(func(a *natsd.Account) {
		usage := a.JetStreamUsage()
		now := map[string]natsd.JetStreamAccountLimits{}
		for tier, t := range usage.Tiers {
			now[tier] = t.Limits
		}
		if len(now) == 0 {
			now[""] = usage.Limits
		}
		none := map[string]natsd.JetStreamAccountLimits{}
		shut := true
		for tier, l := range now {
			shut = shut && l.MaxStore == 0
			l.MaxStore = 0
			none[tier] = l
		}
		if shut {
			return
		}
		if err := a.UpdateJetStreamLimits(none); err != nil {
			s.log.Error("an account may still store on a disk that is nearly full", "account", a.Name, "error", err)
			return
		}
		held[a.Name] = now
	})
}

// accept ends what refuse began.
func (s *Server) accept(held limits) {
	s.accounts(func(a *natsd.Account) {
		if l, ok := held[a.Name]; ok {
			if err := a.UpdateJetStreamLimits(l); err != nil {
				s.log.Error("an account may store nothing until the server is restarted", "account", a.Name, "error", err)
			}
		}
	})
}

// accounts calls fn with every account that has JetStream.
func (s *Server) accounts(fn func(a *natsd.Account)) {
	all, err := s.ns.Accountz(nil)
	if err != nil {
		return
	}
	for _, name := range all.Accounts {
		if a, err := s.ns.LookupAccount(name); err == nil && a.JetStreamEnabled() {
			fn(a)
		}
	}
}
