/* Makes every sync of a process take longer. The file named by SLOW_SYNC_FILE holds how much, in
   milliseconds, and is read at each sync, so that a test can change it while the process runs. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static void wait_as_told(void) {
    const char *path = getenv("SLOW_SYNC_FILE");
    FILE *file = path ? fopen(path, "r") : NULL;
    long milliseconds = 0;
    if (!file)
        return;
    if (fscanf(file, "%ld", &milliseconds) == 1 && milliseconds > 0) {
        struct timespec delay = {milliseconds / 1000, (milliseconds % 1000) * 1000000L};
        nanosleep(&delay, NULL);
    }
    fclose(file);
}

int fsync(int fd) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fsync");
    wait_as_told();
    return next(fd);
}

int fdatasync(int fd) {
    int (*next)(int) = (int (*)(int))dlsym(RTLD_NEXT, "fdatasync");
    wait_as_told();
    return next(fd);
}
