/*
 * compat.h: every difference between PostgreSQL versions lives here.
 *
 * Written against 15; later versions are brought to the same names.
 */
#ifndef IDEM_COMPAT_H
#define IDEM_COMPAT_H

#include "postgres.h"

#if PG_VERSION_NUM < 150000
#error "idem needs PostgreSQL 15 or later"
#endif

#if PG_VERSION_NUM >= 160000
#include "varatt.h"
#endif

#endif							/* IDEM_COMPAT_H */
