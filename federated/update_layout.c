/* update_layout.c - the layout of updates from that of the model and the config. */
#include "federated/update_layout.h"

#include <stdbool.h>
#include <string.h>

static frug_status copy_tensors(const frug_layout *from, frug_layout *to) {
    frug_status status = FRUG_OK;
    for (size_t i = 0; i < frug_layout_count(from) && status == FRUG_OK; i++) {
        frug_tensor tensor = FRUG_TENSOR_INIT;
        status = frug_layout_get(from, i, &tensor);
        if (status == FRUG_OK)
            status = frug_layout_add(to, &tensor);
    }
    return status;
}

frug_status fgf_update_layout(const frug_layout *model, const char *text, frug_layout **layout) {
    frug_config *config = NULL;
    frug_layout *made = NULL;
    frug_status status = frug_config_create(text, &config);
    bool one_tensor = status == FRUG_OK && strcmp(frug_config_get(config, "segment"), "all") == 0;
    frug_config_destroy(config);
    if (status == FRUG_OK && one_tensor)
        return frug_layout_flat(frug_layout_elements(model), layout);
    if (status == FRUG_OK)
        status = frug_layout_create(&made);
    if (status == FRUG_OK)
        status = copy_tensors(model, made);
    if (status == FRUG_OK)
        *layout = made;
    else
        frug_layout_destroy(made);
    return status;
}
