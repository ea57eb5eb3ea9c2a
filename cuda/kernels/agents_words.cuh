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
#define AGENT_VAR_HIDDEN 4
#define AGENT_VAR_POTENTIAL 4
#define AGENT_VAR_TRACE 5
#define AGENT_MOST_CANDIDATES 16
#define AGENT_NO_VOTE 255
#define AGENT_SPAN 1024
#define AGENT_SPAN_LEAKY 4096
#define AGENT_SPAN_GROUPS 128
#define AGENT_TICKET 0
#define AGENT_STEPPED 1
#define AGENT_OUTSIDE 2
#define AGENT_REFUSED 3
#define AGENT_SUM 4
#define AGENT_TALLY 20
#define AGENT_DONE 0
#define AGENT_RESULT_TALLY 4
#define AGENT_INPUT 6.553600000e+04f
#define LOGISTIC_A0 3.214694519e+02f
#define LOGISTIC_A1 8.122615814e+00f
#define LOGISTIC_A2 1.277351566e-02f
#define LOGISTIC_B0 1.286179077e+03f
#define LOGISTIC_B1 1.394588165e+02f
