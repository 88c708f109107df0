/*
 * reply_text.h: what idem says to a model by itself: codes, and texts in each language.
 */
#ifndef IDEM_REPLY_TEXT_H
#define IDEM_REPLY_TEXT_H

/* The languages, in the order of every array of texts; also the values of idem.lang. */
typedef enum Lang
{
	LANG_EN,
	LANG_ZH,
	LANG_COUNT
} Lang;

/* What has become of the effect, as far as is known. */
typedef enum Effect
{
	EFFECT_NONE,
	EFFECT_HAPPENED,
	EFFECT_UNKNOWN
} Effect;

/* One reply in one language. */
typedef struct ReplyText
{
	const char *title;
	const char *meaning;
	const char *instruction;
} ReplyText;

/* Members that a kind of reply has, where there is something to say, beside those that all have. */
typedef enum Telling
{
	TELLS_POLL = 1 << 0,		/* poll_with */
	TELLS_WAIT = 1 << 1,		/* poll_after_ms */
	TELLS_CONFIRM = 1 << 2,		/* confirm_with */
	TELLS_MATERIAL = 1 << 3,	/* must_equal, may_differ */
	TELLS_RESULT = 1 << 4		/* result, result_ref, finished_at */
} Telling;

/*
 * One kind of reply: an outcome, or one of the cases that an outcome falls into.  Names and codes are part of the
 * interface, texts are not.
 */
typedef struct ReplyKind
{
	const char *name;
	const char *code;
	bool		retryable;
	Effect		effect;
	int			http_status;
	unsigned	tells;			/* of Telling */
	ReplyText	texts[LANG_COUNT];
} ReplyKind;

/* Words to fill the places of texts with. */
typedef struct ReplyWords
{
	const char *confirm_tool;	/* where the policy names none */
	const char *poll_tool;		/* likewise */
	const char *second;			/* "%s" standing for the number */
	const char *seconds;		/* likewise, for any number but 1 */
	const char *every_member;
	const char *every_member_but;	/* "%s" standing for the exceptions */
	const char *members_but;	/* after a list: "%s" standing for the exceptions */
	const char *and_more;		/* after a list that was cut */
	const char *separator;		/* between members */
} ReplyWords;

extern const char *const lang_names[LANG_COUNT];
extern const ReplyWords reply_words[LANG_COUNT];

/* The kind of a name, or NULL. */
extern const ReplyKind *reply_kind(const char *name);

#endif							/* IDEM_REPLY_TEXT_H */
