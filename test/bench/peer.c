/*
 * peer.c: one client for two designs that do the same, so that they are compared by the same program, threads and
 * connections:
 *
 *	redis			a signed fingerprint is verified here, a Lua script claims its nonce, the effect is inserted under a
 *					unique index, another Lua script keeps the result
 *	redis-replay	the same of finished operations: verify, and the claim script answers
 *	execute			idem_execute() with a fingerprint, which does all of that in one statement
 *	replay			idem_acquire() of finished operations
 *
 * Fresh fingerprints are signed here in either case.  Replays are of operations that each thread has finished before
 * the clock starts, or of fingerprints read from a file.  Parameters go as bind parameters; here they are hashed as
 * they are sent (they are canonical), which spares the Redis design that work.
 *
 *	peer [-t THREADS] [-s SECONDS] [-r REDIS_SOCKET] [-l FOLDER_OF_SCRIPTS] [-f FINGERPRINTS] -k SECRET MODE
 *
 * SECRET: hexadecimal.  FINGERPRINTS: a file, one a line.  libpq's environment leads to the server.  Prints the rate as
 * "tps = N"; any answer but the expected one ends it with a message.
 */
#include <errno.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <hiredis/hiredis.h>
#include <libpq-fe.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#define SUBJECT "alice"
#define SCOPE "charge"
#define PARAMS "{\"amount\":199,\"currency\":\"USD\",\"payee\":\"acct_42\"}"
#define RESULT "{\"ok\": true}"
#define SECONDS_TO_CONFIRM 900
#define LEASE "300"
#define KEEP "86400"
#define FINISHED_BEFORE 100		/* operations that a thread finishes before it replays them */
#define TOKEN_SIZE 512

typedef struct Worker
{
	pthread_t	thread;
	PGconn	   *db;
	redisContext *redis;
	char		claim_sha[41];
	char		finish_sha[41];
	char	  **tokens;			/* finished operations, to be replayed */
	int			token_count;
	uint64_t	random;
	long		done;
	double		seconds;
} Worker;

typedef void (*Operation) (Worker *worker, const char *token);

typedef struct Mode
{
	const char *name;
	bool		uses_redis;
	Operation	operation;		/* what is timed */
	Operation	finish;			/* what finishes an operation that is then replayed; NULL: fresh fingerprints */
} Mode;

static unsigned char secret[64];
static int	secret_length;
static int	seconds = 5;
static const char *redis_socket;
static const char *script_folder = ".";
static char **file_tokens;
static int	file_token_count;
static const Mode *mode;
static pthread_barrier_t start;

static void __attribute__((noreturn, format(printf, 1, 2)))
fatal(const char *format,...)
{
	va_list		args;

	va_start(args, format);
	fputs("peer: ", stderr);
	vfprintf(stderr, format, args);
	fputc('\n', stderr);
	va_end(args);
	exit(1);
}

/* ----- fingerprints ----- */

/* Unpadded base64url of bytes, with a final zero; returns its length. */
static int
encode(const unsigned char *bytes, int length, char *code)
{
	int			size = EVP_EncodeBlock((unsigned char *) code, bytes, length);

	while (size > 0 && code[size - 1] == '=')
		size--;
	code[size] = '\0';
	for (int i = 0; i < size; i++)
		code[i] = code[i] == '+' ? '-' : code[i] == '/' ? '_' : code[i];
	return size;
}

/* The bytes of unpadded base64url, or -1. */
static int
decode(const char *code, int length, unsigned char *bytes)
{
	unsigned char padded[TOKEN_SIZE];
	int			size = length;

	if (length > TOKEN_SIZE - 4 || length % 4 == 1)
		return -1;
	for (int i = 0; i < length; i++)
		padded[i] = code[i] == '-' ? '+' : code[i] == '_' ? '/' : code[i];
	while (size % 4 != 0)
		padded[size++] = '=';
	if (EVP_DecodeBlock(bytes, padded, size) < 0)
		return -1;
	return length * 3 / 4;
}

static void
sign(const char *text, int length, unsigned char mac[32])
{
	if (HMAC(EVP_sha256(), secret, secret_length, (const unsigned char *) text, length, mac, NULL) == NULL)
		fatal("HMAC failed");
}

static void
hash_params(char code[48])
{
	unsigned char hash[32];

	if (!EVP_Digest(PARAMS, strlen(PARAMS), hash, NULL, EVP_sha256(), NULL))
		fatal("SHA-256 failed");
	encode(hash, sizeof(hash), code);
}

static void
random_bytes(unsigned char *bytes, int length)
{
	if (RAND_bytes(bytes, length) != 1)
		fatal("no random bytes");
}

static void
print_uuid(const unsigned char b[16], char text[37])
{
	sprintf(text, "%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", b[0], b[1], b[2], b[3], b[4],
			b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
}

/* A fingerprint of a fresh operation. */
static void
make_token(char token[TOKEN_SIZE])
{
	unsigned char uuid[16];
	unsigned char mac[32];
	char		nonce[37];
	char		hash[48];
	char		payload[TOKEN_SIZE / 2];
	struct timespec now;
	int			length;

	clock_gettime(CLOCK_REALTIME, &now);
	random_bytes(uuid, sizeof(uuid));
	for (int i = 0; i < 6; i++)
		uuid[i] = (now.tv_sec * INT64_C(1000) + now.tv_nsec / 1000000) >> (8 * (5 - i));
	uuid[6] = (uuid[6] & 0x0f) | 0x70;
	uuid[8] = (uuid[8] & 0x3f) | 0x80;
	print_uuid(uuid, nonce);
	hash_params(hash);
	length = snprintf(payload, sizeof(payload), "{\"n\":\"%s\",\"exp\":%lld,\"u\":\"%s\",\"s\":\"%s\",\"p\":\"%s\"}", nonce,
					  (long long) now.tv_sec + SECONDS_TO_CONFIRM, SUBJECT, SCOPE, hash);
	length = encode((unsigned char *) payload, length, token);
	sign(token, length, mac);
	token[length++] = '.';
	encode(mac, sizeof(mac), token + length);
}

/* Is the fingerprint genuine, in time, and for this subject, scope and these parameters?  Gives nonce and hash. */
static bool
verify_token(const char *token, char nonce[37], char hash[48])
{
	const char *dot = strchr(token, '.');
	unsigned char mac[32];
	unsigned char theirs[64];
	char		payload[TOKEN_SIZE];
	char		subject[64];
	char		scope[64];
	char		signed_hash[48];
	long long	expires;
	int			length;

	if (dot == NULL || strlen(dot + 1) != 43 || decode(dot + 1, 43, theirs) != 32)
		return false;
	sign(token, dot - token, mac);
	if (CRYPTO_memcmp(mac, theirs, sizeof(mac)) != 0)
		return false;
	length = decode(token, dot - token, (unsigned char *) payload);
	if (length < 0)
		return false;
	payload[length] = '\0';
	if (sscanf(payload, "{\"n\":\"%36[^\"]\",\"exp\":%lld,\"u\":\"%63[^\"]\",\"s\":\"%63[^\"]\",\"p\":\"%43[^\"]\"}", nonce,
			   &expires, subject, scope, signed_hash) != 5)
		return false;
	hash_params(hash);
	return expires > time(NULL) && strcmp(subject, SUBJECT) == 0 && strcmp(scope, SCOPE) == 0 &&
		strcmp(signed_hash, hash) == 0;
}

/* ----- the design with Redis ----- */

/* An answer must be as expected; the first element counts where it is an array. */
static void
expect_redis(Worker *worker, redisReply *reply, const char *expected)
{
	redisReply *first = reply;

	if (reply == NULL)
		fatal("Redis: %s", worker->redis->errstr);
	if (reply->type == REDIS_REPLY_ARRAY && reply->elements > 0)
		first = reply->element[0];
	if (first->str == NULL || strcmp(first->str, expected) != 0)
		fatal("Redis answered \"%s\" instead of \"%s\"", first->str ? first->str : "", expected);
	freeReplyObject(reply);
}

static void
check_token(const char *token, char nonce[37], char hash[48])
{
	if (!verify_token(token, nonce, hash))
		fatal("a fingerprint was not recognised");
}

static redisReply *
claim(Worker *worker, const char *nonce, const char *hash, const char *owner)
{
	return redisCommand(worker->redis, "EVALSHA %s 1 idem:%s %s %s %s", worker->claim_sha, nonce, hash, owner, LEASE);
}

/* Insert the effect; where the unique index knows the operation, what stands there counts. */
static void
insert_effect(Worker *worker, const char *nonce)
{
	const char *values[] = {nonce};
	PGresult   *result = PQexecPrepared(worker->db, "effect", 1, values, NULL, NULL, 0);

	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		fatal("%s", PQerrorMessage(worker->db));
	if (strcmp(PQcmdTuples(result), "1") != 0)
	{
		PQclear(result);
		result = PQexecPrepared(worker->db, "look", 1, values, NULL, NULL, 0);
		if (PQresultStatus(result) != PGRES_TUPLES_OK || PQntuples(result) != 1)
			fatal("the effect is neither new nor there: %s", PQerrorMessage(worker->db));
	}
	PQclear(result);
}

static void
redis_execute(Worker *worker, const char *token)
{
	unsigned char bytes[16];
	char		owner[37];
	char		nonce[37];
	char		hash[48];

	check_token(token, nonce, hash);
	random_bytes(bytes, sizeof(bytes));
	print_uuid(bytes, owner);
	expect_redis(worker, claim(worker, nonce, hash, owner), "ACQUIRED");
	insert_effect(worker, nonce);
	expect_redis(worker, redisCommand(worker->redis, "EVALSHA %s 1 idem:%s %s DONE %s %s", worker->finish_sha, nonce, owner,
									  RESULT, KEEP), "OK");
}

static void
redis_replay(Worker *worker, const char *token)
{
	char		nonce[37];
	char		hash[48];

	check_token(token, nonce, hash);
	expect_redis(worker, claim(worker, nonce, hash, "nobody"), "DONE");
}

/* ----- idem ----- */

static void
call_idem(Worker *worker, const char *statement, const char *token)
{
	const char *values[] = {token, SUBJECT, SCOPE, PARAMS};
	PGresult   *result = PQexecPrepared(worker->db, statement, 4, values, NULL, NULL, 0);

	if (PQresultStatus(result) != PGRES_TUPLES_OK)
		fatal("%s", PQerrorMessage(worker->db));
	if (PQntuples(result) != 1 || strcmp(PQgetvalue(result, 0, 0), "DONE") != 0)
		fatal("idem answered \"%s\" instead of \"DONE\"", PQntuples(result) ? PQgetvalue(result, 0, 0) : "");
	PQclear(result);
}

static void
idem_execute(Worker *worker, const char *token)
{
	call_idem(worker, "execute", token);
}

static void
idem_replay(Worker *worker, const char *token)
{
	call_idem(worker, "replay", token);
}

/* ----- threads ----- */

static void
prepare(PGconn *db, const char *name, const char *statement)
{
	PGresult   *result = PQprepare(db, name, statement, 0, NULL);

	if (PQresultStatus(result) != PGRES_COMMAND_OK)
		fatal("%s", PQerrorMessage(db));
	PQclear(result);
}

static char *
read_file(const char *path)
{
	FILE	   *file = fopen(path, "r");
	long		length;
	char	   *text;

	if (file == NULL || fseek(file, 0, SEEK_END) != 0 || (length = ftell(file)) < 0)
		fatal("%s: %s", path, strerror(errno));
	rewind(file);
	text = malloc(length + 1);
	if (text == NULL || fread(text, 1, length, file) != (size_t) length)
		fatal("cannot read %s", path);
	text[length] = '\0';
	fclose(file);
	return text;
}

static void
load_script(Worker *worker, const char *name, char sha[41])
{
	char		path[1024];
	char	   *text;
	redisReply *reply;

	snprintf(path, sizeof(path), "%s/%s", script_folder, name);
	text = read_file(path);
	reply = redisCommand(worker->redis, "SCRIPT LOAD %s", text);
	if (reply == NULL || reply->type != REDIS_REPLY_STRING || reply->len != 40)
		fatal("Redis does not take %s: %s", name, reply && reply->str ? reply->str : worker->redis->errstr);
	strcpy(sha, reply->str);
	freeReplyObject(reply);
	free(text);
}

static void
connect_worker(Worker *worker)
{
	worker->db = PQconnectdb("");
	if (PQstatus(worker->db) != CONNECTION_OK)
		fatal("%s", PQerrorMessage(worker->db));
	if (!mode->uses_redis)
	{
		if (file_token_count == 0)
			prepare(worker->db, "execute",
					"SELECT outcome, key, owner, result FROM idem_execute($2, $3, $4::jsonb, 'bench_effect(jsonb)', fingerprint => $1)");
		prepare(worker->db, "replay", "SELECT outcome, key, owner, result FROM idem_acquire($1, $2, $3, $4::jsonb)");
		return;
	}
	prepare(worker->db, "effect",
			"INSERT INTO bench_write_record VALUES ($1::uuid, 1, now()) ON CONFLICT (idem_key) DO NOTHING");
	prepare(worker->db, "look", "SELECT * FROM bench_write_record WHERE idem_key = $1::uuid");
	worker->redis = redisConnectUnix(redis_socket);
	if (worker->redis == NULL || worker->redis->err)
		fatal("Redis: %s", worker->redis ? worker->redis->errstr : "out of memory");
	load_script(worker, "claim.lua", worker->claim_sha);
	load_script(worker, "finish.lua", worker->finish_sha);
}

/* What there is to replay. */
static void
fill_tokens(Worker *worker)
{
	if (file_token_count > 0)
	{
		worker->tokens = file_tokens;
		worker->token_count = file_token_count;
		return;
	}
	worker->tokens = calloc(FINISHED_BEFORE, sizeof(char *));
	for (int i = 0; i < FINISHED_BEFORE; i++)
	{
		worker->tokens[i] = malloc(TOKEN_SIZE);
		make_token(worker->tokens[i]);
		mode->finish(worker, worker->tokens[i]);
	}
	worker->token_count = FINISHED_BEFORE;
}

/* xorshift64* */
static uint64_t
next_random(Worker *worker)
{
	worker->random ^= worker->random >> 12;
	worker->random ^= worker->random << 25;
	worker->random ^= worker->random >> 27;
	return worker->random * UINT64_C(2685821657736338717);
}

static double
clock_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec + now.tv_nsec / 1e9;
}

static void *
work(void *argument)
{
	Worker	   *worker = argument;
	char		fresh[TOKEN_SIZE];
	double		began;
	double		now;

	connect_worker(worker);
	if (mode->finish != NULL)
		fill_tokens(worker);
	pthread_barrier_wait(&start);
	began = now = clock_seconds();
	while (now - began < seconds)
	{
		if (mode->finish != NULL)
			mode->operation(worker, worker->tokens[(next_random(worker) >> 11) % worker->token_count]);
		else
		{
			make_token(fresh);
			mode->operation(worker, fresh);
		}
		worker->done++;
		now = clock_seconds();
	}
	worker->seconds = now - began;
	PQfinish(worker->db);
	if (worker->redis != NULL)
		redisFree(worker->redis);
	return NULL;
}

/* ----- the command line ----- */

static const Mode modes[] = {
	{"redis", true, redis_execute, NULL},
	{"redis-replay", true, redis_replay, redis_execute},
	{"execute", false, idem_execute, NULL},
	{"replay", false, idem_replay, idem_execute},
};

static void
read_secret(const char *hex)
{
	secret_length = strlen(hex) / 2;
	if (secret_length < 32 || secret_length > 64)
		fatal("a secret has 32 to 64 bytes");
	for (int i = 0; i < secret_length; i++)
		if (sscanf(hex + 2 * i, "%2hhx", &secret[i]) != 1)
			fatal("the secret is not hexadecimal");
}

static void
read_tokens(const char *path)
{
	char	   *text = read_file(path);
	int			size = 0;

	for (char *line = strtok(text, "\n"); line != NULL; line = strtok(NULL, "\n"))
	{
		if (file_token_count == size)
		{
			size = size ? 2 * size : 1024;
			file_tokens = realloc(file_tokens, size * sizeof(char *));
			if (file_tokens == NULL)
				fatal("out of memory");
		}
		file_tokens[file_token_count++] = line;
	}
	if (file_token_count == 0)
		fatal("%s is empty", path);
}

static int
read_number(const char *text, int most)
{
	char	   *end;
	long		number = strtol(text, &end, 10);

	if (*end != '\0' || number < 1 || number > most)
		fatal("not a number from 1 to %d: %s", most, text);
	return number;
}

int
main(int argc, char **argv)
{
	Worker		workers[256] = {0};
	int			threads = 8;
	int			option;
	double		rate = 0;

	while ((option = getopt(argc, argv, "t:s:r:l:f:k:")) != -1)
	{
		switch (option)
		{
			case 't': threads = read_number(optarg, 256); break;
			case 's': seconds = read_number(optarg, 3600); break;
			case 'r': redis_socket = optarg; break;
			case 'l': script_folder = optarg; break;
			case 'f': read_tokens(optarg); break;
			case 'k': read_secret(optarg); break;
			default: return 2;
		}
	}
	for (size_t i = 0; optind < argc && i < sizeof(modes) / sizeof(modes[0]); i++)
		if (strcmp(modes[i].name, argv[optind]) == 0)
			mode = &modes[i];
	if (mode == NULL || (secret_length == 0 && file_token_count == 0) || (mode->uses_redis && redis_socket == NULL))
		fatal("wants a mode, a secret or fingerprints, and for Redis a socket");
	pthread_barrier_init(&start, NULL, threads);
	for (int i = 0; i < threads; i++)
	{
		random_bytes((unsigned char *) &workers[i].random, sizeof(workers[i].random));
		workers[i].random |= 1;
		if (pthread_create(&workers[i].thread, NULL, work, &workers[i]) != 0)
			fatal("cannot start a thread");
	}
	for (int i = 0; i < threads; i++)
	{
		pthread_join(workers[i].thread, NULL);
		rate += workers[i].done / workers[i].seconds;
	}
	printf("tps = %.3f\n", rate);
	return 0;
}
