package kernels

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write words.cuh anew from the constants")

// TestWordsAreCurrent holds words.cuh to the Go constants that it repeats, so that a kernel and its
// description cannot number their words apart.
func TestWordsAreCurrent(t *testing.T) {
	groups := []struct {
		about string
		names []string
		value []int
	}{
		{
			"voting",
			[]string{
				"RULE_PLURALITY", "RULE_MAJORITY", "RULE_QUORUM", "RULE_WEIGHTED", "RULE_UNANIMOUS", "VOTE_NORMAL",
				"VOTE_SUSPICIOUS", "VOTE_ANOMALOUS", "VOTE_CANDIDATES", "MAX_VOTE_WEIGHT", "DROP_LATE",
				"DROP_DUPLICATE", "DROPPED_LATE", "DROPPED_DUPLICATE", "RUN_HOST_BIT", "SEED_WORDS",
			},
			[]int{
				int(RulePlurality), int(RuleMajority), int(RuleQuorum), int(RuleWeighted), int(RuleUnanimous),
				VoteNormal, VoteSuspicious, VoteAnomalous, VoteCandidates, MaxVoteWeight, int(DropLate),
				int(DropDuplicate), int(DroppedLate) - 1<<32, int(DroppedDuplicate) - 1<<32, RunHostBit, SeedWords,
			},
		},
		{
			"surprise",
			[]string{
				"SURPRISE_FINE", "SURPRISE_MIN_OCTAVE", "SURPRISE_BINS", "HISTORY_FINE", "HISTORY_BINS",
				"SCORE_HALF", "MOST_NATS", "RANK_DOUBT", "DAY_SLOTS", "WEEK_SLOTS", "HABIT_WEEKS", "MAX_FEATURES",
				"PRIOR_ROWS", "PRIOR_STEPS", "PRIOR_BLOCKS", "PRIOR_AGES", "PRIOR_KNOTS",
			},
			[]int{
				SurpriseFine, SurpriseMinOctave, SurpriseBins, HistoryFine, HistoryBins, ScoreHalf, MostNats,
				RankDoubt, DaySlots, WeekSlots, HabitWeeks, MaxFeatures,
				PriorRows, PriorSteps, PriorRows / BlockRows, len(PriorAges), len(PriorKnots[0]),
			},
		},
		{
			"leaky: words of the parameter block",
			[]string{
				"LEAKY_FEATURES", "LEAKY_RULE", "LEAKY_QUORUM", "LEAKY_FRONT_RATE", "LEAKY_CLIP",
				"LEAKY_HISTORY_RATE", "LEAKY_SHARE", "LEAKY_ANOMALOUS", "LEAKY_SUSPICIOUS", "LEAKY_WARMUP",
				"LEAKY_DROP", "LEAKY_FRONT_ROWS", "LEAKY_LOUD",
			},
			[]int{
				LeakyFeatures, LeakyRule, LeakyQuorum, LeakyFrontRate, LeakyClip, LeakyHistoryRate, LeakyShare,
				LeakyAnomalous, LeakySuspicious, LeakyWarmup, LeakyDrop, LeakyFrontRows, LeakyLoud,
			},
		},
		{"leaky: components of the weights", []string{"LEAKY_RATE", "LEAKY_PROJECT"}, []int{LeakyRate, LeakyProject}},
		{
			"leaky: variables of the state",
			[]string{
				"LEAKY_VAR_ROUND", "LEAKY_VAR_LEVEL", "LEAKY_VAR_SPREAD", "LEAKY_VAR_OFFSET",
				"LEAKY_VAR_POTENTIAL", "LEAKY_VAR_USUAL",
				"LEAKY_VAR_LATEST",
			},
			[]int{
				LeakyVarRound, LeakyVarLevel, LeakyVarSpread, LeakyVarOffset, LeakyVarPotential, LeakyVarUsual,
				LeakyVarLatest,
			},
		},
		{
			"lif: words of the parameter block, behind the words of leaky",
			[]string{"LIF_ADAPT", "LIF_ADAPT_DECAY", "LIF_BURST"},
			[]int{LifAdapt, LifAdaptDecay, LifBurst},
		},
		{
			"lif: components of the weights",
			[]string{"LIF_GAIN", "LIF_LEAK", "LIF_TRACE", "LIF_PROJECT"},
			[]int{LifGain, LifLeak, LifTrace, LifProject},
		},
		{
			"lif: variables of the state, behind round, level and spread",
			[]string{"LIF_VAR_POTENTIAL", "LIF_VAR_ADAPTATION", "LIF_VAR_TRACE", "LIF_VAR_USUAL", "LIF_VAR_LATEST"},
			[]int{LifVarPotential, LifVarAdaptation, LifVarTrace, LifVarUsual, LifVarLatest},
		},
		{
			"region: words of the parameter block, behind the words of leaky, and sizes",
			[]string{
				"REGION_FROM", "REGION_LEARN", "REGION_SMOOTH", "REGION_MEMORY", "REGION_PICKS", "REGION_PAIRS",
				"REGION_SETTLING",
			},
			[]int{
				RegionFrom, RegionLearn, RegionSmooth, RegionMemory, RegionPicks, RegionPairs, RegionSettling,
			},
		},
		{
			"region: components of the weights",
			[]string{"REGION_SIZE", "REGION_ROUGH", "REGION_FEATURE", "REGION_RATE"},
			[]int{RegionSize, RegionRough, RegionFeature, RegionRate},
		},
		{
			"region: variables of the state, behind round, level and spread",
			[]string{
				"REGION_VAR_FILTER", "REGION_VAR_LAST", "REGION_VAR_MEAN", "REGION_VAR_COVARIANCE",
				"REGION_VAR_USUAL", "REGION_VAR_TRACE", "REGION_VAR_LATEST",
			},
			[]int{
				RegionVarFilter, RegionVarLast, RegionVarMean, RegionVarCovariance, RegionVarUsual, RegionVarTrace,
				RegionVarLatest,
			},
		},
		{
			"gru: words of the parameter block, behind the words of leaky, and sizes",
			[]string{
				"GRU_HIDDEN", "GRU_LEARN", "GRU_OWN", "GRU_UNITS_REACH", "GRU_INPUT_REACH", "GRU_UPDATE_REACH",
				"GRU_BIAS_REACH", "GRU_MOST_HIDDEN", "GRU_UPDATE", "GRU_RESET", "GRU_NEW", "GRU_GATES",
			},
			[]int{
				GruHidden, GruLearn, GruOwn, GruUnitsReach, GruInputReach, GruUpdateReach, GruBiasReach,
				GruMostHidden, GruUpdate, GruReset, GruNew, GruGates,
			},
		},
		{
			"gru: components of the weights",
			[]string{"GRU_GAIN", "GRU_OFFSET", "GRU_PROJECT"},
			[]int{GruGain, GruOffset, GruProject},
		},
		{
			"gru: variables of the state, behind round, level and spread",
			[]string{"GRU_VAR_HIDDEN", "GRU_VAR_READOUT", "GRU_VAR_LAST", "GRU_VAR_USUAL", "GRU_VAR_WEIGHTS"},
			[]int{GruVarHidden, GruVarReadout, GruVarLast, GruVarUsual, GruVarWeights},
		},
		{
			"predictor: words of the parameter block",
			[]string{
				"PREDICTOR_FEATURES", "PREDICTOR_RULE", "PREDICTOR_QUORUM", "PREDICTOR_LEARN",
				"PREDICTOR_FRONT_RATE", "PREDICTOR_CLIP", "PREDICTOR_HISTORY_RATE", "PREDICTOR_HABIT_RATE",
				"PREDICTOR_SHARE", "PREDICTOR_MEMORY", "PREDICTOR_TAIL_SHARE", "PREDICTOR_TAIL_SHAPE",
				"PREDICTOR_TAIL_TRUST", "PREDICTOR_RANK_MIX", "PREDICTOR_HOLD", "PREDICTOR_MARGIN", "PREDICTOR_ALARM",
				"PREDICTOR_SUSPECT", "PREDICTOR_WARMUP", "PREDICTOR_DROP", "PREDICTOR_BLOCK",
				"PREDICTOR_PER_SECOND", "PREDICTOR_RELATIONS",
			},
			[]int{
				PredictorFeatures, PredictorRule, PredictorQuorum, PredictorLearn, PredictorFrontRate, PredictorClip,
				PredictorHistoryRate, PredictorHabitRate, PredictorShare, PredictorMemory, PredictorTailShare,
				PredictorTailShape, PredictorTailTrust, PredictorRankMix, PredictorHold, PredictorMargin,
				PredictorAlarm, PredictorSuspect, PredictorWarmup, PredictorDrop, PredictorBlock,
				PredictorPerSecond, PredictorRelations,
			},
		},
		{
			"predictor: sizes and components of the weights",
			[]string{
				"PREDICTOR_HIDDEN", "PREDICTOR_READOUT", "PREDICTOR_INPUTS", "PREDICTOR_IN", "PREDICTOR_RECURRENT",
				"PREDICTOR_LEAK", "PREDICTOR_SLOW", "PREDICTOR_FAST", "PREDICTOR_UNREST", "PREDICTOR_ROUGH_RATE",
				"PREDICTOR_AWAY_RATE", "PREDICTOR_PROJECT",
			},
			[]int{
				PredictorHidden, PredictorReadout, PredictorInputs, PredictorIn, PredictorRecurrent, PredictorLeak,
				PredictorSlow, PredictorFast, PredictorUnrest, PredictorRoughRate, PredictorAwayRate, PredictorProject,
			},
		},
		{
			"predictor: kinds of surprise",
			[]string{
				"PREDICTOR_INSTANT", "PREDICTOR_LASTING", "PREDICTOR_RESTLESS", "PREDICTOR_ROUGH", "PREDICTOR_CALM",
				"PREDICTOR_AWAY", "PREDICTOR_KINDS",
			},
			[]int{
				PredictorInstant, PredictorLasting, PredictorRestless, PredictorRough, PredictorCalm, PredictorAway,
				PredictorKinds,
			},
		},
		{
			"predictor: variables of the state",
			[]string{
				"PREDICTOR_VAR_ROUND", "PREDICTOR_VAR_LEVEL", "PREDICTOR_VAR_SPREAD", "PREDICTOR_VAR_OFFSET",
				"PREDICTOR_VAR_LAST",
				"PREDICTOR_VAR_DAY", "PREDICTOR_VAR_WEEK", "PREDICTOR_VAR_DAY_SEEN", "PREDICTOR_VAR_WEEK_SEEN",
				"PREDICTOR_VAR_VISIT", "PREDICTOR_VAR_VISITED", "PREDICTOR_VAR_DAY_VISIT", "PREDICTOR_VAR_WEEK_VISIT",
				"PREDICTOR_VAR_DAY_WORTH", "PREDICTOR_VAR_WEEK_WORTH",
				"PREDICTOR_VAR_HISTORY", "PREDICTOR_VAR_HOLD", "PREDICTOR_VAR_BLOCK", "PREDICTOR_VAR_TIME",
				"PREDICTOR_VAR_INTERVAL", "PREDICTOR_VAR_WIDEST", "PREDICTOR_VAR_KNOWN", "PREDICTOR_VAR_PEAKS",
				"PREDICTOR_VAR_PEAK", "PREDICTOR_VAR_PEAK_USUAL", "PREDICTOR_VAR_HIDDEN",
				"PREDICTOR_VAR_READOUT",
				"PREDICTOR_VAR_MEAN", "PREDICTOR_VAR_ERROR", "PREDICTOR_VAR_DRIFT", "PREDICTOR_VAR_DRIFT_USUAL",
				"PREDICTOR_VAR_NAIVE", "PREDICTOR_VAR_UNREST", "PREDICTOR_VAR_ROUGH", "PREDICTOR_VAR_ROUGH_USUAL",
				"PREDICTOR_VAR_AWAY", "PREDICTOR_VAR_AWAY_USUAL", "PREDICTOR_VAR_RELATION", "PREDICTOR_VAR_MISS",
				"PREDICTOR_VAR_SINCE",
			},
			[]int{
				PredictorVarRound, PredictorVarLevel, PredictorVarSpread, PredictorVarOffset, PredictorVarLast,
				PredictorVarDay,
				PredictorVarWeek, PredictorVarDaySeen, PredictorVarWeekSeen,
				PredictorVarVisit, PredictorVarVisited, PredictorVarDayVisit, PredictorVarWeekVisit,
				PredictorVarDayWorth, PredictorVarWeekWorth, PredictorVarHistory, PredictorVarHold,
				PredictorVarBlock, PredictorVarTime, PredictorVarInterval, PredictorVarWidest, PredictorVarKnown,
				PredictorVarPeaks, PredictorVarPeak, PredictorVarPeakUsual,
				PredictorVarHidden, PredictorVarReadout, PredictorVarMean, PredictorVarError, PredictorVarDrift,
				PredictorVarDriftUsual, PredictorVarNaive, PredictorVarUnrest, PredictorVarRough,
				PredictorVarRoughUsual, PredictorVarAway, PredictorVarAwayUsual, PredictorVarRelation,
				PredictorVarMiss, PredictorVarSince,
			},
		},
	}
	var b strings.Builder
	b.WriteString("// The numbers of words, components and variables, from the Go constants of this package that " +
		"say what each is.\n" +
		"// Written by: go test ./cuda/kernels -run TestWordsAreCurrent -update\n")
	for _, g := range groups {
		fmt.Fprintf(&b, "\n// %s\n", g.about)
		if len(g.names) != len(g.value) {
			t.Fatalf("%s: %d names for %d values", g.about, len(g.names), len(g.value))
		}
		for i, name := range g.names {
			fmt.Fprintf(&b, "#define %s %d\n", name, g.value[i])
		}
	}
	list := func(numbers any) string {
		return strings.NewReplacer("[", "{", "]", "}", " ", ", ").Replace(fmt.Sprint(numbers))
	}
	fmt.Fprintf(&b, "\n// prior\n#define PRIOR_FROM %s\n", list(PriorAges))
	b.WriteString("#define PRIOR_EVIDENCE {")
	for _, evidence := range PriorEvidence {
		fmt.Fprintf(&b, " \\\n  %s,", list(evidence))
	}
	b.WriteString("}\n#define PRIOR_BINS {")
	for _, knots := range PriorKnots {
		fmt.Fprintf(&b, " \\\n  %s,", list(knots))
	}
	b.WriteString("}\n")
	if *update {
		if err := os.WriteFile("words.cuh", []byte(b.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile("words.cuh")
	if err != nil || string(have) != b.String() {
		t.Errorf("words.cuh is not what the constants say (%v); write it anew with -update", err)
	}
}
