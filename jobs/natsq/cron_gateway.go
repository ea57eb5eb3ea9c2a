package natsq

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/nats-io/nats.go"

	"github.com/exoswarm/exoswarm/jobs"
	"github.com/exoswarm/exoswarm/jobs/schema"
)

// ParseSchedule reads a request to add a schedule, whose version may be left out. The error is a *schema.Error, or says which rule
// between two fields is broken.
func ParseSchedule(data []byte) (jobs.Schedule, error) {
	if err := schema.Validate(schema.Schedule, data); err != nil {
		return jobs.Schedule{}, err
	}
	var s jobs.Schedule
	if err := json.Unmarshal(data, &s); err != nil {
		return s, jobs.Errorf(jobs.CodeInvalid, "schedule: %v", err)
	}
	s.Version = jobs.Version
	if err := s.Validate(); err != nil {
		return s, err
	}
	return s, schema.CheckSchedule(s)
}

// cron answers the requests about schedules; what is the subject behind cron.
func (g *Gateway) cron(ctx context.Context, from owner, what string, m *nats.Msg, r *apiReply) error {
	verb, name, _ := strings.Cut(what, ".")
	name = from.own(name)
	switch {
	case verb == "add" && name == "":
		s, err := ParseSchedule(m.Data)
		if err == nil {
			s, err = from.schedule(s)
		}
		r.Schedule = s.Name
		if err != nil {
			return err
		}
		return g.c.AddSchedule(ctx, s)
	case verb == "list" && name == "":
		all, err := g.c.Schedules(ctx)
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
			s, _, err := g.c.readOne(ctx, name)
			if err == nil && !from.mine(s) {
				err = fmt.Errorf("schedule %s: %w", name, jobs.ErrNotFound)
			}
			if err != nil {
				return err
			}
		}
		if verb == "remove" {
			return g.c.RemoveSchedule(ctx, name)
		}
		return g.c.PauseSchedule(ctx, name, verb == "pause")
	}
	return jobs.Errorf(jobs.CodeInvalid, "%.100q: ask exo.api.cron.add, .list, .remove.NAME, .pause.NAME or .resume.NAME", m.Subject)
}
