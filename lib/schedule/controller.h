/*
 * controller.h - the density of each tensor at a step: the density of the schedule, modified by the tensor (layers), by
 * the norm of the gradient (norm) and by the step (warm-up and periodic dense steps).
 *
 *   density(i) = clip(base * f_layer(i) * f_norm, least, 1)
 *
 *   least     one entry of the tensor, or base if that is less
 *   f_layer   even: 1. role: embeddings have a density of at most 0.001, norms and biases 1. sensitivity:
 *             sqrt(weight / mean of the weights that are set), within 1/4 .. 4. budget: the density that was set, in
 *             place of base * f_layer. 1 until a weight is set.
 *   f_norm    follow: norm / running mean of earlier norms (decay 0.9), within 1/4 .. 4. accordion: 4 if the norm
 *             differs from the previous one by half of that or more, else 1. 1 until two norms are set.
 *
 * With strict=on the densities are scaled so that sum density(i) * elements(i) = base * sum elements(i), as far as the
 * limits allow. Only correctly rounded IEEE operations are used: equal inputs give equal densities on every machine.
 */
#ifndef FRUGI_CONTROLLER_H
#define FRUGI_CONTROLLER_H

#include "config/config.h"

/** What the controller needs of a compressed tensor. */
typedef struct frugi_control_tensor {
    frug_role role;
    uint64_t elements;
} frugi_control_tensor;

typedef struct frugi_control frugi_control;

frug_status frugi_control_create(const frug_config *config, const frugi_control_tensor *tensor, size_t count,
                                 uint64_t total_steps, frugi_control **control);
void frugi_control_destroy(frugi_control *control);

/** Whether a step sends everything: the first `warmup` steps, and every dense_every-th (499, 999, ... for 500). */
int frugi_control_sends_all(const frug_config *config, uint64_t step);

/** Set the norm of the whole gradient at a step, for norm=follow and norm=accordion. A second norm for the same step
 * replaces the first. Norms that are not finite or negative are ignored. */
void frugi_control_set_norm(frugi_control *control, uint64_t step, double norm);

/** Undo the last call that set the norm, for a step that failed. */
void frugi_control_undo_norm(frugi_control *control);

/** Set the sensitivity of tensor i (layers=sensitivity), a nonnegative number, or its density (layers=budget). */
void frugi_control_set_weight(frugi_control *control, size_t i, double weight);

/** The density of tensor i at a step, above 0 and at most 1. */
double frugi_control_density(const frugi_control *control, uint64_t step, size_t i);

/** The densities of all tensors, which with strict=on cost hardly more than one. */
void frugi_control_densities(const frugi_control *control, uint64_t step, double *density);

/** The largest possible density of tensor i at any step, except steps that send everything. */
double frugi_control_max_density(const frugi_control *control, size_t i);

/** The state as bytes, for checkpoints. */
size_t frugi_control_bytes(const frugi_control *control);
void frugi_control_export(const frugi_control *control, unsigned char *dst);
int frugi_control_check(const frugi_control *like, const unsigned char *src);
void frugi_control_import(frugi_control *control, const unsigned char *src);

#endif
