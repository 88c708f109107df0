/*
 * guidance.c: the administrator's own texts for replies, in idem_guidance.
 *
 * Read with the snapshot of the query, row by row through the primary key: a text is at most 8 kB, but there may be as
 * many as there are scopes, and so they are not kept in memory as policies are.
 */
#include "compat.h"

#include "access/table.h"
#include "catalog/pg_type_d.h"
#include "utils/builtins.h"

#include "guidance.h"
#include "rows.h"

/* The columns of idem_guidance. */
enum
{
	GUIDANCE_OUTCOME,
	GUIDANCE_SCOPE,
	GUIDANCE_LANG,
	GUIDANCE_MEANING,
	GUIDANCE_INSTRUCTION,
	GUIDANCE_NATTS
};

static const Oid column_types[GUIDANCE_NATTS] = {
	[GUIDANCE_OUTCOME] = TEXTOID,
	[GUIDANCE_SCOPE] = TEXTOID,
	[GUIDANCE_LANG] = TEXTOID,
	[GUIDANCE_MEANING] = TEXTOID,
	[GUIDANCE_INSTRUCTION] = TEXTOID,
};

static const Layout guidance_layout = {
	GUIDANCE_NATTS, 3, column_types, NULLABLE(GUIDANCE_MEANING) | NULLABLE(GUIDANCE_INSTRUCTION), 6
};

/* One row's texts; NULL: null. */
typedef struct OwnTexts
{
	const char *meaning;
	const char *instruction;
} OwnTexts;

static const Span star_scope = {"*", 1};

static void
take_texts(TupleTableSlot *columns, void *into)
{
	OwnTexts   *texts = into;

	if (!columns->tts_isnull[GUIDANCE_MEANING])
		texts->meaning = TextDatumGetCString(columns->tts_values[GUIDANCE_MEANING]);
	if (!columns->tts_isnull[GUIDANCE_INSTRUCTION])
		texts->instruction = TextDatumGetCString(columns->tts_values[GUIDANCE_INSTRUCTION]);
}

static OwnTexts
texts_of(Relation relation, Span kind, Span scope, Span lang)
{
	const Span	key[] = {kind, scope, lang};
	OwnTexts	texts = {NULL, NULL};

	rows_get(relation, &guidance_layout, key, take_texts, &texts);
	return texts;
}

void
guidance_apply(const char *kind, Lang lang, Span scope, const char **meaning, const char **instruction)
{
	const Span	kind_span = {kind, strlen(kind)};
	const Span	lang_span = {lang_names[lang], strlen(lang_names[lang])};
	Relation	relation = rows_open(TABLE_GUIDANCE, &guidance_layout, AccessShareLock);
	OwnTexts	all = texts_of(relation, kind_span, star_scope, lang_span);
	OwnTexts	own = {NULL, NULL};

	if (scope.data != NULL)
		own = texts_of(relation, kind_span, scope, lang_span);
	table_close(relation, AccessShareLock);

	if (own.meaning != NULL || all.meaning != NULL)
		*meaning = own.meaning != NULL ? own.meaning : all.meaning;
	if (own.instruction != NULL || all.instruction != NULL)
		*instruction = own.instruction != NULL ? own.instruction : all.instruction;
}
