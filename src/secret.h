/*
 * secret.h: the cache of secrets; policy.h declares what reads it.
 */
#ifndef IDEM_SECRET_H
#define IDEM_SECRET_H

/* Forget the cached secrets where they have become stale; part of policy_begin(). */
extern void secret_begin(void);

#endif							/* IDEM_SECRET_H */
