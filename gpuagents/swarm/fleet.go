package swarm

import (
	"errors"
	"fmt"
	"math"
	"time"

	"github.com/exoswarm/exoswarm/cuda/kernels"
	"github.com/exoswarm/exoswarm/internal/base/strictyaml"
)

// Fleet limits the incidents of all entities together that are shown as anomalous. CPU agents do
// it; agents never read it.
type Fleet struct {
	// FalseDiscoveries is the share of the incidents shown that may be false, up to 0.5; 0 for no
	// limit.
	FalseDiscoveries float64 `yaml:"false_discoveries" json:"false_discoveries,omitempty"`
	// AlarmsPerDay is how many incidents are shown in a day, on average; 0 for no limit.
	AlarmsPerDay float64 `yaml:"alarms_per_day" json:"alarms_per_day,omitempty"`
	// Window is the time over which incidents are counted, 12 minutes to 10 years; default 28 days.
	Window strictyaml.Duration `yaml:"window" json:"window,omitempty" zero:"default"`
	// Together is the time within which incidents of several entities are one, 1 second to 24
	// hours; 0 for never.
	Together strictyaml.Duration `yaml:"together" json:"together,omitempty"`
}

const (
	mostFalseDiscoveries = 0.5
	mostFleetAlarms      = 1e6
	minFleetWindow       = 12 * time.Minute
	maxFleetWindow       = 10 * 365 * 24 * time.Hour
	defaultFleetWindow   = 28 * 24 * time.Hour
	minTogether          = time.Second
	maxTogether          = 24 * time.Hour
)

func (f Fleet) limits() bool {
	return f.FalseDiscoveries != 0 || f.AlarmsPerDay != 0 || f.Together != 0
}

func (f *Fleet) ensureDefaults() {
	if f.limits() && f.Window == 0 {
		f.Window = strictyaml.Duration(defaultFleetWindow)
	}
}

func (s *Spec) validateFleet() (path []string, err error) {
	f := s.Fleet
	within := func(v, most float64) bool { return v >= 0 && v <= most }
	switch window, together := time.Duration(f.Window), time.Duration(f.Together); {
	case f == Fleet{}:
	case s.Topology().ByAgent:
		return []string{"fleet"}, errors.New("fleet: it limits the incidents of groups: leave it out")
	case s.Cell.Kind != "predictor":
		return []string{"fleet"}, fmt.Errorf("fleet: it reads the scores of the cell predictor, not of %s: "+
			"leave it out", s.Cell.Kind)
	case !within(f.FalseDiscoveries, mostFalseDiscoveries):
		return []string{"fleet", "false_discoveries"}, fmt.Errorf("false_discoveries %v: use a share of 0 to %v, as "+
			"0.1 for one false incident out of ten", f.FalseDiscoveries, mostFalseDiscoveries)
	case !within(f.AlarmsPerDay, mostFleetAlarms):
		return []string{"fleet", "alarms_per_day"}, fmt.Errorf("alarms_per_day %v: use 0 to %v", f.AlarmsPerDay,
			mostFleetAlarms)
	case together != 0 && (together < minTogether || together > maxTogether):
		return []string{"fleet", "together"}, fmt.Errorf("together %v: use %v to %v", together, minTogether,
			maxTogether)
	case window < minFleetWindow || window > maxFleetWindow:
		return []string{"fleet", "window"}, fmt.Errorf("window %v: use %v to %v", window, minFleetWindow,
			maxFleetWindow)
	case !f.limits():
		return []string{"fleet"}, errors.New("fleet: it limits nothing: name false_discoveries, alarms_per_day " +
			"or together")
	case s.Cell.Params["alarms_per_day"] > 0:
		return []string{"fleet"}, errors.New("fleet: alarms_per_day of the cell sets an alarm for each entity: leave " +
			"it out of cell.params, and name fleet.alarms_per_day for all together")
	}
	return nil, nil
}

// FleetLimits are the limits of a fleet with what the scores of its cell mean.
type FleetLimits struct {
	FalseDiscoveries float64
	AlarmsPerDay     float64
	Window           time.Duration
	Together         time.Duration
	Alarm            float64 // nats from which an incident opens
	Block            int     // observations of a block of the history
}

// FleetLimits returns the limits of the fleet; nil for none.
func (s *Spec) FleetLimits() (*FleetLimits, error) {
	if !s.Fleet.limits() {
		return nil, nil
	}
	b, err := s.Bind()
	if err != nil {
		return nil, fmt.Errorf("the limits of the fleet: %w", err)
	}
	words := b.ParamBlock()
	return &FleetLimits{
		FalseDiscoveries: s.Fleet.FalseDiscoveries, AlarmsPerDay: s.Fleet.AlarmsPerDay,
		Window: time.Duration(s.Fleet.Window), Together: time.Duration(s.Fleet.Together),
		Alarm: float64(math.Float32frombits(words[kernels.PredictorAlarm])),
		Block: int(words[kernels.PredictorBlock]),
	}, nil
}
