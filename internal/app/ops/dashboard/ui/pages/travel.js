// One decision with its row and what its group decided before, and the state of a shard after an entry.
import { html, useState, useEffect, num, int, bytes, percent, seconds, link, Time, Table, Link, Empty, Facts, Bar, JSONText } from "../lib.js";
import { get, useJSON } from "../data.js";
import { votes, shape, outcome } from "./swarms.js";

const decisionAt = (name, shard, seq, group) => link("swarms", name, "shards", String(shard), "decisions", String(seq), ...(group === undefined ? [] : ["group", String(group)]));
const momentAt = (name, shard, entry, and, group) =>
  link("swarms", name, "shards", String(shard), "at", String(entry), ...(and ? ["and", String(and)] : []), ...(group === undefined || group === "" ? [] : ["group", String(group)]));

// exact is a value of an agent. Whole numbers have all digits.
function exact(v) {
  if (v === null || v === undefined) return "–";
  return Number.isInteger(v) ? String(v) : String(Number(v.toPrecision(6)));
}
// score is the text of the score of a row, which some rows of agents have not.
const score = r => (r.score === null ? "–" : r.score.toFixed(3));
const row = values => (values.length > 6 ? `${values.slice(0, 6).map(exact).join(", ")}, … (${values.length})` : values.map(exact).join(", "));

// useMoment asks for a state, again and again while a replay is under way. It ends the question, and
// with it the replay, when the page is left.
function useMoment(path) {
  const [got, set] = useState({ data: null, error: "" });
  useEffect(() => {
    set({ data: null, error: "" });
    if (!path) return;
    const stop = new AbortController();
    (async () => {
      try {
        for (let data; !data || data.progress; ) {
          data = await get(path, { signal: stop.signal });
          set({ data, error: "" });
          if (data.progress) await new Promise(done => setTimeout(done, 500));
        }
      } catch (e) {
        if (!stop.signal.aborted) set({ data: null, error: e.message });
      }
    })();
    return () => stop.abort();
  }, [path]);
  return got;
}

// Waiting shows how far a replay is, or why there is no state.
function Waiting({ data, error }) {
  if (error) return html`<p class="empty" role="alert">${error}</p>`;
  if (!data) return html`<p class="empty">Asking for the state.</p>`;
  const p = data.progress;
  return html`<p class="empty"><${Bar} share=${p.entry / Math.max(1, p.of)} label="replay" /> Replaying the log${data.moments || p.moment < 2 ? "" : " to the second moment"}: entry ${int(p.entry)} of ${int(p.of)}.</p>`;
}

// Cells draws the values of a variable as a strip: a column for each agent, a row for each number. The
// table below it has the same values.
const LEVELS = 8;
function Cells({ title, rows }) {
  const high = Math.min(16, rows[0]?.length || 0), all = rows.flatMap(r => r.slice(0, high)).filter(v => v !== null);
  if (!high || rows.length < 2 || !all.length) return null;
  const least = all.reduce((a, b) => Math.min(a, b)), most = all.reduce((a, b) => Math.max(a, b)), paths = new Array(LEVELS).fill("");
  rows.forEach((r, x) => r.slice(0, high).forEach((v, y) => {
    if (v !== null) paths[most > least ? Math.min(LEVELS - 1, Math.floor(((v - least) / (most - least)) * LEVELS)) : 0] += `M${x} ${y}h1v1h-1z`;
  }));
  return html`<figure class="chart"><figcaption>${title} <span class="dim">${exact(least)} to ${exact(most)}</span></figcaption>
    <svg class="cells" viewBox=${`0 0 ${rows.length} ${high}`} preserveAspectRatio="none" height=${Math.max(18, 8 * high)} role="img" aria-label=${`${title} of ${rows.length} agents, from ${exact(least)} to ${exact(most)}`}>
      ${paths.map((d, i) => d && html`<path d=${d} fill="currentColor" fill-opacity=${(i + 1) / LEVELS} />`)}</svg></figure>`;
}

// Group shows the variables of a group and of its agents, at one moment or at two.
function Group({ view, more }) {
  const g = view.group, two = view.moments.length > 1, agents = g.variables.filter(v => v.per === "agent"), of = g.variables.filter(v => v.per === "group");
  const changed = agents.reduce((n, v) => n + (v.changed?.length || 0), 0);
  const cell = (v, i) => (two && v.changed?.includes(i) ? html`<span class="changed">${row(v.at[i])} → ${row(v.and[i])}</span>` : row(v.at[i]));
  return html`<${Facts} of=${of.map(v => [v.name, cell(v, 0)])} />
    ${two && html`<p>${changed ? `${int(changed)} values of ${g.agents} agents differ: they are shown as before → after.` : `The ${g.agents} agents shown are the same at both moments.`}</p>`}
    <div class="charts">${agents.map(v => html`<${Cells} title=${v.name} rows=${v.at} />${two && v.changed?.length ? html`<${Cells} title=${`${v.name} at the second moment`} rows=${v.and} />` : null}`)}</div>
    <${Table} caption=${`Agents ${int(g.first_agent)} to ${int(g.first_agent + g.agents - 1)} of group ${g.group}`} filter="agents" rows=${Array.from({ length: g.agents }, (_, i) => i)} columns=${[
      { name: "Agent", value: i => int(g.first_agent + i) }, ...agents.map(v => ({ name: v.width > v.at[0]?.length ? `${v.name} (${v.at[0].length} of ${v.width})` : v.name, value: i => cell(v, i) })) ]} />
    ${more && html`<p class="filter">${more}</p>`}`;
}

// Summary shows each variable over all agents or groups of the shard.
function Summary({ moments }) {
  const [one, two] = moments, number = (name, of) => ({ name, number: true, value: r => exact(of(r)) });
  return html`<${Table} caption=${two ? `Variables after entry ${one.entry.seq} and after entry ${two.entry.seq}` : "Variables over the whole shard"} rows=${one.summary.map((v, i) => [v, two?.summary[i]])} columns=${[
    { name: "Variable", value: r => r[0].name }, { name: "Of", value: r => `each ${r[0].per}` }, { name: "Numbers", number: true, value: r => r[0].width },
    number("Mean", r => r[0].mean), number("Min", r => r[0].min), number("Max", r => r[0].max),
    ...(two ? [number("Mean then", r => r[1].mean), number("Min then", r => r[1].min), number("Max then", r => r[1].max)] : []) ]} />`;
}

const starts = { log: () => "the first entry of the log", snapshot: s => `snapshot ${s.name}, entry ${s.entry}`, moment: s => `a moment kept before, entry ${s.entry}` };
const leaderOf = of => (!of ? "" : of.leader == null ? "none" : `agent ${of.leader} since round ${int(of.term)}`);
function About({ name, shard, moment: m }) {
  const e = m.entry;
  return html`<${Facts} of=${[["Entry", int(e.seq)], ["Kind", e.kind || "trimmed"], ["Time", e.at && html`<${Time} at=${e.at} />`], ["Rows", e.count], ["Size", e.bytes ? bytes(e.bytes) : ""],
    ["Answer", e.answer ? html`<a href=${decisionAt(name, shard, e.seq)}>${e.answer}</a>` : "none yet"], ["Round", m.round || ""],
    ["Outcome", m.outcome ? `${m.outcome.decision} in round ${int(m.outcome.round)}` : ""], ["Leader", leaderOf(m.outcome)],
    ["Replayed", `${int(m.replayed)} entries in ${seconds(m.seconds)}`], ["From", starts[m.start.kind]?.(m.start)]]} />`;
}

// Choose goes to another moment or group.
function Choose({ name, shard, entry, and, group }) {
  const send = e => {
    e.preventDefault();
    const f = new FormData(e.target), [at, other, of] = ["at", "and", "group"].map(k => String(f.get(k) || "").trim());
    location.hash = momentAt(name, shard, at || entry, other, of);
  };
  const field = (label, key, value, required) => html`<label>${label} <input type="number" name=${key} min=${key === "group" ? 0 : 1} value=${value ?? ""} required=${required} /></label>`;
  return html`<form class="filter" onSubmit=${send} aria-label="Moment">${field("Entry", "at", entry, true)} ${field("Compare with entry", "and", and)} ${field("Group", "group", group)} <button type="submit">Show</button></form>`;
}

// Moment is the state of a shard after an entry of its log, and what differs after another one.
export function Moment({ name, shard, entry, and, group }) {
  const [first, setFirst] = useState(0), many = 50;
  const path = `swarms/${encodeURIComponent(name)}/shards/${encodeURIComponent(shard)}/at/${encodeURIComponent(entry)}?agents=${many}&first=${first}${and ? `&and=${encodeURIComponent(and)}` : ""}${group ? `&group=${encodeURIComponent(group)}` : ""}`;
  const got = useMoment(path), v = got.data, g = v?.group;
  const at = (n, text) => html`<a href=${momentAt(name, shard, n, and, group)}>${text}</a>`, n = Number(entry);
  const of = (k, text) => html`<a href=${momentAt(name, shard, entry, and, k)}>${text}</a>`;
  const agents = (k, text) => html`<button type="button" onClick=${() => setFirst(k)}>${text}</button>`;
  return html`<h1>State after entry ${entry}${and ? ` and after entry ${and}` : ""}</h1>
    <p><${Link} to=${["swarms", name]}>Swarm ${v?.name ?? name}<//>, shard ${shard}${v ? `, whose log has the entries ${int(v.first_entry)} to ${int(v.last_entry)}` : ""}</p>
    <p class="filter">${n > (v?.first_entry ?? 1) && at(n - 1, `Before: ${n - 1}`)} ${v && n < v.last_entry && at(n + 1, `After: ${n + 1}`)}
      ${v && n > v.first_entry && html`<a href=${momentAt(name, shard, n - 1, n, group)}>What entry ${n} changed</a>`}</p>
    <${Choose} key=${path} name=${name} shard=${shard} entry=${entry} and=${and} group=${group ?? g?.group} />
    ${!v?.moments ? html`<${Waiting} ...${got} />` : html`
      ${v.moments.map((m, i) => html`<section aria-labelledby=${`entry${i}`}><h2 id=${`entry${i}`}>${i ? "The second moment" : "The moment"}</h2><${About} name=${name} shard=${shard} moment=${m} /></section>`)}
      ${v.same !== undefined && html`<p><b>${v.same ? "All agents of the shard have the same bits at both moments." : "The shard differs between the moments."}</b></p>`}
      <section aria-labelledby="all"><h2 id="all">All groups</h2><${Summary} moments=${v.moments} /></section>
      <section aria-labelledby="group"><h2 id="group">Group ${g.group}</h2>
        <p class="filter">${g.group > v.first_group && of(g.group - 1, `Group ${g.group - 1}`)} ${g.group < v.end_group - 1 && of(g.group + 1, `Group ${g.group + 1}`)} ${(v.moments[0].entry.groups || []).slice(0, 12).filter(k => k !== g.group).map(k => of(k, `Group ${k}, in the entry`))}</p>
        <${Group} view=${v} more=${html`${first > 0 && agents(Math.max(0, first - many), "Earlier agents")} ${first + g.agents < v.agents_per_group && agents(first + many, "Further agents")}`} /></section>`}`;
}

// Row is what the log has of an observation, and where it came from.
function Row({ name, shard, entry, group }) {
  const { data: e, error } = useJSON(`swarms/${encodeURIComponent(name)}/shards/${encodeURIComponent(shard)}/entries/${entry}?group=${group ?? -1}`, 0);
  if (!e) return html`<p class="empty">${error || "Asking the cluster."}</p>`;
  const r = e.rows || [], from = r.find(x => x.series);
  return html`<${Facts} of=${[["Entry", html`<a href=${momentAt(name, shard, e.seq, "", group)}>${int(e.seq)}</a>`], ["Kind", e.kind], ["Written", html`<${Time} at=${e.at} />`], ["Batch of its source", e.ref || ""], ["Job", e.job ? html`<${Link} to=${["jobs", e.job]}>${e.job}<//>` : "none: a client wrote it"],
      ["Series", from?.series ?? ""], ["Source", from?.source ?? ""]]} />
    ${r.length > 0 && html`<${Table} caption=${`${group === undefined ? "The first rows" : `The rows of group ${group}`} as the agents got them`} rows=${r} columns=${[
      { name: r[0].agent !== undefined ? "Agent" : "Group", value: x => x.agent ?? x.group }, ...(r[0].row ? [{ name: "Row of the source", number: true, value: x => int(x.row) }] : []), ...(r[0].timestamp ? [{ name: e.timestamp || "timestamp", value: x => x.timestamp }] : []),
      ...(e.columns || []).map((c, i) => ({ name: c, number: true, value: x => exact(x.values[i]) })), ...(r[0].read ? [{ name: "Read", value: x => html`<${Time} at=${x.read} />` }] : []) ]} />`}`;
}

// Chain is what a group decided before an answer, newest first.
function Chain({ name, shard, seq, group, names }) {
  const [from, setFrom] = useState([Number(seq)]), { data, error } = useJSON(`swarms/${encodeURIComponent(name)}/shards/${encodeURIComponent(shard)}/groups/${group}/decisions?before=${from.at(-1)}`, 0);
  if (!data) return html`<p class="empty">${error || "Asking the cluster."}</p>`;
  return html`<${Table} caption=${`Earlier decisions of group ${group}`} hide rows=${data.decisions} empty=${data.next ? `None in the answers down to ${data.next}.` : "The log has none before this one."} columns=${[
      { name: "Answer", value: d => html`<a href=${decisionAt(name, shard, d.seq, group)}>${d.seq}</a>` }, { name: "Time", value: d => html`<${Time} at=${d.at} />` }, { name: "Row", number: true, value: d => d.rows.map(r => r.row).filter(Boolean).join(", ") || "–" },
      { name: "Values", number: true, value: d => d.rows.map(r => (r.values || []).map(num).join(", ")).join("; ") || "–" }, { name: "Outcome", value: d => outcome(d, names) }, { name: "Votes", number: true, value: d => d.rows.map(r => (r.counts || []).join(", ")).join("; ") || "–" }, { name: "Score", number: true, value: d => d.rows.map(score).join(", ") } ]} />
    <p class="filter">${from.length > 1 && html`<button type="button" onClick=${() => setFrom(from.slice(0, -1))}>Later</button>`} ${data.next > 1 && html`<button type="button" onClick=${() => setFrom([...from, data.next])}>Earlier</button>`}</p>`;
}

// State replays the log to an entry when the button is pressed: it costs time of the dashboard's machine.
function AgentState({ name, shard, entry, group }) {
  const [asked, ask] = useState(false);
  const got = useMoment(asked ? `swarms/${encodeURIComponent(name)}/shards/${encodeURIComponent(shard)}/at/${entry}?agents=50${group === undefined ? "" : `&group=${group}`}` : null), v = got.data;
  if (!asked) return html`<p><button type="button" onClick=${() => ask(true)}>Replay the log to entry ${entry}</button></p>`;
  if (!v?.moments) return html`<${Waiting} ...${got} />`;
  return html`<p class="filter"><a href=${momentAt(name, shard, entry, "", v.group.group)}>All of this moment</a> ${entry > v.first_entry && html`<a href=${momentAt(name, shard, entry - 1, entry, v.group.group)}>What entry ${entry} changed</a>`}</p><${Group} view=${v} />`;
}

export function Decision({ name, shard, seq, group }) {
  const path = `swarms/${encodeURIComponent(name)}`, n = Number(seq);
  const { data, error } = useJSON(`${path}/decisions?shard=${encodeURIComponent(shard)}&before=${n + 2}&limit=3`, 30), full = useJSON(path, 60);
  // The row of a group that the address names, which may be behind the first rows of the answer.
  const mine = useJSON(group === undefined ? null : `${path}/shards/${encodeURIComponent(shard)}/groups/${encodeURIComponent(group)}/decisions?before=${n + 1}&limit=1`, 0);
  const i = (data || []).findIndex(d => d.seq === n), d = data?.[i], names = full.data?.candidates, own = mine.data?.decisions.find(x => x.seq === n), of = own ?? d, counts = d && votes(of, names);
  const title = html`<h1>Decision ${seq}</h1><p><${Link} to=${["swarms", name]}>Swarm ${full.data?.name ?? name}<//>, shard ${shard}</p>`;
  if (!data) return html`${title}<p class="empty">${error || "Asking the cluster."}</p>`;
  if (!d) return html`${title}<${Empty}>The shard has no answer ${seq}: it has not come yet, or it was trimmed. ${data.length > 0 && html`The nearest is <a href=${decisionAt(name, shard, data[0].seq)}>${data[0].seq}</a>.`}<//>`;
  const total = counts ? Object.values(counts).reduce((a, b) => a + b, 0) : 0, x = counts && shape(counts), chosen = group ?? d.rows?.[0]?.group, asked = chosen === undefined ? undefined : Number(chosen), r = of.rows?.length === 1 ? of.rows[0] : null;
  return html`${title}
    <p class="filter">${i < data.length - 1 && html`<a href=${decisionAt(name, shard, data[i + 1].seq)}>Earlier: ${data[i + 1].seq}</a>`} ${i > 0 && html`<a href=${decisionAt(name, shard, data[i - 1].seq)}>Later: ${data[i - 1].seq}</a>`}</p>
    <${Facts} of=${[["Group", own ? asked : ""], ["Outcome", outcome(of, names)], ["Kind", d.kind], ["Time", html`<${Time} at=${d.at} />`], ["Answers entry", html`<a href=${momentAt(name, shard, d.ref, "", asked)}>${int(d.ref)}</a>`], ["Round", d.body?.round ?? r?.round], ["Leader", d.body?.leader ? `agent ${d.body.leader.agent}, priority ${d.body.leader.priority}` : r?.counts ? `agent ${r.leader ?? 0}` : ""], ["Score", r && r.score !== null ? score(r) : ""],
      ["Quorum", d.body?.quorum_met === undefined ? "" : d.body.quorum_met ? "met" : "not met"], ["Abstentions", d.body?.abstentions], ["Rows", d.count], ["Size", bytes(d.bytes)], ["Entropy", x && percent(x.entropy)], ["Margin", x && percent(x.margin)]]} />
    ${counts && html`<section aria-labelledby="counts"><h2 id="counts">${own ? `Votes of group ${asked}` : "Votes"}</h2><${Table} caption="Votes by candidate" rows=${Object.entries(counts).sort((a, b) => b[1] - a[1])} columns=${[
      { name: "Candidate", value: r => r[0] }, { name: "Votes", number: true, value: r => num(r[1]) }, { name: "Share", value: r => html`<${Bar} share=${r[1] / total} label=${`share of ${r[0]}`} /> ${percent(r[1] / total)}` }]} /></section>`}
    ${d.rows && html`<section aria-labelledby="rows"><h2 id="rows">Rows</h2><${Table} caption=${d.count > d.rows.length ? `The first ${d.rows.length} of ${d.count} rows` : "Rows"} hide filter="rows" rows=${d.rows} columns=${[
      { name: d.rows[0]?.agent !== undefined ? "Agent" : "Group", value: r => html`<a href=${decisionAt(name, shard, seq, r.group)} aria-current=${r.group === asked ? "true" : undefined}>${r.agent ?? r.group}</a>` }, { name: "Row", number: true, value: r => r.row ?? "–" }, { name: "Time of the row", value: r => r.timestamp || "–" }, { name: "Values", number: true, value: r => (r.values || []).map(num).join(", ") }, { name: "Score", number: true, value: score },
      { name: "Outcome", value: r => (r.decision >= 0 ? names?.[r.decision] ?? `candidate ${r.decision}` : "none") }, { name: "Votes", number: true, value: r => (r.counts || []).join(", ") }, { name: "Leader", number: true, value: r => r.leader ?? (r.counts ? 0 : "–") }, { name: "Round", number: true, value: r => r.round ?? "–" } ]} /></section>`}
    <section aria-labelledby="row"><h2 id="row">${asked === undefined ? "Its entry" : `The row of group ${asked}`}</h2><${Row} name=${name} shard=${shard} entry=${d.ref} group=${asked} /></section>
    ${asked !== undefined && html`<section aria-labelledby="before"><h2 id="before">What group ${asked} decided before</h2><${Chain} key=${`${seq} ${asked}`} name=${name} shard=${shard} seq=${seq} group=${asked} names=${names} /></section>`}
    <section aria-labelledby="state"><h2 id="state">The agents at that moment</h2><${AgentState} key=${`${seq} ${asked}`} name=${name} shard=${shard} entry=${d.ref} group=${asked} /></section>
    ${d.body && html`<section aria-labelledby="body"><h2 id="body">Content</h2><${JSONText} of=${d.body} label="Content of the answer" /></section>`}`;
}

// Observed is what an agent has observed last: the score of the item that was asked for, beside what the agent observed next.
export function Observed({ name, agent }) {
  const { data: v, error } = useJSON(`swarms/${encodeURIComponent(name)}/agents/${encodeURIComponent(agent)}`, 3), title = html`<h1>Agent ${agent}</h1>`;
  if (!v) return html`${title}<p><${Link} to=${["swarms", name]}>Swarm ${name}<//></p><p class="empty">${error || "Asking the cluster."}</p>`;
  const list = v.observations.map((o, i) => ({ ...o, next: v.observations[i - 1]?.values })), items = list.some(o => o.item !== null || o.score !== null), label = i => (i >= 0 ? v.candidates?.[i] ?? `candidate ${i}` : "none");
  return html`${title}<p><${Link} to=${["swarms", v.swarm]}>Swarm ${v.title || v.name}<//></p>
    <${Facts} of=${[["Group", int(v.group)], ["Shard", v.shard], ["Observations shown", int(list.length)], ["State", list.length > 0 ? html`<a href=${momentAt(v.swarm, v.shard, list[0].entry, "", v.group)}>after entry ${list[0].entry}</a>` : ""]]} />
    ${error && html`<p class="warn">${error}</p>`}
    <section aria-labelledby="observations"><h2 id="observations">Last observations</h2>
      ${items && html`<p>The score is the probability that the agent gives the item it is asked for. What it observed then is beside the score.</p>`}
      <${Table} caption="Observations, the newest first" rows=${list} empty=${v.first ? `The answers from ${v.first} on have no observation of this agent.` : "The shard has answered nothing yet."} columns=${[
        { name: "Entry", value: o => html`<a href=${decisionAt(v.swarm, v.shard, o.answer, v.group)}>${o.entry}</a>` }, ...v.features.map((f, i) => ({ name: f, number: true, value: o => exact(o.values[i]) })),
        ...(items ? [{ name: "Item asked", number: true, value: o => o.item ?? "–" }, { name: "Score", number: true, value: score }, ...v.features.map((f, i) => ({ name: `Next ${f}`, number: true, value: o => exact(o.next?.[i]) }))] : []),
        { name: "Vote", value: o => label(o.vote) }, { name: "Decision of the group", value: o => label(o.decision) }, { name: "Answered", value: o => html`<${Time} at=${o.at} />` } ]} /></section>`;
}
