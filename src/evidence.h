/*
 * evidence.h: what holders that came back late brought, as one JSON document: {"first": .., "latest": ..}.
 */
#ifndef IDEM_EVIDENCE_H
#define IDEM_EVIDENCE_H

#include "utils/jsonb.h"

/* Does an alert's detail bring a result, a reason or a reference? */
extern bool evidence_has_result(Jsonb *detail);

/* Does a detail bring a result that the document (NULL: none) does not hold?  One of an earlier attempt is not new. */
extern bool evidence_is_new(Jsonb *document, Jsonb *detail);

/* The document (NULL: a new one) with a detail as the latest, and as the first where none before brought a result. */
extern Jsonb *evidence_add(Jsonb *document, Jsonb *detail);

#endif							/* IDEM_EVIDENCE_H */
