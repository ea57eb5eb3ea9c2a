// The numbers of the agent-addressed kernels, from the Go constants of this package that say what each is.
// Written by: go test ./cuda/kernels -run TestAgentWordsAreCurrent -update
#pragma once

#define AGENT_CANDIDATES 0
#define AGENT_RULE 1
#define AGENT_QUORUM 2
#define AGENT_FEATURES 3
#define AGENT_DECAY 4
#define AGENT_THRESHOLD 5
#define AGENT_TRACE_RATE 6
#define AGENT_VAR_ROUND 0
#define AGENT_VAR_COUNTS 1
#define AGENT_VAR_VOTE 2
#define AGENT_VAR_INPUT 3
#define AGENT_VAR_ROW 3
#define AGENT_VAR_POTENTIAL 4
#define AGENT_VAR_TRACE 5
#define AGENT_VAR_KNOWLEDGE 4
#define AGENT_VAR_UPDATES 5
#define AGENT_VAR_UPDATED 6
#define AGENT_VAR_LEARNED 7
#define AGENT_MOST_NODE 8
#define AGENT_MERGE_MAX 1
#define AGENT_MERGE_EMA 2
#define AGENT_MOST_CANDIDATES 16
#define AGENT_NO_VOTE 255
#define AGENT_HOST_BIT 31
#define AGENT_SPAN 1024
#define AGENT_SPAN_LEAKY 4096
#define AGENT_SPAN_GROUPS 128
#define AGENT_HEADED 4294967295
#define AGENT_TICK_SILENT 0
#define AGENT_TICK_COUNT 1
#define AGENT_TICK_PUBLISH 2
#define AGENT_TICKET 0
#define AGENT_STEPPED 1
#define AGENT_OUTSIDE 2
#define AGENT_REFUSED 3
#define AGENT_SUM 4
#define AGENT_TALLY 20
#define AGENT_DONE 0
#define AGENT_RESULT_TALLY 4
#define AGENT_INPUT 6.553600000e+04f
#define AGENT_GRU_INPUT 1.587500000e+01f
#define AGENT_UNIT_SCALE 1.638400000e+04f
#define AGENT_INPUT_SCALE 2.048000000e+03f
