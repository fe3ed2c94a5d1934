/* server_state_file.h - internal to server_state.c and server_state_file.c. */
#ifndef FGF_SERVER_STATE_FILE_H
#define FGF_SERVER_STATE_FILE_H

#include "federated/server_state.h"

/** Whether DIR/state exists. */
bool fgf_state_file_exists(const fgf_state *state);

#endif
