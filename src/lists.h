/*
 * lists.h: which lists a scope has and had, as of now and not as of the cache.
 */
#ifndef IDEM_LISTS_H
#define IDEM_LISTS_H

#include "policy.h"

/*
 * The lists in force for a scope and all those on record for it and for "*", as they are committed at some time after
 * this call began.  Calls policy_begin(): what policy_of() returned before is gone.  The array is in the current memory
 * context.
 */
extern void lists_now(Span scope, ListsOnRecord *into);

#endif							/* IDEM_LISTS_H */
