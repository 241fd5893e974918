/* library.c - the one file of a program that compiles the library, where it is the header alone. */
#define COLL_IMPLEMENTATION
#include <coll.h>
