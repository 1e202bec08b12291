/* Shows the wall clock, the monotonic clock and the one that runs through a suspend, in nanoseconds. */
#include <stdio.h>
#include <time.h>

int main(void) {
    const clockid_t clocks[] = {CLOCK_REALTIME, CLOCK_MONOTONIC, CLOCK_BOOTTIME};
    for (int i = 0; i < 3; i++) {
        struct timespec now;
        if (clock_gettime(clocks[i], &now) != 0)
            return 1;
        printf("%lld\n", now.tv_sec * 1000000000LL + now.tv_nsec);
    }
    return 0;
}
