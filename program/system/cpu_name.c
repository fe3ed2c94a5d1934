/* cpu_name.c - the name of the CPU from /proc/cpuinfo, for reports. */
#include "program/system/cpu_name.h"

#include "io/error.h"

#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>

void fgp_cpu_name(char *dst, size_t cap) {
    char line[256];
    struct utsname name;
    snprintf(dst, cap, "%s", uname(&name) == 0 ? name.machine : "unknown");
    FILE *file = fopen("/proc/cpuinfo", "r");
    while (file != NULL && fgets(line, sizeof line, file) != NULL) {
        const char *colon = strchr(line, ':');
        if (strncmp(line, "model name", 10) == 0 && colon != NULL) {
            line[strcspn(line, "\n")] = '\0';
            fgio_printable(colon + 1 + strspn(colon + 1, " "), dst, cap);
            break;
        }
    }
    if (file != NULL)
        fclose(file);
}
