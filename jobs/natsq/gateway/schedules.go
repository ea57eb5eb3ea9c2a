package gateway

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/natsq/queue"
)

// cron executes a request about schedules. what is the part of the subject after "cron.": add,
// list, or a verb and the name of a schedule. A tenant gets jobs.ErrNotFound for a schedule of
// another tenant, so that its existence is not revealed.
func (g *Gateway) cron(ctx context.Context, from owner, what string, m *nats.Msg, r *apiReply) error {
	verb, name, _ := strings.Cut(what, ".")
	name = from.own(name)
	switch {
	case verb == "add" && name == "":
		s, err := queue.ParseSchedule(m.Data)
		if err == nil {
			s, err = from.schedule(s)
		}
		r.Schedule = s.Name
		if err != nil {
			return err
		}
		return g.schedules.AddSchedule(ctx, s)
	case verb == "list" && name == "":
		all, err := g.schedules.Schedules(ctx)
		all = slices.DeleteFunc(all, func(s jobs.ScheduleState) bool { return !from.mine(s.Schedule) })
		if all == nil {
			all = []jobs.ScheduleState{}
		}
		r.Schedules = &all
		return err
	case name == "":
	case verb == "remove", verb == "pause", verb == "resume":
		r.Schedule = name
		if from != "" {
			s, _, err := g.schedules.Read(ctx, name)
			if err == nil && !from.mine(s) {
				err = fmt.Errorf("schedule %s: %w", name, jobs.ErrNotFound)
			}
			if err != nil {
				return err
			}
		}
		if verb == "remove" {
			return g.schedules.RemoveSchedule(ctx, name)
		}
		return g.schedules.PauseSchedule(ctx, name, verb == "pause")
	}
	return jobs.Errorf(jobs.CodeInvalid, "%.100q: ask exo.api.cron.add, .list, .remove.NAME, .pause.NAME or "+
		".resume.NAME", m.Subject)
}
