/*
 * generator.h: random bytes for secrets, by pgcrypto.
 */
#ifndef IDEM_GENERATOR_H
#define IDEM_GENERATOR_H

/*
 * Some random bytes, at most 1024, in the current memory context.  Raises 55000 where pgcrypto's generator is not
 * there, or is not as pgcrypto's script made it; nothing else is called.
 */
extern bytea *generator_bytes(int length);

#endif							/* IDEM_GENERATOR_H */
