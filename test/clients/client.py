#!/usr/bin/env python3
"""client.py STORY RUN MODE: the story told by psycopg 3, in mode text, binary or prepared."""
import datetime
import enum
import os
import re
import socket
import sys
import uuid

import psycopg
from psycopg import errors
from psycopg.types.enum import EnumInfo, register_enum
from psycopg.types.json import Jsonb
from psycopg.types.string import TextLoader

# recipe
AGAIN = (errors.SerializationFailure, errors.DeadlockDetected)  # 40001, 40P01


def transaction(conn, work):
    """Run work() in a transaction, again for as long as a concurrent one is in its way."""
    while True:
        try:
            with conn.transaction():
                return work()
        except AGAIN:
            continue


def once(conn, fingerprint, subject, scope, params, owner, effect):
    """Cause the effect of an operation once; returns what became of it, and its result.

    conn is in autocommit mode: the grant is committed before the effect starts. owner is a fresh UUID, kept by the
    caller: after a lost connection the same call on a new one goes on. Where effect() raises, its outcome is unknown.
    """
    outcome, key, result = conn.execute(
        "SELECT outcome, key, result FROM idem_acquire(%s, %s, %s, %s, owner => %s)",
        (fingerprint, subject, scope, Jsonb(params), owner)).fetchone()
    if outcome != "ACQUIRED":
        return outcome, result
    result = effect(key)  # the key is the request's Idempotency-Key
    ack, = conn.execute("SELECT idem_commit(%s, %s, %s)", (key, owner, Jsonb(result))).fetchone()
    if ack == "OK":
        return "DONE", result
    return conn.execute("SELECT outcome, result FROM idem_status_key(%s, %s)", (key, subject)).fetchone()
# end of recipe


story, run, mode = sys.argv[1:4]
hosts = {"main": os.environ["PGHOST"], "other": os.environ["PGHOST"], "standby": os.environ["STANDBY_HOST"]}
conns = {}
names = {"run": run}
failed = 0


def connect(name):
    conn = conns[name] = psycopg.connect(host=hosts[name], autocommit=True,
                                         prepare_threshold=0 if mode == "prepared" else None)
    conn.adapters.register_loader("jsonb", JsonbBytes if mode == "binary" else TextLoader)
    for each in ("idem_outcome", "idem_ack"):  # else they are bytes in the binary format
        register_enum(EnumInfo.fetch(conn, each), conn)


class JsonbBytes(psycopg.adapt.Loader):
    """The text of a jsonb as the server sent it, after the byte that gives the format's version."""
    format = psycopg.pq.Format.BINARY

    def load(self, data):
        return bytes(data)[1:].decode()


def value(kind, text):
    """A parameter in the type that a Python program has it in."""
    if kind == "int":
        return int(text)
    if kind == "uuid":
        return uuid.UUID(text)
    if kind == "jsonb":
        return Jsonb(text, dumps=str)
    if kind == "interval":
        number, unit = (text.split() + ["s"])[:2]
        return datetime.timedelta(seconds=int(number) * {"s": 1, "min": 60}[unit])
    if kind == "timestamptz":
        return datetime.datetime.fromisoformat(text)
    return text


def text_of(got):
    if got is None:
        return "null"
    if isinstance(got, bool):
        return "true" if got else "false"
    if isinstance(got, enum.Enum):
        return got.name
    return got.isoformat() if isinstance(got, datetime.datetime) else str(got)


def filled(text):
    return re.sub(r"<(\w+)>", lambda m: names[m[1]], text)


def send(step):
    args = [None if text is None else value(kind, filled(text)) for kind, text in step["args"]]
    return conns[step["on"]].execute(re.sub(r"\$\d", "%s", step["sql"]), args, binary=mode == "binary")


def say(name, problem=None):
    global failed
    failed += problem is not None
    print(f"ok - {name}" if problem is None else f"not ok - {name}: {problem}")


def perform(step, sent=None):
    """Run a statement, or read the answer of one that was sent; what the transaction's repetition needs is raised."""
    problem = None
    try:
        cursor = sent or send(step)
        row = dict(zip((c.name for c in cursor.description), cursor.fetchone())) if cursor.description else {}
        for column, wanted in step["is"]:
            if text_of(row[column]) != filled(wanted):
                problem = f"{column} is {text_of(row[column])}, not {filled(wanted)}"
        for column in step["keep"]:
            names[column] = text_of(row[column])
        if step["error"]:
            problem = "it did not fail"
    except psycopg.Error as error:
        if isinstance(error, AGAIN):
            raise
        if error.sqlstate != step["error"]:
            problem = f"{error.sqlstate} {error}"
    say(step["name"], problem)


def retried(level, steps, wanted):
    runs = 0

    def work():
        nonlocal runs
        runs += 1
        conns["main"].execute("SET TRANSACTION ISOLATION LEVEL " + level)
        for step in steps:
            if runs == 1 or not step["first"]:
                perform(step)

    transaction(conns["main"], work)
    say(f"{level}, repeated", None if runs == int(wanted) else f"{runs} runs")


def pipelined(steps):
    """All are sent before the first answer is read."""
    with conns["main"].pipeline() as pipe:
        sent = [send(step) for step in steps]
        pipe.sync()
        for step, cursor in zip(steps, sent):
            perform(step, cursor)
    say("pipelined")


def lost(name, step):
    try:
        conns[name].execute("SELECT 1")
        say(step, "the connection is there")
    except psycopg.OperationalError:
        say(step)
    conns[name].close()
    connect(name)


def cut(name, step):
    with socket.socket(fileno=os.dup(conns[name].fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)
    lost(name, step)


def tell():
    """Read the story and act on each line; a step is performed when all its lines are read."""
    step, block, level = None, None, None
    for line in open(story, encoding="utf-8"):
        word, _, rest = line.rstrip("\n").partition(" ")
        if word in ("arg", "null"):
            kind, _, text = rest.partition(" ")
            step["args"].append((kind, text if word == "arg" else None))
        elif word == "is":
            step["is"].append(rest.split(" ", 1))
        elif word == "keep":
            step["keep"].append(rest)
        elif word in ("on", "sql", "error"):
            step[word] = rest
        elif word == "first":
            step["first"] = True
        elif word and word != "#":
            if step and block is None:
                perform(step)
            elif step:
                block.append(step)
            before, step = step, None
            if word == "step":
                step = {"name": rest, "on": "main", "args": [], "is": [], "keep": [], "error": None, "first": False}
            elif word == "new":
                names[rest] = str(uuid.uuid4())
            elif word in ("retry", "pipeline"):
                block, level = [], rest
            elif word == "end":
                retried(level, block, rest) if level else pipelined(block)
                block = None
            elif word in ("lost", "cut"):
                globals()[word](rest, f"{word} after: {before['name']}")
    perform(step)


def recipe():
    conn = psycopg.connect(autocommit=True)
    count = conns["other"].execute
    params = {"amount": 20, "payee": run, "currency": "EUR"}
    fingerprint, = conn.execute("SELECT idem_sign(%s, 'charge', %s)", (run, Jsonb(params))).fetchone()

    def effect(key):
        count("INSERT INTO sent VALUES (%s)", (key,))
        return {"sent": str(key)}

    answers = [once(conn, fingerprint, run, "charge", params, uuid.uuid4(), effect) for _ in range(2)]
    sent, = count("SELECT count(*) FROM sent WHERE idem_key = %s", (answers[0][1]["sent"],)).fetchone()
    say("recipe", None if answers[0] == answers[1] and answers[0][0] == "DONE" and sent == 1 else f"{answers} {sent}")


for each in hosts:
    connect(each)
tell()
recipe()
print(f"# psycopg {psycopg.__version__}, {psycopg.pq.__impl__} implementation, libpq {psycopg.pq.version()}")
sys.exit(failed > 0)
