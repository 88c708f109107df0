/*
 * secret.h: the table of secrets, and the cache of it; policy.h declares what reads the cache.
 */
#ifndef IDEM_SECRET_H
#define IDEM_SECRET_H

#include "catalog.h"

/* The columns of idem_secret. */
enum
{
	SECRET_ID,
	SECRET_SECRET,
	SECRET_SIGNING,				/* true or null */
	SECRET_CREATED_AT,
	SECRET_VERIFY_UNTIL,
	SECRET_REVOKED_AT,
	SECRET_NATTS
};

extern const Layout secret_layout;

/* Raise 55000: none of the secrets signs. */
extern void secret_refuse_to_sign(void) pg_attribute_noreturn();

/* Forget the cached secrets where they have become stale; part of policy_begin(). */
extern void secret_begin(void);

#endif							/* IDEM_SECRET_H */
