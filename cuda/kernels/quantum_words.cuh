// The numbers of the quantum cell, from the constants of quantum.go that say what each is.
// Written by: go test ./cuda/kernels -run TestQuantumWordsAreCurrent -update
#pragma once

#define QUANTUM_KEY 7u
#define QUANTUM_FIRST 9u
#define QUANTUM_ROUND 10u
#define QUANTUM_VAR_DRAWS 3u
#define QUANTUM_VAR_STATE 4u
#define QUANTUM_TABLE_COUNT 0u
#define QUANTUM_TABLE_FRESH 1u
#define QUANTUM_TABLE_PLACES 2u
#define QUANTUM_TABLE_GATES 4u
#define QUANTUM_GATE_MATRIX 4u
#define QUANTUM_GATE_WORDS 12u
#define QUANTUM_REAL 1u
#define QUANTUM_MIXED 2u
#define QUANTUM_EXCHANGE 3u
#define QUANTUM_FACTOR 4u
#define QUANTUM_NO_PLACE 15u
#define QUANTUM_BLOCK 128u
#define QUANTUM_SPAN 512u
#define QUANTUM_ANGLE 1048576u
#define QUANTUM_WEIGHT 4194304u
#define QUANTUM_DRIFT 1024u
#define QUANTUM_VOTE 2147483648u
