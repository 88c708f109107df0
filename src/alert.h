/*
 * alert.h: what somebody should look at: a row of idem_alert, a line in the server's log, a SQLSTATE.
 */
#ifndef IDEM_ALERT_H
#define IDEM_ALERT_H

#include "datatype/timestamp.h"
#include "utils/jsonb.h"
#include "utils/uuid.h"

#include "args.h"
#include "store.h"

typedef enum AlertKind
{
	ALERT_PARAMETER,			/* ID001: a fingerprint with other parameters */
	ALERT_SUBJECT,				/* ID002: with another subject */
	ALERT_SCOPE,				/* ID003: with another scope */
	ALERT_NOT_OWNER,			/* ID004: a call by a holder that has lost the grant */
	ALERT_TAKEOVER,				/* ID005: a claim whose lease was over was taken over */
	ALERT_STUCK,				/* ID006: an outcome that nobody knows */
	ALERT_RELEASED,				/* ID007: a holder gave its claim up */
	ALERT_RECONCILED,			/* ID008: an operator gave a verdict */
	ALERT_NEVER_OWNER,			/* ID010: a call with a token that never held the claim */
	ALERT_KIND_COUNT
} AlertKind;

/* The columns of idem_alert. */
enum
{
	ALERT_KEY,
	ALERT_KIND,
	ALERT_COUNT,
	ALERT_FIRST_AT,
	ALERT_LAST_AT,
	ALERT_ROLE,
	ALERT_SCOPE_NAME,
	ALERT_SUBJECT_NAME,
	ALERT_DETAIL,
	ALERT_PART,
	ALERT_NATTS
};

/* What is said of one event; each part may be missing (data NULL, 0, NULL). */
typedef struct AlertDetail
{
	const char *call;			/* the SQL function's name */
	Span		subject;		/* the caller's, where it is not the operation's */
	Span		scope;			/* likewise */
	Span		holder;
	int32		attempt;
	struct varlena *result;		/* jsonb: a late result, a reason, a verdict's result */
	Span		result_ref;
	Span		note;
} AlertDetail;

/*
 * Write the log line, and count the event in the row of (key, kind).  Never waits, and never raises: where the
 * row is busy or was written within the last second, or the transaction cannot write it, the line alone
 * remains.  A late result of ALERT_NOT_OWNER that is not kept yet is written whatever the row was written for last, and
 * into another part where it is busy.  Of ALERT_NEVER_OWNER the row keeps a result's size alone.
 */
extern void alert_raise(AlertKind kind, const pg_uuid_t *key, Span scope, Span subject,
						const AlertDetail *detail);

/* The log line alone: for calls that write nothing. */
extern void alert_log(AlertKind kind, const pg_uuid_t *key, Span scope, Span subject,
					  const AlertDetail *detail);

/*
 * Was an event of this kind written since a time, or is somebody writing one?  alerts: the table, opened; in the current
 * memory context.
 */
extern bool alert_told_since(Store *alerts, AlertKind kind, const pg_uuid_t *key, TimestampTz since);

/* What a kind is called in its rows. */
extern const char *alert_kind_name(AlertKind kind);

extern const Layout alert_layout;

#endif							/* IDEM_ALERT_H */
