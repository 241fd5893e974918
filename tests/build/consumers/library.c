/* library.c - the one file of a program that compiles the library, if the library is only the header. */
#define COLL_IMPLEMENTATION
#include <coll.h>
