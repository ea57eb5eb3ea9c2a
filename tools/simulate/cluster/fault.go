package cluster

// schedule has a fault happen. What is lost with a process is done again: an append waits for the
// next leader, an agent reads entries without an answer again, and a writer appends what has
// arrived.
func (m *model) schedule(f Fault) {
	m.clock.After(m.from+int64(f.At), func() {
		lasts := int64(f.For)
		if f.Until > f.For {
			lasts += m.rand.Int64N(int64(f.Until-f.For) + 1)
		}
		until := m.clock.Now() + lasts
		switch f.Kind {
		case "broker":
			m.brokers[f.Host].down = max(m.brokers[f.Host].down, until)
		case "agent":
			for _, l := range m.lanes {
				if l.at == f.Host {
					l.server.kill(max(l.server.down, until))
				}
			}
		case "writer":
			for _, l := range m.lanes {
				if l.home == m.writers[f.Host] {
					l.writer.dead = max(l.writer.dead, until)
				}
			}
		}
	})
}
