package server

import (
	"fmt"
	"syscall"
	"time"

	natsd "github.com/nats-io/nats-server/v2/server"
)

// A server whose disk is full stops answering without a word, so the space is watched. A server on
// its own refuses what it would have to store when less than tightFree bytes are left, which
// callers are told at once, and takes it again when more than easyFree are. When less than minFree
// are left, because other programs write to the disk too, or in a cluster, whose other servers
// continue without this one, Full says so. A message, its index and a block of the file system fit
// into minFree.
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
	return int64(fs.Bavail) * int64(fs.Bsize), nil //nolint:unconvert // uint32 on darwin
}

// Full is closed when the disk of the store has no more room. The server must be stopped then.
func (s *Server) Full() <-chan struct{} { return s.full }

// room is the state of the disk after a check, with what earlier checks found.
type room struct {
	refuses bool // the server may refuse messages
	tight   bool // there was too little, and there is not enough since
	before  int64
	// the least room since there was too little: fast writers are refused early, and what they left
	// is no new room
	low int64
}

// verdict is what to do after a check.
type verdict int

const (
	diskGoOn   verdict = iota
	diskRefuse         // let nobody store anything
	diskAccept         // end that
	diskFull           // stop the server
)

// look takes the number of bytes that are free now.
func (r *room) look(n int64) verdict {
	// The next period may take twice as much as the last one before the next check.
	soon := n - 2*max(r.before-n, 0)
	r.before = n
	switch {
	case n < minFree:
		return diskFull
	case !r.refuses:
		return diskGoOn
	case !r.tight && soon < tightFree:
		r.tight, r.low = true, n
		return diskRefuse
	case r.tight && n > easyFree && n > r.low+easyFree-tightFree:
		r.tight = false
		return diskAccept
	case r.tight: // an account may have come, or been handed over anew
		r.low = min(r.low, n)
		return diskRefuse
	}
	return diskGoOn
}

// watch follows the space on the disk of a folder until the server is closed or Full. refuses
// reports whether the server may refuse messages.
func (s *Server) watch(dir string, refuses bool) {
	tick := time.NewTicker(watchEvery)
	defer tick.Stop()
	var held limits // nil while there is room
	for r := (room{refuses: refuses}); ; {
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
		n, err := free(dir)
		if err != nil {
			continue
		}
		switch r.look(n) {
		case diskFull:
			close(s.full)
			return
		case diskRefuse:
			if held == nil {
				s.log.Error("the disk is nearly full: what would have to be stored is refused until there is room",
					"folder", dir, "free", n, "needed", easyFree)
				held = limits{}
			}
			s.refuse(held)
		case diskAccept:
			s.accept(held)
			held = nil
			s.log.Info("there is room on the disk again", "folder", dir, "free", n)
		}
	}
}

// limits are what accounts may store where nothing is refused, by account and tier.
type limits map[string]map[string]natsd.JetStreamAccountLimits

// refuse lets no account store anything, and keeps in held what they might. The accounts are
// limited because the limit of the server cannot be lowered while it runs. Messages are
// acknowledged and removed as before.
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
				s.log.Error("an account may store nothing until the server is restarted", "account", a.Name, "error",
					err)
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
