/* temp_tree.h - for tests that make directories inside a temporary one. */
#ifndef FRUG_TEST_TEMP_TREE_H
#define FRUG_TEST_TEMP_TREE_H

#include <ftw.h>
#include <stdio.h>

static inline int temp_tree_remove_entry(const char *path, const struct stat *info, int kind, struct FTW *where) {
    (void)info;
    (void)kind;
    (void)where;
    return remove(path);
}

/** Remove a directory with all that is in it. */
static inline void temp_tree_remove(const char *directory) {
    nftw(directory, temp_tree_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
