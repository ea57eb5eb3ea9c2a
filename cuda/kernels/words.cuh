// The numbers of words, components and variables, from the Go constants of this package that say what each is.
// Written by: go test ./cuda/kernels -run TestWordsAreCurrent -update

// voting
#define RULE_PLURALITY 0
#define RULE_MAJORITY 1
#define RULE_QUORUM 2
#define RULE_WEIGHTED 3
#define RULE_UNANIMOUS 4
#define VOTE_NORMAL 0
#define VOTE_SUSPICIOUS 1
#define VOTE_ANOMALOUS 2
#define VOTE_CANDIDATES 3
#define MAX_VOTE_WEIGHT 8192
#define DROP_LATE 1
#define DROP_DUPLICATE 2
#define DROPPED_LATE -2
#define DROPPED_DUPLICATE -3
#define RUN_HOST_BIT 31
#define SEED_WORDS 4

// surprise
#define SURPRISE_FINE 32
#define SURPRISE_MIN_OCTAVE -6
#define SURPRISE_BINS 512
#define HISTORY_FINE 8
#define HISTORY_BINS 128
#define SCORE_HALF 4
#define MOST_NATS 40
#define RANK_DOUBT 30
#define DAY_SLOTS 48
#define WEEK_SLOTS 168
#define HABIT_WEEKS 15251
#define MAX_FEATURES 64
#define PRIOR_ROWS 512
#define PRIOR_STEPS -4
#define PRIOR_BLOCKS 8
#define PRIOR_AGES 8
#define PRIOR_KNOTS 7

// leaky: words of the parameter block
#define LEAKY_FEATURES 0
#define LEAKY_RULE 1
#define LEAKY_QUORUM 2
#define LEAKY_FRONT_RATE 3
#define LEAKY_CLIP 4
#define LEAKY_HISTORY_RATE 5
#define LEAKY_SHARE 6
#define LEAKY_ANOMALOUS 7
#define LEAKY_SUSPICIOUS 8
#define LEAKY_WARMUP 9
#define LEAKY_DROP 10
#define LEAKY_FRONT_ROWS 11
#define LEAKY_LOUD 12

// leaky: components of the weights
#define LEAKY_RATE 0
#define LEAKY_PROJECT 1

// leaky: variables of the state
#define LEAKY_VAR_ROUND 0
#define LEAKY_VAR_LEVEL 1
#define LEAKY_VAR_SPREAD 2
#define LEAKY_VAR_OFFSET 3
#define LEAKY_VAR_POTENTIAL 4
#define LEAKY_VAR_USUAL 5
#define LEAKY_VAR_LATEST 6

// lif: words of the parameter block, behind the words of leaky
#define LIF_ADAPT 13
#define LIF_ADAPT_DECAY 14
#define LIF_BURST 16

// lif: components of the weights
#define LIF_GAIN 0
#define LIF_LEAK 1
#define LIF_TRACE 2
#define LIF_PROJECT 3

// lif: variables of the state, behind round, level and spread
#define LIF_VAR_POTENTIAL 4
#define LIF_VAR_ADAPTATION 5
#define LIF_VAR_TRACE 6
#define LIF_VAR_USUAL 7
#define LIF_VAR_LATEST 8

// region: words of the parameter block, behind the words of leaky, and sizes
#define REGION_FROM 13
#define REGION_LEARN 14
#define REGION_SMOOTH 15
#define REGION_MEMORY 16
#define REGION_PICKS 8
#define REGION_PAIRS 36
#define REGION_SETTLING 20

// region: components of the weights
#define REGION_SIZE 0
#define REGION_ROUGH 1
#define REGION_FEATURE 2
#define REGION_RATE 10

// region: variables of the state, behind round, level and spread
#define REGION_VAR_FILTER 4
#define REGION_VAR_LAST 5
#define REGION_VAR_MEAN 6
#define REGION_VAR_COVARIANCE 7
#define REGION_VAR_USUAL 8
#define REGION_VAR_TRACE 9
#define REGION_VAR_LATEST 10

// gru: words of the parameter block, behind the words of leaky, and sizes
#define GRU_HIDDEN 13
#define GRU_LEARN 14
#define GRU_OWN 15
#define GRU_UNITS_REACH 16
#define GRU_INPUT_REACH 17
#define GRU_UPDATE_REACH 18
#define GRU_BIAS_REACH 19
#define GRU_MOST_HIDDEN 64
#define GRU_UPDATE 0
#define GRU_RESET 1
#define GRU_NEW 2
#define GRU_GATES 3

// gru: components of the weights
#define GRU_GAIN 0
#define GRU_OFFSET 1
#define GRU_PROJECT 2

// gru: variables of the state, behind round, level and spread
#define GRU_VAR_HIDDEN 4
#define GRU_VAR_READOUT 5
#define GRU_VAR_LAST 6
#define GRU_VAR_USUAL 7
#define GRU_VAR_WEIGHTS 8

// predictor: words of the parameter block
#define PREDICTOR_FEATURES 0
#define PREDICTOR_RULE 1
#define PREDICTOR_QUORUM 2
#define PREDICTOR_LEARN 3
#define PREDICTOR_FRONT_RATE 4
#define PREDICTOR_CLIP 5
#define PREDICTOR_HISTORY_RATE 6
#define PREDICTOR_HABIT_RATE 7
#define PREDICTOR_SHARE 8
#define PREDICTOR_MEMORY 9
#define PREDICTOR_TAIL_SHARE 10
#define PREDICTOR_TAIL_SHAPE 11
#define PREDICTOR_TAIL_TRUST 12
#define PREDICTOR_RANK_MIX 13
#define PREDICTOR_HOLD 14
#define PREDICTOR_MARGIN 15
#define PREDICTOR_ALARM 16
#define PREDICTOR_SUSPECT 17
#define PREDICTOR_WARMUP 18
#define PREDICTOR_DROP 19
#define PREDICTOR_BLOCK 20
#define PREDICTOR_PER_SECOND 21
#define PREDICTOR_RELATIONS 22

// predictor: sizes and components of the weights
#define PREDICTOR_HIDDEN 4
#define PREDICTOR_READOUT 7
#define PREDICTOR_INPUTS 2
#define PREDICTOR_IN 0
#define PREDICTOR_RECURRENT 8
#define PREDICTOR_LEAK 24
#define PREDICTOR_SLOW 28
#define PREDICTOR_FAST 29
#define PREDICTOR_UNREST 30
#define PREDICTOR_ROUGH_RATE 31
#define PREDICTOR_AWAY_RATE 32
#define PREDICTOR_PROJECT 33

// predictor: kinds of surprise
#define PREDICTOR_INSTANT 0
#define PREDICTOR_LASTING 1
#define PREDICTOR_RESTLESS 2
#define PREDICTOR_ROUGH 3
#define PREDICTOR_CALM 4
#define PREDICTOR_AWAY 5
#define PREDICTOR_KINDS 6

// predictor: variables of the state
#define PREDICTOR_VAR_ROUND 0
#define PREDICTOR_VAR_LEVEL 1
#define PREDICTOR_VAR_SPREAD 2
#define PREDICTOR_VAR_OFFSET 3
#define PREDICTOR_VAR_LAST 4
#define PREDICTOR_VAR_DAY 5
#define PREDICTOR_VAR_WEEK 6
#define PREDICTOR_VAR_DAY_SEEN 7
#define PREDICTOR_VAR_WEEK_SEEN 8
#define PREDICTOR_VAR_VISIT 9
#define PREDICTOR_VAR_VISITED 10
#define PREDICTOR_VAR_DAY_VISIT 11
#define PREDICTOR_VAR_WEEK_VISIT 12
#define PREDICTOR_VAR_DAY_WORTH 13
#define PREDICTOR_VAR_WEEK_WORTH 14
#define PREDICTOR_VAR_HISTORY 15
#define PREDICTOR_VAR_HOLD 16
#define PREDICTOR_VAR_BLOCK 17
#define PREDICTOR_VAR_TIME 18
#define PREDICTOR_VAR_INTERVAL 19
#define PREDICTOR_VAR_WIDEST 20
#define PREDICTOR_VAR_KNOWN 21
#define PREDICTOR_VAR_PEAKS 22
#define PREDICTOR_VAR_PEAK 23
#define PREDICTOR_VAR_PEAK_USUAL 24
#define PREDICTOR_VAR_HIDDEN 25
#define PREDICTOR_VAR_READOUT 26
#define PREDICTOR_VAR_MEAN 27
#define PREDICTOR_VAR_ERROR 28
#define PREDICTOR_VAR_DRIFT 29
#define PREDICTOR_VAR_DRIFT_USUAL 30
#define PREDICTOR_VAR_NAIVE 31
#define PREDICTOR_VAR_UNREST 32
#define PREDICTOR_VAR_ROUGH 33
#define PREDICTOR_VAR_ROUGH_USUAL 34
#define PREDICTOR_VAR_AWAY 35
#define PREDICTOR_VAR_AWAY_USUAL 36
#define PREDICTOR_VAR_RELATION 37
#define PREDICTOR_VAR_MISS 38
#define PREDICTOR_VAR_SINCE 39

// prior
#define PRIOR_FROM {0, 14, 20, 28, 40, 64, 128, 256}
#define PRIOR_EVIDENCE { \
  {2, 4, 8, 13, 19, 29, 46}, \
  {2, 4, 8, 13, 19, 29, 46}, \
  {2, 4, 8, 13, 19, 29, 46}, \
  {2, 4, 8, 13, 19, 29, 46}, \
  {2, 4, 8, 13, 19, 29, 46}, \
  {2, 4, 8, 16, 32, 64, 128}, \
  {2, 4, 8, 16, 32, 64, 128}, \
  {2, 4, 8, 16, 32, 64, 128},}
#define PRIOR_BINS { \
  {349, 384, 408, 419, 429, 437, 448}, \
  {303, 329, 372, 388, 396, 405, 412}, \
  {283, 309, 344, 368, 377, 385, 387}, \
  {267, 292, 324, 355, 368, 375, 381}, \
  {256, 270, 301, 332, 358, 366, 371}, \
  {238, 254, 266, 298, 331, 355, 362}, \
  {233, 249, 263, 283, 319, 343, 357}, \
  {233, 249, 265, 289, 313, 336, 353},}
