/*
 * notify.h: who listens is told that there are new alerts.
 */
#ifndef IDEM_NOTIFY_H
#define IDEM_NOTIFY_H

#include "datatype/timestamp.h"

/*
 * Notify the channel idem_alert, once for each kind, of how many alerts were raised after one time and not after
 * another.  Takes part in the transaction.  Raises 55000 where idem_alert was altered.
 */
extern void notify_alerts(TimestampTz after, TimestampTz until);

#endif							/* IDEM_NOTIFY_H */
