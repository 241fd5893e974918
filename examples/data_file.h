/* data_file.h - where an example finds its data, from whatever folder it is started. */
#ifndef DATA_FILE_H
#define DATA_FILE_H

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* Open `name`, a path within this repository, in the current folder, or in any folder above the executable's. */
static inline FILE *data_open(const char *name)
{
    char path[4096];
    FILE *file = fopen(name, "rb");
    const ssize_t length = file ? 0 : readlink("/proc/self/exe", path, sizeof path - 1);

    if (length <= 0) return file;
    path[length] = '\0';
    for (char *slash; !file && (slash = strrchr(path, '/')); *slash = '\0') {
        const size_t room = sizeof path - (size_t)(slash + 1 - path);

        if ((size_t)snprintf(slash + 1, room, "%s", name) < room) file = fopen(path, "rb");
        *slash = '\0';
    }
    return file;
}

#endif /* DATA_FILE_H */
