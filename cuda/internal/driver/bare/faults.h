// One experiment: break a context in one way, clear up in one way, and see what still works.
#ifndef EXO_FAULTS_H
#define EXO_FAULTS_H

// exo_fault writes one line of NAME=RESULT words to out, each result a CUresult. kind is a kernel of faults.cu.
void exo_fault(const char *library, const char *ptx, const char *kind, const char *strategy, char *out, int size);

// exo_sound runs a sound kernel in a new context and returns 0, or 1000 plus the step that failed, and its CUresult.
int exo_sound(const char *library, const char *ptx, int *result);

#endif
