/*
 * graph.h - a model as a list of nodes: operations on values, in the order of the forward pass.
 *
 * A builder calls one function per operation (nn/ops.h) and gets its output value; fgt_graph_finish() then lays out the
 * memory. Parameters are in one flat buffer in the order in which they were added, so the backward pass, from the last
 * node to the first, completes their gradients from the end of the buffer to its beginning.
 *
 * The gradient of all parameters never exists as a whole. An operation computes it tile by tile (a tile is a number of
 * rows of a parameter) into memory from the sink, and closes each tile when it is complete. From then on the weights of
 * that tile may change at any moment, so a backward function reads its weights first and computes their gradient last.
 *
 * All sizes are per sample; a batch has graph->n samples, at most graph->batch_max. One graph is used by one thread,
 * which may split its work over graph->threads.
 */
#ifndef FGT_GRAPH_H
#define FGT_GRAPH_H

#include "trainer/base/batch.h"
#include "frugrad.h"
#include "frugrad/sparse.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct fgt_graph fgt_graph;
typedef struct fgt_node fgt_node;

/** Output of a node: n x sample_size floats. */
typedef struct fgt_value {
    uint32_t ndim, dims[3]; /* of one sample: (C, H, W), (T, C) or (C) */
    size_t sample_size;     /* their product */
    float *data;
    float *grad;             /* NULL: the gradient is not needed */
    bool wants_grad;         /* set by the operation that makes it */
    bool grad_written;       /* backward: grad has contents, so the next one adds to it */
    bool external;           /* forward sets data itself: memory of the batch */
    bool grad_in_place;      /* the gradient overwrites data (the logits of the loss) */
    bool keep_grad;          /* backward: grad is needed until the end of the pass */
    bool used_outside_block; /* by a node that is not in the block of the node that makes it */
    uint32_t bits;           /* forward rounds it to so many (nn/fake_quantize.h); 0: it does not */
    struct fgt_value *alias; /* shares data and grad with that value, which has no other user */
    struct fgt_value *next;
    uint32_t producer, last_use; /* numbers of the node that makes it, and of the last that uses it */
    uint32_t block;              /* that of the node that makes it */
} fgt_value;

typedef enum fgt_init { FGT_INIT_ZERO, FGT_INIT_ONE, FGT_INIT_NORMAL, FGT_INIT_UNIFORM } fgt_init;

/** A tensor of weights. */
typedef struct fgt_param {
    frug_tensor tensor; /* name (owned), role, shape, offset */
    fgt_init init;
    float init_scale;  /* standard deviation, or half the width of a uniform draw */
    size_t rows, cols; /* as a matrix: the first dimension, and the product of the others */
    size_t tile;       /* rows of one tile; set by the planner of buckets, all rows otherwise */
    size_t bucket;     /* set by the planner: number of the bucket of the first tile */
    float *w;          /* rows x cols; NULL: absent, of another stage */
    uint8_t *mask;     /* sparse weights (sparse/weight_mask.h): 1 bit for each; NULL: all are trained */
    uint64_t packed_offset, packed_count; /* sparse weights: in the flat buffer without pruned weights */
    bool head;                            /* fine-tuning: trained by AdamW, not by the method of the targets */
    bool frozen;                          /* not trained: it has no gradient and is in no bucket */
    uint32_t stage;                       /* pipeline: which stage trains it (nn/graph_stages.h) */
    bool packable;                        /* graphs without backward: may be packed instead of having w */
    frug_sparse *packed;                  /* owned; NULL: w is used */
    uint64_t *input_counts; /* owned; NULL, or how often the inputs have each magnitude (nn/input_cutoff.h) */
    float input_cutoff;     /* inputs of a smaller magnitude count as zero; 0: none */
    double *input_squares; /* owned; NULL, or sums of the squares of each input (cols, or rows if the input is first) */
    struct fgt_param *next;
} fgt_param;

/** State that is not trained: running statistics. Saved with the weights. */
typedef struct fgt_buffer {
    char *name;
    size_t count;
    float *data;
    uint32_t node;  /* number of the node that has it */
    uint32_t stage; /* as of fgt_param */
    struct fgt_buffer *next;
} fgt_buffer;

typedef struct fgt_op {
    const char *name;
    void (*forward)(fgt_graph *g, fgt_node *node);
    void (*backward)(fgt_graph *g, fgt_node *node);
    void (*destroy)(fgt_node *node); /* frees node->state; NULL: free() is enough */
    bool is_product;                 /* of its input and a matrix or kernel */
} fgt_op;

struct fgt_node {
    const fgt_op *op;
    fgt_value *in[3], *out; /* unused ones are NULL */
    fgt_param *param[3];
    void *state;            /* of the operation: sizes, options, results that forward saves for backward; from malloc */
    uint32_t number, block; /* block: see fgt_block_begin(); 0: none */
    bool skip_backward;     /* no parameter of this node or of the nodes before it is trained */
    fgt_node *next, *previous;
};

/** Receiver of the gradients of parameters. */
typedef struct fgt_sink {
    /** Memory for the tile that begins at row `first`, a multiple of p->tile. Its contents are undefined; the caller
     * writes all of it. */
    float *(*open)(struct fgt_sink *sink, const fgt_param *p, size_t first);
    void (*close)(struct fgt_sink *sink, const fgt_param *p, size_t first);
} fgt_sink;

/** Loss and metrics, summed over a batch. */
typedef struct fgt_score {
    double loss;    /* summed over the targets */
    double count;   /* targets: samples or tokens */
    double correct; /* of them, predicted correctly (numbers: 0) */
    double sums[5]; /* numbers: sums of x, y, xx, yy, xy for a correlation; two classes: true positives, predicted
                       positives, actual positives */
} fgt_score;

/** Which values stay in memory after forward. */
typedef enum fgt_keep {
    FGT_KEEP_ALL,    /* all, for backward */
    FGT_KEEP_BLOCKS, /* those outside of blocks or used by other blocks; backward recomputes the others, block by block
                      */
    FGT_KEEP_NONE    /* none after their last use in forward; there is no backward */
} fgt_keep;

struct fgt_graph {
    uint32_t batch_max, n; /* samples of the largest batch, of this one */
    int threads;
    fgt_keep keep;
    bool training;
    uint32_t past, past_most; /* token by token: tokens before this one, whose keys and values are stored, and the most
                                 there may be; past_most is 0 in graphs that get all tokens at once */
    uint64_t seed, step, worker; /* for dropout */
    uint64_t offset;             /* for dropout: samples of the step before this batch, where it is a micro-batch */
    double target_count;         /* the loss is the mean over this many targets; 0: over those of the batch */
    uint32_t block, blocks;      /* the one being built; how many there are */
    uint32_t resident_block;     /* the block whose values are in memory */
    bool recomputing;            /* forward runs again for backward: it must not change state (running statistics) */
    const fgt_batch *batch;
    const fgt_graph *owner; /* of weights and running statistics; NULL: this graph */
    fgt_score score;
    fgt_sink *sink;
    fgt_node *first, *last;
    fgt_param *params, *params_end; /* in the order of the flat buffer */
    fgt_buffer *buffers, *buffers_end;
    fgt_value *values;
    uint32_t nodes;
    uint64_t elements; /* of the flat buffer, with absent parameters */
    float *weights;    /* without them */
    float *activations, *work;
    size_t work_each;   /* floats of work space per thread */
    size_t work_shared; /* and of all threads together */
    bool build_failed;  /* a builder ran out of memory, or a size overflowed */
};

/** An empty graph. NULL without memory. */
fgt_graph *fgt_graph_create(uint32_t batch_max, int threads);
void fgt_graph_destroy(fgt_graph *g);

/** Frees a node that is not in a graph. */
void fgt_node_destroy(fgt_node *node);

/* ---- for operations ---------------------------------------------------------------- */

/** A new node with a value of that shape (whose gradient is needed); state_bytes zeroed bytes at node->state. */
fgt_node *fgt_node_add(fgt_graph *g, const fgt_op *op, fgt_value *in, uint32_t ndim, const uint32_t *dims,
                       size_t state_bytes);

/** The node's value shares memory with its first input, which no other node may use: for operations in place. */
void fgt_node_in_place(fgt_node *node);

/** Add another input. */
void fgt_node_input(fgt_node *node, int i, fgt_value *in);

/** An additional value that forward saves for its backward, `sample_size` floats per sample. NULL without memory. */
fgt_value *fgt_node_saved_value(fgt_graph *g, const fgt_node *node, size_t sample_size);

/** A new parameter; the first dimension of the shape is the number of rows. name is copied. */
fgt_param *fgt_param_add(fgt_graph *g, const char *name, frug_role role, uint32_t ndim, const uint64_t *shape,
                         fgt_init init, float init_scale);
fgt_buffer *fgt_buffer_add(fgt_graph *g, const char *name, size_t count, float value);

/** The gradient of a value overwrites its data: for the loss at the end of a model. */
void fgt_value_grad_in_place(fgt_value *value);

/** Keeps the gradient of a value until the end of the backward pass. */
void fgt_value_keep_grad(fgt_value *value);

/** Reserves this many floats of work space for each thread. */
void fgt_work_reserve(fgt_graph *g, size_t floats);

/** The work space of a thread; it is valid until the operation returns. */
float *fgt_work(fgt_graph *g, int thread);

/** The same for work space shared by all threads. */
void fgt_work_shared_reserve(fgt_graph *g, size_t floats);
float *fgt_work_shared(fgt_graph *g);

/** The gradient of input i for a backward function; NULL: not needed. *add: add to its contents (true) or overwrite
 * them. In-place nodes get the memory that also holds node->out->grad. */
float *fgt_input_grad(fgt_node *node, int i, bool *add);

/** Rows of the tile that begins at row first. */
static inline size_t fgt_tile_rows(const fgt_param *p, size_t first) {
    return p->rows - first < p->tile ? p->rows - first : p->tile;
}

/* ---- for builders and users ------------------------------------------------------------- */

/** The nodes added between the two calls are a block. With FGT_KEEP_BLOCKS only those of its values are kept that other
 * blocks use, and all blocks share the memory of the others; backward recomputes the block. Operations in place must
 * not change a value from before the block. */
void fgt_block_begin(fgt_graph *g);
void fgt_block_end(fgt_graph *g);

/** Bytes that fgt_graph_finish() would allocate for weights, and for activations and their gradients. Returns an exit
 * status. */
int fgt_graph_measure(fgt_graph *g, uint64_t *weights, uint64_t *activations);

/** Allocates weights, activations and their gradients. Returns an exit status, after an error message. */
int fgt_graph_finish(fgt_graph *g);

/** A graph of the same model uses the weights and running statistics of the owner, which is finished and exists longer.
 * Before fgt_graph_finish(). */
void fgt_graph_share(fgt_graph *g, const fgt_graph *owner);

/** To be called after parameters of a finished graph were marked as frozen: marks the nodes that backward skips and
 * drops the gradients that are no longer needed. The other gradients do not change. */
void fgt_graph_freeze(fgt_graph *g);

/** Initializes the weights by each parameter's init; the same numbers for the same seed. */
void fgt_graph_init(fgt_graph *g, uint64_t seed);

/** Where an element of the flat buffer is in g->weights: absent parameters are left out. For g->elements: how many
 * there are. */
uint64_t fgt_graph_weight_index(const fgt_graph *g, uint64_t element);

/** The trainable parameters and absent ones as a layout; offsets are those of the flat buffer. Returns an exit status.
 */
int fgt_graph_layout(const fgt_graph *g, frug_layout **layout);

fgt_param *fgt_param_find(const fgt_graph *g, const char *name);
fgt_buffer *fgt_buffer_find(const fgt_graph *g, const char *name);

/** Adds the score of a batch. */
void fgt_score_add(fgt_score *sum, const fgt_score *s);

/** Targets of a batch, over which the loss is averaged. */
double fgt_graph_target_count(const fgt_graph *g, const fgt_batch *batch);

/** Runs all nodes over a batch. The value of the last node is the output; loss nodes add to g->score, which is reset
 * first. */
void fgt_graph_forward(fgt_graph *g, const fgt_batch *batch, bool training);

/** The same in parts: begin, then ranges of nodes, each of which must end before the next begins. */
void fgt_graph_begin(fgt_graph *g, const fgt_batch *batch, bool training);
void fgt_graph_forward_nodes(fgt_graph *g, fgt_node *first, const fgt_node *last);
void fgt_graph_backward_nodes(fgt_graph *g, const fgt_node *first, fgt_node *last, fgt_sink *sink);

/** After a forward pass with training: passes the gradients of all trainable parameters to the sink. */
void fgt_graph_backward(fgt_graph *g, fgt_sink *sink);

#endif
