/*
 * material.h: the material part as a tree of pointer tokens, for canonical.c to walk along.
 */
#ifndef IDEM_MATERIAL_H
#define IDEM_MATERIAL_H

#include "canonical.h"

#define POINTER_MAX_LENGTH 1024 /* bytes */
#define POINTER_MAX_COUNT 1000	/* in one list */

/* One token of the pointers that begin alike, and what follows it. */
typedef struct PointerNode
{
	const char *token;			/* unescaped, not terminated */
	int			length;
	bool		material;		/* a material pointer ends here */
	bool		immaterial;		/* an immaterial pointer ends here */
	bool		has_index;		/* a child's token may name an array element */
	int			nchildren;
	int			maxchildren;
	struct PointerNode **children;	/* ordered by compare_token() */
	struct PointerNode *every;	/* the child "*", which is among children too */
} PointerNode;

struct MaterialPart
{
	bool		everything;		/* no material list: all but the immaterial is material */
	PointerNode root;
};

/* The child for an object's member, or NULL.  "*" is no wildcard here: it is the member of that name. */
extern const PointerNode *material_member(const PointerNode *node, const char *name, int length);

/* The child that names this very element of an array, or NULL; the child "*" is the caller's to follow. */
extern const PointerNode *material_element(const PointerNode *node, uint32 index);

#endif							/* IDEM_MATERIAL_H */
