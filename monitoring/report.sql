-- One self-contained page on what idem did lately and what needs a person now:
--
--   psql -X -q -d DATABASE -f monitoring/report.sql > report.html
--   psql -X -q -d DATABASE -v minutes=1440 -f monitoring/report.sql > day.html
--
-- Run by a role with the set "auditor". It reads the record table once from end to end, in a read-only transaction;
-- it works on a standby too, and without preloading, where it has no counters to show. Times are the session's.
\set ON_ERROR_STOP on
\pset format unaligned
\pset tuples_only on
\pset footer off
\pset pager off
\pset null ''
\if :{?minutes}
\else
\set minutes 60
\endif
SELECT n.oid AS found FROM pg_catalog.pg_extension AS e JOIN pg_catalog.pg_namespace AS n ON n.oid = e.extnamespace WHERE e.extname = 'idem' \gset
\if :{?found}
\else
\warn 'idem is not installed in this database'
\quit
\endif
SET client_min_messages = warning;
SELECT pg_catalog.set_config('search_path', 'pg_catalog, ' || pg_catalog.quote_ident(nspname), false) AS path FROM pg_catalog.pg_namespace WHERE oid = :found \gset
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT idem_preloaded() AS preloaded, clock_timestamp() AS now,
	date_trunc('second', clock_timestamp() - :minutes * interval '1 minute') AS since,
	greatest(:minutes / 60.0, 1) * interval '1 minute' AS step,
	least(:minutes, 60)::int AS bars \gset

-- :e TEXT :x is the text with its special characters escaped; :c TEXT :x likewise, cut short
\set e 'replace(replace(replace(replace(replace((coalesce(('
\set x ')::text, '''')), ''&'', ''&amp;''), ''<'', ''&lt;''), ''>'', ''&gt;''), ''"'', ''&quot;''), '''''''', ''&#39;'')'
-- a time span for people
\set span1 '(SELECT CASE WHEN s < 0.001 THEN ''&lt;1 ms'' WHEN s < 1 THEN round(s * 1000) || '' ms'' WHEN s < 120 THEN round(s::numeric, CASE WHEN s < 10 THEN 1 ELSE 0 END) || '' s'' WHEN s < 7200 THEN round(s / 60) || '' min'' WHEN s < 172800 THEN round(s / 3600) || '' h'' ELSE round(s / 86400) || '' d'' END FROM (SELECT extract(epoch FROM ('
\set span2 ')) AS s) AS span)'

SELECT $html$<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>idem</title>
<style>
:root { --bg: #f6f7f9; --card: #fff; --ink: #1b2430; --soft: #667085; --line: #e3e6eb; --done: #2f7d5b; --failed: #c27c0e; --released: #7a6fd0; --flight: #3b82c4; --bad: #c7372f; --warn: #b7791f; --ok: #2f7d5b; --badbg: #fdeeed; --code: #f0f2f5; }
@media (prefers-color-scheme: dark) { :root { --bg: #12161c; --card: #1b2129; --ink: #e6eaf0; --soft: #98a3b3; --line: #2c3440; --done: #4fb287; --failed: #e0a43c; --released: #9f96ee; --flight: #63a6e6; --bad: #f0685f; --warn: #e2ac4b; --ok: #4fb287; --badbg: #35201f; --code: #242c37; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 15px/1.5 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 24px 20px 48px; }
header { display: flex; flex-wrap: wrap; align-items: baseline; gap: 4px 16px; margin-bottom: 18px; }
h1 { font-size: 26px; margin: 0; letter-spacing: -.02em; }
h2 { font-size: 16px; margin: 0 0 2px; }
.soft { color: var(--soft); font-size: 13px; }
p.soft { margin: 0 0 12px; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 16px 18px 18px; margin-bottom: 16px; min-width: 0; }
section.urgent { border-color: var(--bad); border-left-width: 5px; }
.tiles { display: grid; grid-template-columns: repeat(6, 1fr); gap: 12px; margin-bottom: 16px; }
.tile { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 11px 14px; }
.tile b { display: block; font-size: 24px; line-height: 1.25; font-weight: 600; font-variant-numeric: tabular-nums; }
.two { display: grid; grid-template-columns: 1fr 1fr; gap: 16px; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13.5px; font-variant-numeric: tabular-nums; }
th { text-align: left; font-weight: 500; color: var(--soft); padding: 4px 10px 4px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
td { padding: 6px 10px 6px 0; border-bottom: 1px solid var(--line); vertical-align: top; overflow-wrap: break-word; max-width: 420px; }
tr:last-child > td { border-bottom: 0; }
td.n, th.n { text-align: right; white-space: nowrap; }
td.t { white-space: nowrap; overflow-wrap: normal; }
code { font: 12.5px/1.45 ui-monospace, "SF Mono", Menlo, Consolas, "DejaVu Sans Mono", monospace; }
pre { margin: 6px 0 0; padding: 8px 10px; background: var(--code); border-radius: 6px; white-space: pre-wrap; overflow-wrap: anywhere; font: 12.5px/1.45 ui-monospace, Menlo, Consolas, "DejaVu Sans Mono", monospace; }
summary { cursor: pointer; padding: 10px 0 2px; border-top: 1px solid var(--line); color: var(--soft); }
.chart { overflow-x: auto; direction: rtl; }
.chart > svg { direction: ltr; min-width: 600px; }
.legend > span { white-space: nowrap; margin-right: 12px; }
.item { padding: 10px 0; border-top: 1px solid var(--line); }
.item:first-of-type { border-top: 0; }
.pill { display: inline-block; min-width: 44px; padding: 0 8px; border-radius: 9px; font-size: 12px; line-height: 18px; text-align: center; color: #fff; font-weight: 600; }
@media (prefers-color-scheme: dark) { .pill { color: #12161c; } }
.pill.ok { background: var(--ok); } .pill.warn { background: var(--warn); } .pill.bad { background: var(--bad); }
.key { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 5px; }
svg { display: block; width: 100%; height: auto; }
svg text { fill: var(--soft); font: 11px system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif; }
.done { fill: var(--done); background: var(--done); } .failed { fill: var(--failed); background: var(--failed); }
.released { fill: var(--released); background: var(--released); } .flight { fill: var(--flight); background: var(--flight); }
.alarm { fill: var(--bad); background: var(--bad); }
.grid { stroke: var(--line); stroke-width: 1; }
.bar { display: grid; grid-template-columns: minmax(80px, 30%) 1fr 58px; gap: 10px; align-items: center; padding: 4px 0; font-size: 13.5px; }
.bar > span:first-child { overflow-wrap: anywhere; }
.track { background: var(--code); border-radius: 4px; height: 14px; overflow: hidden; }
.fill { height: 14px; }
.bar > span:last-child { text-align: right; font-variant-numeric: tabular-nums; }
@media (max-width: 820px) { .two { grid-template-columns: 1fr; gap: 0; } .tiles { grid-template-columns: repeat(3, 1fr); } }
@media (max-width: 520px) { table { font-size: 13px; } main { padding: 16px 12px 32px; } .tiles { grid-template-columns: repeat(2, 1fr); } section { padding: 14px; } .wide { display: none; } }
</style>
</head>
<body>
<main>$html$;

SELECT format('<header><h1>idem</h1><span class="soft">database <b>%s</b>, the %s up to %s</span></header>',
	:e current_database() :x,
	CASE WHEN :minutes = 60 THEN 'hour' WHEN :minutes = 1440 THEN 'day' ELSE :minutes || ' minutes' END,
	to_char(:'now'::timestamptz, 'YYYY-MM-DD HH24:MI:SS TZ'));

-- At a glance
WITH lately AS (
	SELECT count(*) FILTER (WHERE state = 'DONE') AS done, count(*) FILTER (WHERE state = 'FAILED') AS failed,
			percentile_disc(0.95) WITHIN GROUP (ORDER BY finished_at - acquired_at) FILTER (WHERE state = 'DONE' AND reconciled_at IS NULL) AS p95
		FROM idem_audit WHERE finished_at >= :'since' AND finished_at <= :'now'
)
SELECT format('<div class="tiles"><div class="tile"><b>%s</b><span class="soft">done</span></div><div class="tile"><b>%s</b><span class="soft">failed</span></div>'
	'<div class="tile"><b>%s</b><span class="soft">in flight</span></div><div class="tile"><b%s>%s</b><span class="soft">outcome unknown</span></div>'
	'<div class="tile"><b%s>%s</b><span class="soft">alerts</span></div><div class="tile"><b>%s</b><span class="soft">95%% done within</span></div></div>',
	l.done, l.failed, (SELECT count(*) FROM idem_in_flight),
	CASE WHEN s.n > 0 THEN ' style="color: var(--bad)"' END, s.n,
	CASE WHEN a.n > 0 THEN ' style="color: var(--warn)"' END, a.n,
	coalesce(:span1 l.p95 :span2, '–'))
FROM lately AS l, (SELECT count(*) AS n FROM idem_stuck) AS s, (SELECT count(*) AS n FROM idem_alert WHERE last_at >= :'since') AS a;

-- What needs a person now
SELECT count(*) AS stuck FROM idem_stuck \gset
SELECT count(*) > 0 AS unhealthy FROM idem_health() WHERE status = 'bad' \gset
SELECT format('<section class="%s"><h2>What needs a person now</h2><p class="soft">%s</p>',
	CASE WHEN :stuck > 0 OR :'unhealthy' THEN 'urgent' END,
	CASE WHEN :stuck > 0 THEN 'Nobody knows whether these effects happened. Look downstream for the key, then run the call with the one verdict that is true.'
		WHEN :'unhealthy' THEN 'No outcome is unknown; what is bad stands under health.' ELSE 'Nothing.' END);
WITH waiting AS (
	SELECT row_number() OVER (ORDER BY s.overdue DESC, s.key) AS i,
			format('<div class="item"><b>%s</b> for %s <span class="soft">attempt %s%s, overdue by %s, downstream is %s</span><pre>%s</pre></div>',
				:e left(s.scope, 80) :x, :e left(s.subject, 80) :x, s.attempt, coalesce(', held by ' || :e left(s.holder, 80) :x, ''),
				:span1 s.overdue :span2, s.downstream, :e s.reconcile :x) AS html
		FROM idem_stuck AS s
		ORDER BY s.overdue DESC, s.key LIMIT 100
)
SELECT coalesce(string_agg(w.html, E'\n' ORDER BY w.i) FILTER (WHERE w.i <= 3), '')
	|| coalesce(format('<details><summary>%s more</summary>', :stuck - 3) || string_agg(w.html, E'\n' ORDER BY w.i) FILTER (WHERE w.i > 3)
		|| CASE WHEN :stuck > 100 THEN '<p class="soft">The rest: SELECT * FROM idem_stuck</p>' ELSE '' END || '</details>', '')
FROM waiting AS w;
SELECT '</section>';

-- Operations over time: finished ones by what became of them, those in flight by when they began
SELECT '<section><h2>Operations over time</h2><p class="soft legend"><span><span class="key done"></span>done</span> <span><span class="key failed"></span>failed</span> <span><span class="key released"></span>released</span> <span><span class="key flight"></span>still in flight</span> <span><span class="key alarm"></span>alerts</span></p><div class="chart">';
WITH bars AS (
	SELECT i, :'now'::timestamptz - (:bars - i) * :'step'::interval AS from_at, :'now'::timestamptz - (:bars - i - 1) * :'step'::interval AS to_at
		FROM generate_series(0, :bars - 1) AS i
), events AS (
	SELECT CASE WHEN state = 'IN_FLIGHT' THEN acquired_at ELSE finished_at END AS at, state FROM idem_audit
		WHERE CASE WHEN state = 'IN_FLIGHT' THEN acquired_at ELSE finished_at END >= :'now'::timestamptz - :bars * :'step'::interval
), placed AS (
	SELECT (:bars - 1 - floor(extract(epoch FROM :'now'::timestamptz - e.at) / extract(epoch FROM :'step'::interval)))::int AS i,
			array_position('{DONE,FAILED,RELEASED,IN_FLIGHT}', e.state) AS kind, count(*) AS n
		FROM events AS e WHERE e.at <= :'now' GROUP BY 1, 2
), alarms AS (
	SELECT (:bars - 1 - floor(extract(epoch FROM :'now'::timestamptz - a.last_at) / extract(epoch FROM :'step'::interval)))::int AS i, count(*) AS n
		FROM idem_alert AS a WHERE a.last_at <= :'now' AND a.last_at > :'now'::timestamptz - :bars * :'step'::interval GROUP BY 1
), stacked AS (
	SELECT p.*, sum(p.n) OVER (PARTITION BY p.i ORDER BY p.kind) - p.n AS below FROM placed AS p WHERE p.i >= 0
), top AS (
	-- the next of 1, 2, 5, 10, 20 ...
	SELECT (SELECT min(c) FROM (SELECT d * power(10, z) AS c FROM unnest(ARRAY[1, 2, 5]) AS d, generate_series(0, 9) AS z) AS t WHERE t.c >= greatest(m.most, 4)) AS top
		FROM (SELECT max(below + n) AS most FROM stacked) AS m
), shape AS (
	SELECT t.top, 940.0 / :bars AS w FROM top AS t
)
SELECT '<svg viewBox="0 0 1000 240" role="img" aria-label="operations for each interval">'
	|| (SELECT string_agg(format('<line class="grid" x1="50" x2="990" y1="%s" y2="%s"/><text x="44" y="%s" text-anchor="end">%s</text>', 190 - 43 * g, 190 - 43 * g, 194 - 43 * g, round((s.top * g / 4)::numeric, CASE WHEN s.top < 4 THEN 1 ELSE 0 END)), '') FROM shape AS s, generate_series(0, 4) AS g)
	|| coalesce((SELECT string_agg(format('<rect class="%s" x="%s" y="%s" width="%s" height="%s"><title>%s %s, %s</title></rect>', (ARRAY['done', 'failed', 'released', 'flight'])[k.kind],
			round(50 + k.i * s.w, 1), round((190 - 172 * (k.below + k.n) / s.top)::numeric, 1), round(greatest(s.w - 1.5, 1), 1), round((172 * k.n / s.top)::numeric, 1),
			k.n, (ARRAY['done', 'failed', 'released', 'still in flight'])[k.kind], to_char(b.from_at, 'HH24:MI')), E'\n' ORDER BY k.i, k.kind)
		FROM stacked AS k JOIN bars AS b ON b.i = k.i, shape AS s), '')
	|| coalesce((SELECT string_agg(format('<circle class="alarm" cx="%s" cy="202" r="%s"><title>%s alerts, %s</title></circle>', round(50 + (a.i + 0.5) * s.w, 1), least(3 + ln(a.n::float8), s.w / 2 + 1)::numeric(4, 1), a.n, to_char(b.from_at, 'HH24:MI')), E'\n')
		FROM alarms AS a JOIN bars AS b ON b.i = a.i, shape AS s), '')
	|| (SELECT string_agg(format('<text x="%s" y="228" text-anchor="%s">%s</text>', round(50 + b.i * s.w, 1), CASE WHEN b.i = 0 THEN 'start' ELSE 'middle' END, to_char(b.from_at, CASE WHEN :minutes > 1440 THEN 'MM-DD HH24:MI' ELSE 'HH24:MI' END)), '')
		FROM bars AS b, shape AS s WHERE b.i % greatest(:bars / 6, 1) = 0)
	|| '</svg>';
SELECT '</div></section>';

-- Who was replayed, and how old is what is at work
SELECT '<div class="two"><section><h2>Replay ratio by scope</h2>';
\if :preloaded
SELECT '<p class="soft">Of all calls that did the work or were given its result, those that were given it. Since the counters were reset.</p>';
SELECT format('<div class="bar"><span>%s</span><div class="track"><div class="fill done" style="width: %s%%"></div></div><span title="%s of %s">%s%%</span></div>',
	:e left(CASE s.scope WHEN '' THEN '(none)' ELSE s.scope END, 60) :x, round(100 * s.replay_ratio, 1), s.replayed + s.joined, s.executed + s.replayed + s.joined, round(100 * s.replay_ratio, 1))
FROM (SELECT * FROM idem_stat WHERE replay_ratio IS NOT NULL ORDER BY executed + replayed + joined DESC LIMIT 12) AS s;
SELECT '<p class="soft">No calls yet.</p>' WHERE NOT EXISTS (SELECT FROM idem_stat WHERE replay_ratio IS NOT NULL);
\else
SELECT '<p class="soft">Nothing is counted: the library is not preloaded. Set shared_preload_libraries = &#39;idem&#39; and restart the server.</p>';
\endif
SELECT '</section><section><h2>Age of claims in flight</h2><p class="soft legend"><span><span class="key flight"></span>lease running</span> <span><span class="key alarm"></span>lease over</span></p>';
WITH steps (i, name, low, high) AS (
	VALUES (1, 'under 10 s', '-infinity'::float8, 10::float8), (2, '10 s to 1 min', 10, 60), (3, '1 to 5 min', 60, 300), (4, '5 to 30 min', 300, 1800),
		(5, '30 min to 2 h', 1800, 7200), (6, 'over 2 h', 7200, 'infinity')
), counts AS (
	SELECT s.i, s.name, count(f.key) FILTER (WHERE f.lease_left > '0' OR f.xid IS NOT NULL) AS running, count(f.key) FILTER (WHERE f.lease_left <= '0' AND f.xid IS NULL) AS over
		FROM steps AS s LEFT JOIN idem_in_flight AS f ON extract(epoch FROM f.age) >= s.low AND extract(epoch FROM f.age) < s.high
		GROUP BY s.i, s.name
)
SELECT format('<div class="bar"><span>%s</span><div class="track" style="display: flex"><div class="fill flight" style="width: %s%%"></div><div class="fill alarm" style="width: %s%%"></div></div><span>%s</span></div>',
	c.name, round(100.0 * c.running / greatest(m.most, 1), 1), round(100.0 * c.over / greatest(m.most, 1), 1), c.running + c.over)
FROM counts AS c, (SELECT max(running + over) AS most FROM counts) AS m ORDER BY c.i;
SELECT '</section></div>';

-- Alerts, those of one kind and scope together
SELECT '<section><h2>Alerts</h2><p class="soft">Of this time, those alike together. One by one in psql: SELECT * FROM idem_alerts ORDER BY last_at DESC</p>';
WITH alike AS (
	SELECT a.kind, a.scope, count(*) AS operations, sum(a.count) AS times, max(a.last_at) AS last_at,
			(array_agg(a.subject ORDER BY a.last_at DESC))[1] AS subject,
			array_position('{stuck,not_owner,never_owner,subject_mismatch,scope_mismatch,parameter_mismatch,takeover,released,reconciled}', a.kind) AS rank,
			min(a.meaning) AS meaning, min(a.code) AS code
		FROM idem_alerts AS a WHERE a.last_at >= :'since' GROUP BY a.kind, a.scope ORDER BY rank, operations DESC LIMIT 30
)
SELECT coalesce('<div class="scroll"><table><tr><th>what happened</th><th>scope</th><th class="n">claims</th><th class="n wide">times</th><th class="t">latest</th><th class="wide">its subject</th></tr>'
	|| string_agg(format('<tr><td>%s <span class="soft">%s</span></td><td>%s</td><td class="n">%s</td><td class="n wide">%s</td><td class="t">%s</td><td class="wide">%s</td></tr>',
		:e coalesce(a.meaning, a.kind) :x, a.code, :e left(a.scope, 60) :x, a.operations, a.times, to_char(a.last_at, 'HH24:MI:SS'), :e left(a.subject, 60) :x), E'\n' ORDER BY a.rank, a.operations DESC, a.scope)
	|| '</table></div>', '<p class="soft">None.</p>') || '</section>'
FROM alike AS a;

-- Holders
WITH held AS (
	SELECT coalesce(holder, '(no label)') AS holder, count(*) AS claims, count(*) FILTER (WHERE state = 'IN_FLIGHT') AS in_flight,
			count(*) FILTER (WHERE state = 'FAILED') AS failed, sum(attempt - 1) AS again,
			percentile_disc(0.5) WITHIN GROUP (ORDER BY finished_at - acquired_at) FILTER (WHERE state = 'DONE') AS p50,
			percentile_disc(0.95) WITHIN GROUP (ORDER BY finished_at - acquired_at) FILTER (WHERE state = 'DONE') AS p95
		FROM idem_audit
		WHERE acquired_at >= :'since' OR state = 'IN_FLIGHT'
		GROUP BY 1 ORDER BY claims DESC, holder LIMIT 10
)
SELECT '<section><h2>Top holders</h2><p class="soft">Those who did the work, by the label that they gave themselves.</p><div class="scroll"><table><tr><th>holder</th><th class="n">claims</th><th class="n">in flight</th><th class="n">failed</th><th class="n wide">attempts beyond the first</th><th class="n wide">median</th><th class="n">95%</th></tr>'
	|| coalesce(string_agg(format('<tr><td>%s</td><td class="n">%s</td><td class="n">%s</td><td class="n">%s</td><td class="n wide">%s</td><td class="n wide">%s</td><td class="n">%s</td></tr>',
		:e left(h.holder, 80) :x, h.claims, h.in_flight, h.failed, h.again, coalesce(:span1 h.p50 :span2, '–'), coalesce(:span1 h.p95 :span2, '–')), E'\n' ORDER BY h.claims DESC, h.holder), '<tr><td class="soft" colspan="7">None.</td></tr>')
	|| '</table></div></section>'
FROM held AS h;

-- Health
SELECT '<section><h2>Health</h2><div class="scroll"><table>' || string_agg(format('<tr><td><span class="pill %s">%s</span></td><td class="t">%s</td><td>%s%s</td></tr>',
		h.status, h.status, :e h.name :x, :e h.detail :x, CASE WHEN h.advice <> '' THEN '<br><span class="soft">' || :e h.advice :x || '</span>' END), E'\n'
		ORDER BY array_position('{bad,warn,ok}', h.status), h.name, h.detail) || '</table></div></section>'
FROM idem_health() AS h;
SELECT '</main>
</body>
</html>';
COMMIT;
