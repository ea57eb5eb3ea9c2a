package natsq

import (
	"context"
	"encoding/json"
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
	return s, s.Validate()
}

// cron answers the requests about schedules.
func (g *Gateway) cron(ctx context.Context, m *nats.Msg, r *apiReply) error {
	verb, name, _ := strings.Cut(strings.TrimPrefix(m.Subject, "exo.api.cron."), ".")
	switch {
	case verb == "add" && name == "":
		s, err := ParseSchedule(m.Data)
		r.Schedule = s.Name
		if err != nil {
			return err
		}
		return g.c.AddSchedule(ctx, s)
	case verb == "list" && name == "":
		all, err := g.c.Schedules(ctx)
		if all == nil {
			all = []jobs.ScheduleState{}
		}
		r.Schedules = &all
		return err
	case name == "":
	case verb == "remove":
		r.Schedule = name
		return g.c.RemoveSchedule(ctx, name)
	case verb == "pause", verb == "resume":
		r.Schedule = name
		return g.c.PauseSchedule(ctx, name, verb == "pause")
	}
	return jobs.Errorf(jobs.CodeInvalid, "%.100q: ask exo.api.cron.add, .list, .remove.NAME, .pause.NAME or .resume.NAME", m.Subject)
}
