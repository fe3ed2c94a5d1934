/*
 * controller.h - how many entries of each tensor leave at a step: the schedule's density, changed by what is known of
 * the tensor (layers), of the gradient (norm), and of the step (warm-up and periodic dense steps).
 *
 *   density(i) = clip(base * f_layer(i) * f_norm, least, 1)
 *
 *   least     one entry of the tensor, or base where that is less
 *   f_layer   even: 1. role: embeddings get 0.001 at most, norms and biases all. sensitivity: sqrt(weight / mean weight
 *             of those told), within 1/4 .. 4. budget: the density told, in place of base * f_layer. Until told: 1.
 *   f_norm    follow: norm / running mean of earlier norms (0.9 of itself), within 1/4 .. 4. accordion: 4 when the norm
 *             differs from the one before by half of that or more, else 1. Until two norms are told: 1.
 *
 * With strict=on the densities are scaled so that sum density(i) * elements(i) = base * sum elements(i), as far as 1
 * allows. Only IEEE operations that round correctly: equal inputs give equal densities on every machine.
 */
#ifndef FRUGI_CONTROLLER_H
#define FRUGI_CONTROLLER_H

#include "config/config.h"

/** A compressed tensor, as the controller sees it. */
typedef struct frugi_controlled {
    frug_role role;
    uint64_t elements;
} frugi_controlled;

typedef struct frugi_control frugi_control;

frug_status frugi_control_create(const frug_config *config, const frugi_controlled *tensor, size_t count,
                                 uint64_t total_steps, frugi_control **control);
void frugi_control_destroy(frugi_control *control);

/** Whether a step sends everything: the first `warmup` steps, and every dense_every-th (499, 999, ... for 500). */
int frugi_control_all(const frug_config *config, uint64_t step);

/** The norm of the whole gradient at a step: for norm=follow and norm=accordion. Told twice for one step, the last word
 * counts. Finite and not negative; others are ignored. */
void frugi_control_norm(frugi_control *control, uint64_t step, double norm);

/** Take the last word about the norm back, for a step that was refused. */
void frugi_control_unsay(frugi_control *control);

/** How sensitive tensor i is (layers=sensitivity), as a number that is not negative; or the density that a budget gives
 * it (layers=budget). */
void frugi_control_weight(frugi_control *control, size_t i, double weight);

/** The density of tensor i at a step, above 0 and at most 1. */
double frugi_control_density(const frugi_control *control, uint64_t step, size_t i);

/** The same of all tensors at once, which with strict=on costs hardly more than one. */
void frugi_control_densities(const frugi_control *control, uint64_t step, double *density);

/** The most it can be at any step, whatever is told; steps that send everything aside. */
double frugi_control_most(const frugi_control *control, size_t i);

/** The state as bytes, for saving. */
size_t frugi_control_bytes(const frugi_control *control);
void frugi_control_export(const frugi_control *control, unsigned char *dst);
int frugi_control_check(const frugi_control *like, const unsigned char *src);
void frugi_control_import(frugi_control *control, const unsigned char *src);

#endif
