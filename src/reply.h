/*
 * reply.h: what a model is told of a claim.
 */
#ifndef IDEM_REPLY_H
#define IDEM_REPLY_H

#include "claim.h"
#include "document.h"
#include "policy.h"
#include "reply_text.h"

/* One reply in the making. */
typedef struct Reply
{
	GivenClaim	claim;
	const ReplyKind *kind;
	Lang		lang;
	const Policy *policy;		/* set by reply_word, as are those below */
	const char *meaning;
	const char *instruction;
} Reply;

/*
 * Begin the reply of a SQL function (claim idem_claim, lang text): read its arguments.  Raises 22004 for a null claim
 * and 22023 for a language that is not spoken.
 */
extern void reply_begin(FunctionCallInfo fcinfo, Reply *reply);

/*
 * Choose the words: those of the administrator, else ours, their places filled from the policy of the claim's scope.
 * To be called after policy_begin(), and to be used before the next.
 */
extern void reply_word(Reply *reply);

/* Add the members that follow "status" to an object that is open. */
extern void reply_add_members(const Reply *reply, Document *document);

/* How long to wait before asking again, in milliseconds, rounded up. */
extern int64 reply_poll_after_ms(const Reply *reply);

/* The whole reply. */
extern Jsonb *reply_jsonb(const Reply *reply);

/* The kind of reply that a claim calls for. */
extern const ReplyKind *reply_kind_of(const GivenClaim *claim);

#endif							/* IDEM_REPLY_H */
