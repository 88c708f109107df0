/*
 * worker.h: regular care without an outside scheduler.
 */
#ifndef IDEM_WORKER_H
#define IDEM_WORKER_H

/* Register the launcher and ask for its shared memory; while the library is preloaded. */
extern void worker_register(void);

#endif							/* IDEM_WORKER_H */
