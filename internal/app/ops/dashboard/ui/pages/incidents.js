// Incidents, and the page of an entity.
import { html, useState, useEffect, num, seconds, percent, count, clock, link, time, Time, State, Table, Link, Empty, Cmd, Facts } from "../lib.js";
import { useJSON, useShared } from "../data.js";
import { Chart } from "../chart.js";

export const entityLink = in_ => link("swarms", in_.swarm, "entities", String(in_.group));
export const open = in_ => !time(in_.ended);
const kinds = { point: "a single value", level: "stays away from its level", spread: "scatters differently", missing: "an expected event did not come", frozen: "does not change", relation: "does not follow the other features", together: "many entities at once" };
const words = name => name.replaceAll("_", " ");

// At shows a time of the data: a present one as a time of day, others as they are.
export const At = ({ of }) => (/^\d{4}-\d\d-\d\dT.*(Z|[+-]\d\d:\d\d)$/.test(of || "") && Math.abs(Date.now() - Date.parse(of)) < 864e5 ? html`<${Time} at=${of} />` : html`<span>${of || "–"}</span>`);
// lasts is how long an incident lasts, in the time of its data.
const lasts = in_ => {
  const s = (Date.parse(in_.last) - Date.parse(in_.begin)) / 1000;
  return s > 0 ? `${seconds(s)}, ` : "";
};

// why is the explanation of an incident in words.
export function why(in_) {
  if (!in_.feature) return "not explained (set explain: true)";
  const known = in_.value !== undefined, expected = in_.expected !== undefined && known ? `, ${num(in_.expected)} expected` : "";
  return `${known ? num(in_.value) : in_.side || "odd"}${expected}${kinds[in_.kind] ? `; ${kinds[in_.kind]}` : ""}${in_.before ? `; ${in_.before + 1}th time`.replace("2th", "2nd").replace("3th", "3rd") : ""}`;
}

export function IncidentTable({ rows, caption, filter, empty, hide }) {
  return html`<${Table} caption=${caption} hide=${hide} filter=${filter} rows=${rows} empty=${empty} columns=${[
    { name: "Entity", value: i => html`<a href=${entityLink(i)}>${i.entity || `group ${i.group}`}</a>` },
    { name: "State", value: i => html`<${State} of=${open(i) ? "error" : "over"} text=${open(i) ? "now" : "over"} />` },
    { name: "Since", value: i => html`<${At} of=${i.begin} />` }, { name: "Lasts", number: true, value: i => lasts(i) + count(i.rows, "row") },
    { name: "Strength", number: true, value: i => html`<meter min="0" max="1" low="0.5" high="0.75" optimum="0" value=${i.score} aria-label=${`strength ${percent(i.score)}`}></meter> ${percent(i.score)}` },
    { name: "Feature", value: i => words(i.feature || "–") }, { name: "Why", value: why }, { name: "Found by", value: i => html`<${Watcher} of=${i} />` },
  ]} />`;
}
export function Watcher({ of: i }) {
  const w = (useShared().state?.watches || []).find(x => x.swarm === i.swarm);
  return w?.detector ? html`<${Link} to=${["detectors", i.watch]}>${i.watch}<//>` : w?.job ? html`<${Link} to=${["jobs", w.job]}>${i.watch}<//>` : i.watch;
}

// Strip is a time of the past with its incidents, a row for each detector.
export function Strip({ incidents, range }) {
  const now = Date.now(), from = now - 1000 * range, list = incidents.filter(i => open(i) || time(i.ended) > from), lanes = [...new Set(list.map(i => i.watch))].sort().slice(0, 8);
  const x = t => Math.max(0, (1000 * (t - from)) / (now - from)), label = range > 7200 ? `${range / 3600} hours` : `${range / 60} minutes`;
  return html`<figure class="lanes"><figcaption>Incidents of the last ${label}: ${list.length || "none"}</figcaption>
    <svg viewBox=${`0 0 1000 ${24 * Math.max(1, lanes.length)}`} preserveAspectRatio="none" role="img" aria-label=${`Incidents of the last ${label}: ${list.map(i => `${i.entity} at ${clock(time(i.began))}`).join(", ") || "none"}`}>
      ${(lanes.length ? lanes : [""]).map((_, k) => html`<rect class="lane" x="0" y=${24 * k + 3} width="1000" height="18" />`)}
      ${list.map(i => html`<rect class=${open(i) ? "now" : "past"} x=${x(time(i.began))} y=${24 * Math.max(0, lanes.indexOf(i.watch)) + 3} width=${Math.max(3, x(open(i) ? now : time(i.ended)) - x(time(i.began)))} height="18"><title>${i.entity}, ${clock(time(i.began))}</title></rect>`)}
    </svg><p class="ends dim"><span>${clock(new Date(from))}</span> <span>${lanes.join(" · ")}</span> <span>now</span></p></figure>`;
}

// Find searches the entities of all swarms that have names for them.
export function Find() {
  const [word, setWord] = useState(""), [asked, ask] = useState(""), { state: s } = useShared();
  useEffect(() => {
    const timer = setTimeout(() => ask(word.trim()), 250);
    return () => clearTimeout(timer);
  }, [word]);
  const swarms = (s?.watches || []).filter(w => w.state !== "done").map(w => w.swarm).slice(0, 8);
  return html`<form class="filter" role="search" onSubmit=${e => e.preventDefault()}><label>Find an entity <input type="search" name="entity" value=${word} onInput=${e => setWord(e.target.value)} /></label></form>
    ${asked && swarms.map(id => html`<${Matches} key=${id} swarm=${id} word=${asked} />`)}`;
}
function Matches({ swarm, word }) {
  const { data, error } = useJSON(`swarms/${encodeURIComponent(swarm)}/entities?key=${encodeURIComponent(word)}`, 10);
  if (error || !data?.count) return null;
  return html`<p class="found">${swarm}: ${data.matches ? "" : html`none has “${word}”; the nearest are `}${data.entities.map(e => html`<a href=${link("swarms", swarm, "entities", String(e.group))}>${e.name}</a> `)}${data.matches > data.entities.length ? `and ${num(data.matches - data.entities.length)} more` : ""}</p>`;
}

export const none = html`No incident yet. Watch this machine: <${Cmd}>exoswarm serve --watch-this-machine<//>, see an example: <${Cmd}>exoswarm serve --demo<//>, or make a detector: <${Cmd}>exoswarm detect create -f swarm.yaml --sources FILE<//>.`;

export function Incidents({ state: s }) {
  const [now, setNow] = useState(false), [range, setRange] = useState(3600), all = s.incidents || [];
  return html`<h1>Incidents</h1><${Find} />
    <p class="filter"><label><input type="checkbox" checked=${now} onChange=${e => setNow(e.target.checked)} /> only incidents that go on</label>
      <label>Length <select value=${range} onChange=${e => setRange(Number(e.target.value))}><option value="900">15 minutes</option><option value="3600">1 hour</option><option value="21600">6 hours</option><option value="86400">24 hours</option></select></label></p>
    <${Strip} incidents=${all} range=${range} />
    <${IncidentTable} caption="Incidents, the newest first" filter="incidents" rows=${now ? all.filter(open) : all} empty=${now && all.length ? "No incident goes on." : none} />`;
}

// stamps are the times of rows in seconds, growing; the numbers of the rows where they are no times.
function stamps(rows) {
  const at = rows.map(r => Date.parse(/[Z+]|-\d\d:\d\d$/.test(r.timestamp.slice(10)) ? r.timestamp : r.timestamp.replace(" ", "T")) / 1000);
  const times = at.every((t, i) => Number.isFinite(t) && (i === 0 || t > at[i - 1]));
  return [times ? at : rows.map((_, i) => i), times];
}

export function Entity({ name, group, state: s }) {
  const { data: e, error, status } = useJSON(`swarms/${encodeURIComponent(name)}/entities/${encodeURIComponent(group)}`, 2);
  const own = (s.incidents || []).filter(i => i.swarm === (e?.swarm ?? name) && i.group === Number(group));
  if (!e) return html`<h1>Entity</h1>${status === 404 ? html`<${Empty}>It is not there any more. Its run may be over. <a href="#/incidents">All incidents</a><//>` : html`<p class="empty">${error || "Asking the cluster."}</p>`}${own.length > 0 && html`<${IncidentTable} caption="Its incidents" rows=${own} />`}`;
  const last = e.rows.at(-1), at = stamps(e.rows), now = own.find(open), names = e.candidates || [];
  const others = own.length ? (s.incidents || []).filter(i => i.swarm === e.swarm && i.group !== Number(group) && near(i, own[0])) : [];
  const odd = e.rows.filter(r => r.decision > 0).reverse();
  return html`<h1>${e.entity}</h1><p><${State} of=${now ? "error" : "ok"} text=${now ? "in an incident" : "as usual"} /> ${now ? html`since <${At} of=${now.begin} />: ${words(now.feature || "")} ${why(now)}` : last && html`at <${At} of=${last.timestamp} />`}</p>
    <${Facts} of=${[["Swarm", html`<${Link} to=${["swarms", e.swarm]}>${e.title}<//>`], ["Group", num(e.group)], ["Rows shown", num(e.rows.length)], ["Last score", last && percent(last.score)]]} />
    ${error && html`<p class="warn">${error}</p>`}
    <section aria-labelledby="values"><h2 id="values">Values with the expected band</h2>${e.rows.length ? html`<div class="charts wide">${e.features.map((f, k) => html`<${Band} key=${f} title=${words(f)} at=${at} rows=${e.rows} k=${k} />`)}</div>` : html`<${Empty}>No row has been decided yet.<//>`}</section>
    <section aria-labelledby="incidents"><h2 id="incidents">Incidents</h2><${IncidentTable} caption="Its incidents" hide rows=${own} empty="None in the last hours." /></section>
    ${own.length > 0 && html`<section aria-labelledby="else"><h2 id="else">What else moved at that time</h2><${IncidentTable} caption="Other entities" hide rows=${others} empty="No other entity of this swarm." />
      ${e.features.length > 1 && html`<p>Other features outside of their band: ${outside(e, own[0]).map(([f, n]) => `${words(f)} (${percent(n)} of rows)`).join(", ") || "none"}.</p>`}</section>`}
    ${e.rows.length > 0 && html`<section aria-labelledby="votes"><h2 id="votes">Votes of its agents</h2><div class="charts wide"><${Chart} title="Weight of votes" stacked at=${at[0]} text=${at[1] ? undefined : num} series=${names.map((n, k) => ({ label: n, values: e.rows.map(r => r.counts?.[k] ?? null) }))} />
      <${Chart} title="Score" at=${at[0]} text=${at[1] ? undefined : num} range=${[0, 1]} format=${percent} series=${[{ label: "score", values: e.rows.map(r => r.score) }]} /></div>
      <${Table} caption="Rows that are not normal, the newest first" rows=${odd.slice(0, 60)} empty="All rows shown are normal." columns=${[
        { name: "Time", value: r => html`<a href=${link("swarms", e.swarm, "shards", String(e.shard), "decisions", String(r.answer), "group", String(e.group))}>${r.timestamp}</a>` }, { name: "Decision", value: r => names[r.decision] ?? r.decision },
        { name: "Score", number: true, value: r => percent(r.score) }, { name: "Feature", value: r => (r.feature >= 0 ? words(e.features[r.feature]) : "–") }, { name: "Why", value: r => [r.side, kinds[r.kind]].filter(Boolean).join("; ") || "–" },
        { name: "Value", number: true, value: r => num(r.values[Math.max(0, r.feature)]) }, { name: "Expected", number: true, value: r => num(r.expected[Math.max(0, r.feature)]) } ]} /></section>`}`;
}

// near reports whether two incidents overlap in the time of the data, with five minutes of room.
function near(a, b) {
  const [x, y, u, v] = [a.begin, a.last, b.begin, b.last].map(t => Date.parse(t)), room = 3e5;
  return x <= v + room && u <= y + room;
}

// outside are the features with values outside of their band during an incident, with the share of its rows.
function outside(e, in_) {
  const rows = e.rows.filter(r => r.timestamp >= in_.begin && r.timestamp <= in_.last);
  return e.features.map((f, k) => [f, rows.filter(r => r.values[k] !== null && (r.values[k] < r.low[k] || r.values[k] > r.high[k])).length / Math.max(1, rows.length)]).filter(([f, n]) => f !== in_.feature && n > 0.2);
}

const Band = ({ title, at, rows, k }) => html`<${Chart} title=${title} at=${at[0]} text=${at[1] ? undefined : num} free band series=${[
  { label: "value", values: rows.map(r => r.values[k]) }, { label: "expected", values: rows.map(r => r.expected[k]) }, { label: "low", quiet: true, values: rows.map(r => r.low[k]) }, { label: "high", quiet: true, values: rows.map(r => r.high[k]) },
  { label: "incident", values: rows.map(r => (r.decision > 0 ? r.values[k] : null)), points: true } ]} />`;
