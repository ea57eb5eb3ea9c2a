// What the programs in C share.

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define CHECK(x) \
	do { \
		if (!(x)) { \
			fprintf(stderr, "%s:%d: %s: %s\n", __FILE__, __LINE__, #x, cuda_last_error()); \
			exit(1); \
		} \
	} while (0)

#define REFUSED(call, code, words) \
	do { \
		CHECK((call) == (code)); \
		CHECK(strstr(cuda_last_error(), words) != NULL); \
	} while (0)
