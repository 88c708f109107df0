// Client.java STORY RUN MODE: the story told by pgjdbc, in mode simple (no prepared statements), text or binary.

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.sql.Connection;
import java.sql.DriverManager;
import java.sql.PreparedStatement;
import java.sql.ResultSet;
import java.sql.ResultSetMetaData;
import java.sql.SQLException;
import java.sql.Timestamp;
import java.time.Instant;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import java.util.function.Function;
import java.util.regex.Pattern;
import org.postgresql.util.PGobject;

class Client {
    // recipe
    static final Set<String> AGAIN = Set.of("40001", "40P01");

    interface Work<T> {
        T run() throws SQLException;
    }

    /** Run work in a transaction, again for as long as a concurrent one is in its way. */
    static <T> T transaction(Connection conn, Work<T> work) throws SQLException {
        conn.setAutoCommit(false);
        try {
            while (true) {
                try {
                    T result = work.run();
                    conn.commit();
                    return result;
                } catch (SQLException error) {
                    conn.rollback();
                    if (!AGAIN.contains(error.getSQLState())) {
                        throw error;
                    }
                }
            }
        } finally {
            if (!conn.isClosed()) {
                conn.setAutoCommit(true);
            }
        }
    }

    record Answer(String outcome, String result) {
    }

    /**
     * Cause the effect of an operation once; returns what became of it, and its result. conn is in autocommit mode:
     * the grant is committed before the effect starts. owner is a fresh UUID, kept by the caller: after a lost
     * connection the same call on a new one goes on. Where effect throws, its outcome is unknown.
     */
    static Answer once(Connection conn, String fingerprint, String subject, String scope, String params, UUID owner,
            Function<UUID, String> effect) throws SQLException {
        UUID key;
        try (var acquire = conn.prepareStatement(
                "SELECT outcome, key, result FROM idem_acquire(?, ?, ?, ?::jsonb, owner => ?)")) {
            acquire.setString(1, fingerprint);
            acquire.setString(2, subject);
            acquire.setString(3, scope);
            acquire.setString(4, params);
            acquire.setObject(5, owner);
            ResultSet claim = acquire.executeQuery();
            claim.next();
            if (!claim.getString(1).equals("ACQUIRED")) {
                return new Answer(claim.getString(1), claim.getString(3));
            }
            key = claim.getObject(2, UUID.class);
        }
        String result = effect.apply(key); // the key is the request's Idempotency-Key
        try (var commit = conn.prepareStatement("SELECT idem_commit(?, ?, ?::jsonb)");
                var status = conn.prepareStatement("SELECT outcome, result FROM idem_status_key(?, ?)")) {
            commit.setObject(1, key);
            commit.setObject(2, owner);
            commit.setString(3, result);
            commit.executeQuery();
            status.setObject(1, key);
            status.setString(2, subject);
            ResultSet became = status.executeQuery();
            became.next();
            return new Answer(became.getString(1), became.getString(2));
        }
    }
    // end of recipe

    static final class Step {
        String name;
        String on = "main";
        String sql;
        String error;
        boolean first;
        final List<String[]> args = new ArrayList<>();
        final List<String[]> is = new ArrayList<>();
        final List<String> keep = new ArrayList<>();
    }

    static final Map<String, Connection> conns = new TreeMap<>();
    static final Map<String, String> names = new TreeMap<>();
    static final Pattern NAME = Pattern.compile("<(\\w+)>");
    static String mode;
    static int failed = 0;

    static Connection opened(String name) throws SQLException {
        String folder = System.getenv(name.equals("standby") ? "STANDBY_HOST" : "PGHOST");
        String how = switch (mode) {
            case "simple" -> "preferQueryMode=simple";
            case "binary" -> "prepareThreshold=-1";
            default -> "binaryTransfer=false";
        };
        return DriverManager.getConnection("jdbc:postgresql://localhost/" + System.getenv("PGDATABASE") + "?user="
                + System.getenv("PGUSER") + "&socketFactory=UnixSockets&socketFactoryArg=" + folder + "/.s.PGSQL."
                + System.getenv("PGPORT") + "&stringtype=unspecified&" + how);
    }

    static String filled(String text) {
        return text == null ? null : NAME.matcher(text).replaceAll(
                m -> java.util.regex.Matcher.quoteReplacement(names.get(m.group(1))));
    }

    static void say(String name, String problem) {
        failed += problem == null ? 0 : 1;
        System.out.println(problem == null ? "ok - " + name : "not ok - " + name + ": " + problem);
    }

    /** A parameter in the type that a Java program has it in. */
    static Object value(String type, String text) throws SQLException {
        if (text == null) {
            return null;
        }
        switch (type) {
            case "int":
                return Integer.valueOf(text);
            case "uuid":
                return UUID.fromString(text);
            case "timestamptz":
                return Timestamp.from(Instant.parse(text));
            case "text":
                return text;
            default:
                PGobject other = new PGobject();
                other.setType(type);
                other.setValue(text);
                return other;
        }
    }

    static void bind(PreparedStatement statement, int from, Step step) throws SQLException {
        for (String[] arg : step.args) {
            statement.setObject(from++, value(arg[0], filled(arg[1])));
        }
    }

    /** The one row of an answer, if it is one. */
    static Map<String, String> row(ResultSet got) throws SQLException {
        Map<String, String> row = new TreeMap<>();
        if (got == null || !got.next()) {
            return row;
        }
        ResultSetMetaData about = got.getMetaData();
        for (int i = 1; i <= about.getColumnCount(); i++) {
            Object value = switch (about.getColumnTypeName(i)) {
                case "bool", "uuid", "int4" -> got.getObject(i);
                case "timestamptz" -> got.getTimestamp(i).toInstant();
                default -> got.getString(i);
            };
            row.put(about.getColumnLabel(i), got.wasNull() ? "null" : String.valueOf(value));
        }
        return row;
    }

    static String difference(Step step, Map<String, String> row) {
        String problem = step.error == null ? null : "it did not fail";
        for (String[] is : step.is) {
            if (!filled(is[1]).equals(row.get(is[0]))) {
                problem = is[0] + " is " + row.get(is[0]) + ", not " + filled(is[1]);
            }
        }
        for (String column : step.keep) {
            names.put(column, row.get(column));
        }
        return problem;
    }

    /** Run a statement; what the transaction's repetition needs is thrown. */
    static Void perform(Step step) throws SQLException {
        String problem = null;
        try (var statement = conns.get(step.on).prepareStatement(step.sql.replaceAll("\\$\\d", "?"))) {
            bind(statement, 1, step);
            problem = difference(step, statement.execute() ? row(statement.getResultSet()) : Map.of());
        } catch (SQLException error) {
            if (AGAIN.contains(error.getSQLState())) {
                throw error;
            }
            if (!error.getSQLState().equals(step.error)) {
                problem = error.getSQLState() + " " + error.getMessage();
            }
        }
        say(step.name, problem);
        return null;
    }

    static void retried(String level, List<Step> steps, int wanted) throws SQLException {
        int[] runs = {0};
        Connection main = conns.get("main");
        transaction(main, () -> {
            runs[0]++;
            main.createStatement().execute("SET TRANSACTION ISOLATION LEVEL " + level);
            for (Step step : steps) {
                if (runs[0] == 1 || !step.first) {
                    perform(step);
                }
            }
            return null;
        });
        say(level + ", repeated", runs[0] == wanted ? null : runs[0] + " runs");
    }

    /** One call with several statements: all are sent before the first answer is read. */
    static void pipelined(List<Step> steps) throws SQLException {
        if (mode.equals("binary")) {
            for (Step step : steps) {
                perform(step);
            }
            System.out.println("skip - pipelined: pgjdbc loses columns of several statements under prepareThreshold=-1");
            return;
        }
        StringBuilder all = new StringBuilder();
        steps.forEach(step -> all.append(step.sql.replaceAll("\\$\\d", "?")).append(";"));
        try (var statement = conns.get("main").prepareStatement(all.toString())) {
            int from = 1;
            for (Step step : steps) {
                bind(statement, from, step);
                from += step.args.size();
            }
            boolean rows = statement.execute();
            for (Step step : steps) {
                say(step.name, difference(step, rows ? row(statement.getResultSet()) : Map.of()));
                rows = statement.getMoreResults();
            }
        }
        say("pipelined", null);
    }

    static void lost(String name, String what) throws SQLException {
        try {
            conns.get(name).createStatement().execute("SELECT 1");
            say(what, "the connection is there");
        } catch (SQLException gone) {
            say(what, null);
        }
        conns.get(name).close();
        conns.put(name, opened(name));
    }

    static void cut(String name, String what) throws SQLException {
        conns.get(name).abort(Runnable::run);
        lost(name, what);
    }

    /** Read the story and act on each line; a step is performed when all its lines are read. */
    static void tell(String story) throws IOException, SQLException {
        Step step = null;
        List<Step> block = null;
        String level = null;
        for (String line : Files.readAllLines(Path.of(story))) {
            String[] words = line.split(" ", 2);
            String rest = words.length > 1 ? words[1] : "";
            String[] pair = (rest + " ").split(" ", 2);
            String second = pair[1].isEmpty() ? "" : pair[1].substring(0, pair[1].length() - 1);
            switch (words[0]) {
                case "arg" -> step.args.add(new String[] {pair[0], second});
                case "null" -> step.args.add(new String[] {pair[0], null});
                case "is" -> step.is.add(new String[] {pair[0], second});
                case "keep" -> step.keep.add(rest);
                case "on" -> step.on = rest;
                case "sql" -> step.sql = rest;
                case "error" -> step.error = rest;
                case "first" -> step.first = true;
                case "", "#" -> { }
                default -> {
                    Step before = step;
                    if (step != null && block != null) {
                        block.add(step);
                    } else if (step != null) {
                        perform(step);
                    }
                    step = null;
                    switch (words[0]) {
                        case "step" -> {
                            step = new Step();
                            step.name = rest;
                        }
                        case "new" -> names.put(rest, UUID.randomUUID().toString());
                        case "retry", "pipeline" -> {
                            block = new ArrayList<>();
                            level = rest;
                        }
                        case "end" -> {
                            if (level.isEmpty()) {
                                pipelined(block);
                            } else {
                                retried(level, block, Integer.parseInt(rest));
                            }
                            block = null;
                        }
                        case "lost" -> lost(rest, "lost after: " + before.name);
                        case "cut" -> cut(rest, "cut after: " + before.name);
                        default -> throw new IOException("what is " + words[0]);
                    }
                }
            }
        }
        perform(step);
    }

    static String single(Connection conn, String sql, Object... args) throws SQLException {
        try (var statement = conn.prepareStatement(sql)) {
            for (int i = 0; i < args.length; i++) {
                statement.setObject(i + 1, args[i]);
            }
            ResultSet got = statement.executeQuery();
            got.next();
            return got.getString(1);
        }
    }

    static void recipe(String run) throws SQLException {
        try (Connection conn = opened("main")) {
            String params = "{\"amount\": 20, \"currency\": \"EUR\", \"payee\": \"" + run + "\"}";
            String fingerprint = single(conn, "SELECT idem_sign(?, 'charge', ?::jsonb)", run, params);
            Function<UUID, String> effect = key -> {
                try {
                    return single(conns.get("other"), "INSERT INTO sent VALUES (?) RETURNING to_jsonb(idem_key)", key);
                } catch (SQLException error) {
                    throw new IllegalStateException(error);
                }
            };
            Answer one = once(conn, fingerprint, run, "charge", params, UUID.randomUUID(), effect);
            Answer two = once(conn, fingerprint, run, "charge", params, UUID.randomUUID(), effect);
            String sent = single(conn, "SELECT count(*) FROM sent WHERE to_jsonb(idem_key) = ?::jsonb", one.result());
            say("recipe", one.equals(two) && one.outcome().equals("DONE") && sent.equals("1") ? null
                    : one + " " + two + " " + sent);
        }
    }

    public static void main(String[] words) throws IOException, SQLException {
        mode = words[2];
        names.put("run", words[1]);
        for (String name : List.of("main", "other", "standby")) {
            conns.put(name, opened(name));
        }
        tell(words[0]);
        recipe(words[1]);
        System.out.println("# pgjdbc " + conns.get("main").getMetaData().getDriverVersion() + ", Java "
                + Runtime.version().feature());
        System.exit(failed > 0 ? 1 : 0);
    }
}
