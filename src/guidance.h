/*
 * guidance.h: the administrator's own texts for replies, in idem_guidance.
 */
#ifndef IDEM_GUIDANCE_H
#define IDEM_GUIDANCE_H

#include "args.h"
#include "reply_text.h"

/*
 * Put the administrator's texts for one kind of reply in place of meaning and instruction: each by itself, the scope's
 * own before that for all; what neither has stays.  scope.data NULL: no scope is known.  Texts are in the current
 * memory context.  Raises 55000 where the table is not what the script made.
 */
extern void guidance_apply(const char *kind, Lang lang, Span scope, const char **meaning, const char **instruction);

#endif							/* IDEM_GUIDANCE_H */
