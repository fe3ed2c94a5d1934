/*
 * control.h - how many entries of each tensor leave at a step: the schedule's density, changed by what is known of the
 * tensor (layers), of the gradient (norm), and of the step (warm-up and periodic dense steps).
 *
 *   density(i) = clip(base * f_layer(i) * f_norm, least, 1)
 *
 * With strict=on the densities are scaled so that sum density(i) * elements(i) = base * sum elements(i), as far as 1
 * allows. Only IEEE operations that round correctly: equal inputs give equal densities on every machine.
 */
#ifndef FRUGI_CONTROL_H
#define FRUGI_CONTROL_H

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

/** Whether a step sends everything (warm-up or periodic dense). */
int frugi_control_all(const frug_config *config, uint64_t step);

/** The norm of the whole gradient at a step: for norm=follow and norm=accordion. Finite and not negative. */
void frugi_control_norm(frugi_control *control, uint64_t step, double norm);

/** How sensitive tensor i is (layers=sensitivity), as a number that is not negative; or the density that a budget gives
 * it (layers=budget). */
void frugi_control_weight(frugi_control *control, size_t i, double weight);

/** The density of tensor i at a step, above 0 and at most 1. */
double frugi_control_density(const frugi_control *control, uint64_t step, size_t i);

/** The most it can be at any step, whatever is told; steps that send everything aside. */
double frugi_control_most(const frugi_control *control, size_t i);

/** The state as bytes, for saving. */
size_t frugi_control_bytes(const frugi_control *control);
void frugi_control_export(const frugi_control *control, unsigned char *dst);
int frugi_control_check(const frugi_control *like, const unsigned char *src);
void frugi_control_import(frugi_control *control, const unsigned char *src);

#endif
