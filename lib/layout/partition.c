/* partition.c - the tensors of a layout as ranges of the flat buffer. */
#include "layout/partition.h"

#include "base/alloc.h"
#include "base/status.h"

frug_status frugi_partition_create(const frug_layout *layout, frugi_partition *partition) {
    frugi_partition p = {.tensors = layout->count, .elements = frug_layout_elements(layout)};
    p.view = frugi_calloc(layout->count + 1, sizeof *p.view);
    FRUG_FAIL_IF(!p.view, FRUG_ERR_MEMORY, "partition: out of memory for %zu tensors", layout->count);
    for (size_t i = 0; i < layout->count; i++) {
        const frug_tensor *t = &layout->tensor[i];
        uint64_t n = frugi_tensor_elements(t);
        if (n)
            p.view[p.views++] =
                (frugi_tensor_view){.begin = t->offset, .count = n, .tensor = (uint32_t)i, .absent = t->absent != 0};
        p.any_absent |= t->absent != 0;
    }
    *partition = p;
    return FRUG_OK;
}

void frugi_partition_destroy(frugi_partition *partition) {
    frugi_free(partition->view);
    *partition = (frugi_partition){0};
}

size_t frugi_view_at(const frugi_partition *p, uint64_t element) {
    size_t lo = 0, hi = p->views;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (p->view[mid].begin + p->view[mid].count <= element)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

frug_status frugi_check_range(const frugi_partition *p, uint64_t begin, uint64_t count) {
    FRUG_FAIL_IF(begin > p->elements || count > p->elements - begin, FRUG_ERR_ARG,
                 "range: elements %llu to %llu are outside the layout, which has %llu", (unsigned long long)begin,
                 (unsigned long long)(begin + count), (unsigned long long)p->elements);
    frugi_range_iter it = frugi_range_start(p, begin, begin + count);
    while (p->any_absent && frugi_range_next(&it))
        FRUG_FAIL_IF(it.view->absent && it.from < it.to, FRUG_ERR_ARG,
                     "range: elements %llu to %llu are of tensor %u, which is absent", (unsigned long long)it.from,
                     (unsigned long long)it.to, (unsigned)it.view->tensor);
    return FRUG_OK;
}
