// client.go STORY RUN MODE: the story told by pgx (version 4), in mode simple (no prepared statements) or binary.
package main

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgconn"
	"github.com/jackc/pgtype"
	"github.com/jackc/pgx/v4"
)

var ctx = context.Background()

// recipe

// again says whether a concurrent transaction is in the way, so that the same transaction is to be run again.
func again(err error) bool {
	var pgErr *pgconn.PgError
	return errors.As(err, &pgErr) && (pgErr.Code == "40001" || pgErr.Code == "40P01")
}

// transaction runs work in a transaction, again for as long as a concurrent one is in its way.
func transaction(conn *pgx.Conn, level pgx.TxIsoLevel, work func(pgx.Tx) error) error {
	for {
		err := conn.BeginTxFunc(ctx, pgx.TxOptions{IsoLevel: level}, work)
		if !again(err) {
			return err
		}
	}
}

type answer struct {
	Outcome string
	Key     pgtype.UUID
	Result  *string // the JSON text
}

// once causes the effect of an operation once; it returns what became of it. The grant is committed before the
// effect starts. owner is a fresh UUID, kept by the caller: after a lost connection the same call on a new one goes
// on. Where effect fails, its outcome is unknown.
func once(conn *pgx.Conn, fingerprint, subject, scope, params string, owner pgtype.UUID,
	effect func(key pgtype.UUID) (string, error)) (a answer, err error) {
	err = conn.QueryRow(ctx, "SELECT outcome, key, result FROM idem_acquire($1, $2, $3, $4, owner => $5)",
		fingerprint, subject, scope, params, owner).Scan(&a.Outcome, &a.Key, &a.Result)
	if err != nil || a.Outcome != "ACQUIRED" {
		return a, err
	}
	result, err := effect(a.Key) // the key is the request's Idempotency-Key
	if err != nil {
		return a, err
	}
	var ack string
	err = conn.QueryRow(ctx, "SELECT idem_commit($1, $2, $3)", a.Key, owner, result).Scan(&ack)
	if err != nil {
		return a, err
	}
	err = conn.QueryRow(ctx, "SELECT outcome, result FROM idem_status_key($1, $2)", a.Key, subject).Scan(&a.Outcome, &a.Result)
	return a, err
}

// end of recipe

type step struct {
	name, on, sql, error string
	first                bool
	args                 [][2]string // type, text
	null                 []bool
	is                   [][2]string
	keep                 []string
}

var (
	conns  = map[string]*pgx.Conn{}
	names  = map[string]string{}
	mode   string
	failed int
	name   = regexp.MustCompile(`<(\w+)>`)
)

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
}

func opened(role string) *pgx.Conn {
	host := os.Getenv("PGHOST")
	if role == "standby" {
		host = os.Getenv("STANDBY_HOST")
	}
	config, err := pgx.ParseConfig("host=" + host)
	fatal(err)
	config.PreferSimpleProtocol = mode == "simple"
	conn, err := pgx.ConnectConfig(ctx, config)
	fatal(err)
	return conn
}

func filled(text string) string {
	return name.ReplaceAllStringFunc(text, func(found string) string { return names[found[1:len(found)-1]] })
}

func say(what, problem string) {
	if problem == "" {
		fmt.Println("ok - " + what)
		return
	}
	failed++
	fmt.Printf("not ok - %s: %s\n", what, problem)
}

func newUUID() (id pgtype.UUID) {
	_, err := rand.Read(id.Bytes[:])
	fatal(err)
	id.Bytes[6] = id.Bytes[6]&0x0f | 0x40
	id.Bytes[8] = id.Bytes[8]&0x3f | 0x80
	id.Status = pgtype.Present
	return id
}

// value is a parameter in the type that a Go program has it in.
func value(kind, text string) (any, error) {
	switch kind {
	case "int":
		return strconv.Atoi(text)
	case "jsonb":
		return &pgtype.JSONB{Bytes: []byte(text), Status: pgtype.Present}, nil
	case "uuid":
		id := &pgtype.UUID{}
		return id, id.Set(text)
	case "interval":
		if !strings.Contains(text, " ") {
			text += " s"
		}
		each := &pgtype.Interval{}
		parts := strings.Fields(text)
		length, err := time.ParseDuration(parts[0] + strings.TrimSuffix(parts[1], "in"))
		if err != nil {
			return nil, err
		}
		return each, each.Set(length)
	case "timestamptz":
		return time.Parse(time.RFC3339Nano, text)
	}
	return text, nil
}

func text(got any) string {
	switch v := got.(type) {
	case nil:
		return "null"
	case [16]byte:
		return fmt.Sprintf("%x-%x-%x-%x-%x", v[:4], v[4:6], v[6:8], v[8:10], v[10:])
	case time.Time:
		return v.Format(time.RFC3339Nano)
	}
	return fmt.Sprint(got)
}

// row reads the one row of an answer, if it is one; jsonb is left as the text that the server sent.
func row(rows pgx.Rows) (map[string]string, error) {
	defer rows.Close()
	got := map[string]string{}
	for rows.Next() {
		values, err := rows.Values()
		if err != nil {
			return nil, err
		}
		for i, field := range rows.FieldDescriptions() {
			if raw := rows.RawValues()[i]; field.DataTypeOID == pgtype.JSONBOID && raw != nil {
				values[i] = string(raw[field.Format:]) // the binary format begins with its version
			}
			got[string(field.Name)] = text(values[i])
		}
	}
	return got, rows.Err()
}

func args(s *step) (all []any, err error) {
	for i, arg := range s.args {
		var v any
		if !s.null[i] {
			if v, err = value(arg[0], filled(arg[1])); err != nil {
				return nil, err
			}
		}
		all = append(all, v)
	}
	return all, nil
}

// judge holds an answer against what it must be.
func judge(s *step, got map[string]string, err error) {
	problem := ""
	var pgErr *pgconn.PgError
	switch {
	case errors.As(err, &pgErr) && pgErr.Code == s.error:
	case err != nil:
		problem = err.Error()
	case s.error != "":
		problem = "it did not fail"
	default:
		for _, is := range s.is {
			if got[is[0]] != filled(is[1]) {
				problem = fmt.Sprintf("%s is %s, not %s", is[0], got[is[0]], filled(is[1]))
			}
		}
		for _, column := range s.keep {
			names[column] = got[column]
		}
	}
	say(s.name, problem)
}

// query runs a statement on what can: a connection, or the answers of a batch.
func query(rows pgx.Rows, err error) (map[string]string, error) {
	if err != nil {
		return nil, err
	}
	return row(rows)
}

// perform runs a statement; an error that asks for the transaction's repetition is returned.
func perform(s *step) error {
	all, err := args(s)
	var got map[string]string
	if err == nil {
		got, err = query(conns[s.on].Query(ctx, s.sql, all...))
	}
	if again(err) {
		return err
	}
	judge(s, got, err)
	return nil
}

func retried(level string, steps []*step, wanted string) {
	runs := 0
	err := transaction(conns["main"], pgx.TxIsoLevel(strings.ToLower(level)), func(pgx.Tx) error {
		runs++
		for _, s := range steps {
			if s.first && runs > 1 {
				continue
			}
			if err := perform(s); err != nil {
				return err
			}
		}
		return nil
	})
	problem := ""
	if err != nil || strconv.Itoa(runs) != wanted {
		problem = fmt.Sprintf("%d runs, %v", runs, err)
	}
	say(level+", repeated", problem)
}

// pipelined sends all before the first answer is read.
func pipelined(steps []*step) {
	batch := &pgx.Batch{}
	for _, s := range steps {
		all, err := args(s)
		fatal(err)
		batch.Queue(s.sql, all...)
	}
	results := conns["main"].SendBatch(ctx, batch)
	for _, s := range steps {
		got, err := query(results.Query())
		judge(s, got, err)
	}
	problem := ""
	if err := results.Close(); err != nil {
		problem = err.Error()
	}
	say("pipelined", problem)
}

func lost(role, word, after string) {
	if word == "cut" {
		fatal(conns[role].PgConn().Conn().Close())
	}
	problem := "the connection is there"
	if _, err := conns[role].Exec(ctx, "SELECT 1"); err != nil && conns[role].IsClosed() {
		problem = ""
	}
	say(word+" after: "+after, problem)
	conns[role] = opened(role)
}

// lineOf adds one line to a step that it belongs to.
func lineOf(s *step, word, rest string) bool {
	first, second, _ := strings.Cut(rest, " ")
	switch word {
	case "arg", "null":
		s.args = append(s.args, [2]string{first, second})
		s.null = append(s.null, word == "null")
	case "is":
		s.is = append(s.is, [2]string{first, second})
	case "keep":
		s.keep = append(s.keep, rest)
	case "on":
		s.on = rest
	case "sql":
		s.sql = rest
	case "error":
		s.error = rest
	case "first":
		s.first = true
	case "", "#":
	default:
		return false
	}
	return true
}

// tell reads the story and acts on each line; a step is performed when all its lines are read.
func tell(story string) {
	file, err := os.Open(story)
	fatal(err)
	var s, before *step
	var block []*step
	inBlock, level := false, ""
	for lines := bufio.NewScanner(file); lines.Scan(); {
		word, rest, _ := strings.Cut(lines.Text(), " ")
		if lineOf(s, word, rest) {
			continue
		}
		if s != nil && inBlock {
			block = append(block, s)
		} else if s != nil {
			fatal(perform(s))
		}
		before, s = s, nil
		switch word {
		case "step":
			s = &step{name: rest, on: "main"}
		case "new":
			names[rest] = text(newUUID().Bytes)
		case "retry", "pipeline":
			block, inBlock, level = nil, true, rest
		case "end":
			if inBlock = false; level != "" {
				retried(level, block, rest)
			} else {
				pipelined(block)
			}
		case "lost", "cut":
			lost(rest, word, before.name)
		}
	}
	fatal(perform(s))
}

func recipe(run string) {
	conn := opened("main")
	params := `{"amount": 20, "currency": "EUR", "payee": "` + run + `"}`
	var fingerprint string
	fatal(conn.QueryRow(ctx, "SELECT idem_sign($1, 'charge', $2)", run, params).Scan(&fingerprint))
	effect := func(key pgtype.UUID) (result string, err error) {
		err = conns["other"].QueryRow(ctx, "INSERT INTO sent VALUES ($1) RETURNING to_jsonb(idem_key)", key).Scan(&result)
		return result, err
	}
	var said [2]string
	var key pgtype.UUID
	for i := range said {
		a, err := once(conn, fingerprint, run, "charge", params, newUUID(), effect)
		fatal(err)
		said[i], key = a.Outcome+" "+*a.Result, a.Key
	}
	var sent int
	fatal(conn.QueryRow(ctx, "SELECT count(*) FROM sent WHERE idem_key = $1", key).Scan(&sent))
	problem := ""
	if said[0] != said[1] || !strings.HasPrefix(said[0], "DONE ") || sent != 1 {
		problem = fmt.Sprint(said, sent)
	}
	say("recipe", problem)
	fatal(conn.Close(ctx))
}

func main() {
	mode = os.Args[3]
	names["run"] = os.Args[2]
	for _, role := range []string{"main", "other", "standby"} {
		conns[role] = opened(role)
	}
	tell(os.Args[1])
	recipe(os.Args[2])
	for _, conn := range conns {
		fatal(conn.Close(ctx))
	}
	fmt.Println("# pgx", os.Getenv("PGX_VERSION")+", "+runtime.Version())
	if failed > 0 {
		os.Exit(1)
	}
}
