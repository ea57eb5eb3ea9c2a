package weights

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/exoswarm/exoswarm/cuda/device"
	"github.com/exoswarm/exoswarm/gpuagents/gpubatch"
	"github.com/exoswarm/exoswarm/gpuagents/pages"
)

// auditTime is the time after which an audit takes no more parts. Reading 1 GB takes less than a
// millisecond of a GPU.
const auditTime = 10 * time.Millisecond

// Audit compares claims of the models with the device until auditTime is over, or with whole all of
// them. The next audit continues behind them. It drops a part that is not as claimed, and loads it
// again; Intact tells the users. checked is the number of compared claims, and violated of the false
// ones. The error joins a pages.ErrResidency for each of these, and errors of its load.
func (h *Holder) Audit(ctx context.Context, whole bool) (checked, violated int, err error) {
	h.mu.Lock()
	var all []*Model
	for _, m := range h.models {
		if m.users > 0 {
			m.users++ // so that nobody frees it meanwhile
			m.audits++
			all = append(all, &Model{held: m})
		}
	}
	h.mu.Unlock()
	begin := time.Now()
	for _, m := range all {
		n, wrong, merr := m.audit(ctx, func() bool { return whole || time.Since(begin) < auditTime })
		checked, violated = checked+n, violated+wrong
		h.mu.Lock()
		m.audits--
		h.mu.Unlock()
		err = errors.Join(err, merr, m.Release())
	}
	return checked, violated, err
}

// audit compares claims while more reports true, and at least one.
func (m *held) audit(ctx context.Context, more func() bool) (checked, violated int, err error) {
	m.auditing.Lock()
	defer m.auditing.Unlock()
	for range m.parts {
		p := m.parts[m.next]
		if p.pass < 0 {
			if checked > 0 && !more() {
				return checked, violated, err
			}
			var health device.Health
			health.CheckClaims(ctx, m.of.dev, []device.Claim{{
				Name: fmt.Sprintf("model %s: %s", m.ref.Name, p.name), Buffer: p.buffer, Bytes: p.bytes, Sum: p.sum,
			}})
			if cerr := context.Cause(ctx); cerr != nil {
				return checked, violated, errors.Join(err, cerr)
			}
			checked += health.Claims
			if health.State == device.Failed {
				violated++
				m.damaged.Store(true)
				m.violations.Add(1) // before the bytes are as claimed again
				err = errors.Join(err, fmt.Errorf("%w: %s", pages.ErrResidency, strings.Join(health.Reasons, "; ")))
				if rerr := m.reload(ctx, p); rerr != nil {
					return checked, violated, errors.Join(err, rerr) // the next audit begins with this part
				}
				m.damaged.Store(false)
			}
		}
		if m.next = (m.next + 1) % len(m.parts); m.next == 0 {
			now := time.Now()
			m.checked.Store(&now)
		}
	}
	return checked, violated, err
}

// reload loads a part again into its place, which its users know.
func (m *held) reload(ctx context.Context, p *part) (err error) {
	l, err := newLoader(m.of.dev)
	if err != nil {
		return gpubatch.Mark(err)
	}
	err = l.upload(ctx, m, p)
	if err == nil {
		err = gpubatch.Mark(l.stream.Sync(ctx))
	}
	if err = errors.Join(err, gpubatch.Mark(l.close())); err != nil {
		return fmt.Errorf("load %s of model %s again: %w", p.name, m.ref.Name, err)
	}
	return nil
}
