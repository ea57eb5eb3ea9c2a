// Swarms, and one swarm with its shards and votes. A decision is in travel.js.
import { html, useState, useEffect, int, num, rate, percent, ago, link, Time, State, Table, Link, Empty, Cmd, Facts, Why, Bar, JSONText, sum } from "../lib.js";
import { useJSON, useTail, track } from "../data.js";
import { HeatMap } from "../lazy.js";
import { Chart, of } from "../chart.js";
import { SwarmActions } from "../actions.js";
import { ended } from "./overview.js";

const lag = x => Math.max(0, (x.entries || 0) - (x.answered || 0));
const speed = w => sum(w.shards, x => x.entries_per_second);

export function Swarms({ state: s }) {
  return html`<h1>Swarms</h1><${Table} caption="All swarms" filter="swarms" rows=${s.swarms || []}
    empty=${html`No swarm yet. Watch a file: <${Cmd}>exoswarm run -f swarm.yaml --input FILE --output FILE<//>, or make one that lasts: <${Cmd}>exoswarm swarm create -f swarm.yaml<//>.`} columns=${[
      { name: "Swarm", value: w => html`<${Link} to=${["swarms", w.id]}>${w.title || w.name}<//>${w.id !== w.name ? html` <span class="dim">${w.id}</span>` : null}` }, { name: "State", value: w => html`<${State} of=${w.state} />` },
      { name: "Cell", value: w => w.cell }, { name: "Neural agents", number: true, value: w => num(w.agents) }, { name: "Groups", number: true, value: w => num(w.groups) },
      { name: "Shards served", number: true, value: w => `${(w.shards || []).filter(x => x.state === "served").length} of ${(w.shards || []).length}` },
      { name: "Lag", number: true, value: w => num(sum(w.shards, lag)) }, { name: "Entries", number: true, value: w => rate(speed(w)) },
      { name: "Owner", value: w => (w.owner ? html`<${Link} to=${["jobs", w.owner]}>${w.owner}<//>` : "lasts") }, { name: "Created", value: w => html`<${Time} at=${w.created} />` },
    ]} />`;
}

// Strip shows the shards of a swarm as cells in order; the letter and the pattern tell the state.
const letters = { served: "S", replaying: "R", waiting: "W", ending: "E" };
function Strip({ swarm, shard, choose }) {
  const list = swarm.shards || [], most = 512;
  const move = e => {
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -list.length, End: list.length }[e.key];
    if (!step) return;
    e.preventDefault();
    const next = Math.max(0, Math.min(list.length - 1, shard + step));
    choose(next);
    e.currentTarget.children[next]?.focus();
  };
  return html`<div class="strip" role="group" aria-label="Shards, move with the arrow keys" onKeyDown=${move}>${list.slice(0, most).map(x => html`
    <button type="button" class=${"shard " + x.state} aria-pressed=${x.shard === shard} tabindex=${x.shard === shard ? 0 : -1} onClick=${() => choose(x.shard)}
      title=${`shard ${x.shard}: ${x.state}${x.holder ? ` by ${x.holder}` : ""}, lag ${lag(x)}`} aria-label=${`shard ${x.shard}, ${x.state}, ${x.holder || "no agent"}, lag ${lag(x)}`}>${letters[x.state] || "?"}</button>`)}</div>
    <p class="dim">S served, R replaying, W waiting for an agent.${list.length > most ? ` The first ${most} shards of ${list.length}.` : ""}</p>`;
}

function Shards({ swarm }) {
  return html`<${Table} caption="Shards with their holders" filter="shards" rows=${swarm.shards || []} empty="The swarm has no shard yet." columns=${[
    { name: "Shard", value: x => x.shard }, { name: "State", value: x => html`<${State} of=${x.state} /> ${x.leaderless ? html`<${State} of="error" text=${`log ${x.leaderless} has no leader`} />` : null}` }, { name: "Groups", value: x => `${num(x.first_group)} to ${num(x.end_group - 1)}` },
    { name: "Holder", value: x => (x.holder ? html`<${Link} to=${["agents", x.holder]}>${x.holder}<//>${x.devices?.length ? ` on ${x.devices.join(", ")}` : ""}` : x.lost_holder ? html`lost: ${x.lost_holder}, ${ago(x.lost_since)}` : "–") },
    { name: "Entries", number: true, value: x => (x.entries ? html`<a href=${link("swarms", swarm.id, "shards", String(x.shard), "at", String(x.entries))} title="the state of the agents after this entry">${num(x.entries)}</a>` : 0) }, { name: "Lag", number: true, value: x => num(lag(x)) }, { name: "Rate", number: true, value: x => rate(x.entries_per_second) },
    { name: "Replay", value: x => (x.recovering ? html`<${Bar} share=${x.recovering.entry / Math.max(1, x.recovering.of)} label=${`replay of shard ${x.shard}`} /> ${num(x.recovering.entry)} of ${num(x.recovering.of)} (${rate(x.recovering.entries_per_second)})` : "–") },
  ]} />`;
}

// votes returns the weights of the candidates in an answer, by name, or null when it is no vote. The
// answer to a table of observations has the sums of its first rows.
export function votes(d, names) {
  const out = {}, b = d.body || {};
  const add = (name, n) => { out[name] = (out[name] || 0) + Number(n); };
  const label = i => names?.[i] ?? `candidate ${i}`;
  for (const r of d.rows || []) {
    if (r.counts?.length) r.counts.forEach((n, i) => add(label(i), n));
    else if (r.decision >= 0) add(label(r.decision), 1);
  }
  if (!d.rows) (b.counts ?? b.decided ?? b.tally ?? []).forEach((n, i) => add(label(i), n));
  return Object.keys(out).length ? out : null;
}

// shape is the entropy in bits of votes, and the margin between the first two candidates, both of 0 to 1 of the most that is possible.
export function shape(counts) {
  const list = Object.values(counts).sort((a, b) => b - a), total = list.reduce((a, b) => a + b, 0);
  if (!total) return { entropy: null, margin: null };
  const h = -list.filter(n => n > 0).reduce((n, c) => n + (c / total) * Math.log2(c / total), 0);
  return { entropy: list.length > 1 ? h / Math.log2(list.length) : 0, margin: (list[0] - (list[1] || 0)) / total };
}

function Votes({ swarm, list, shard }) {
  const names = swarm.candidates, rows = [...list].reverse().map(d => [d, votes(d, names)]).filter(r => r[1]); // oldest first
  if (!rows.length) return html`<${Empty}>No votes in the newest answers of shard ${shard}. Ask for one: <${Cmd}>exoswarm swarm vote ${swarm.name}<//>.<//>`;
  const keys = [...new Set(rows.flatMap(r => Object.keys(r[1])))].slice(0, 8), at = rows.map(([d]) => Date.parse(d.at) / 1000), shapes = rows.map(r => shape(r[1]));
  for (let i = 1; i < at.length; i++) if (at[i] <= at[i - 1]) at[i] = at[i - 1] + 0.001; // several answers in a moment
  return html`<div class="charts"><${Chart} title="Votes by candidate" stacked at=${at} series=${keys.map(k => ({ label: k, values: rows.map(r => r[1][k] || 0) }))} />
    <${Chart} title="Entropy and margin of votes" at=${at} range=${[0, 1]} format=${percent} series=${[{ label: "entropy", values: shapes.map(x => x.entropy) }, { label: "margin", values: shapes.map(x => x.margin) }]} /></div>`;
}

// outcome is what an answer decided, in a few words.
export function outcome(d, names) {
  const label = i => (i >= 0 ? names?.[i] ?? `candidate ${i}` : "none");
  if (d.rows?.length === 1) return label(d.rows[0].decision);
  if (d.rows) {
    const by = {};
    for (const r of d.rows) by[label(r.decision)] = (by[label(r.decision)] || 0) + 1;
    return Object.entries(by).sort((a, b) => b[1] - a[1]).map(([k, n]) => `${n} ${k}`).join(", ") + (d.count > d.rows.length ? ` in the first ${d.rows.length} of ${d.count} rows` : "");
  }
  if (typeof d.body?.winner === "number") return label(d.body.winner);
  const v = votes(d, names);
  return v ? Object.entries(v).sort((a, b) => b[1] - a[1])[0][0] : d.body?.message || "–";
}

// Entities finds the groups of entities by their keys. A search waits until the typing pauses.
function Entities({ swarm }) {
  const [word, setWord] = useState(""), [asked, ask] = useState("");
  useEffect(() => {
    const timer = setTimeout(() => ask(word.trim()), 250);
    return () => clearTimeout(timer);
  }, [word]);
  const { data, error } = useJSON(`swarms/${encodeURIComponent(swarm.id)}/entities?key=${encodeURIComponent(asked)}`, 10);
  const last = k => (swarm.shards || []).find(x => x.shard === k)?.answered || 0;
  return html`<p class="filter"><label>Find an entity by key <input type="search" name="key" value=${word} onInput=${e => setWord(e.target.value)} /></label>
      <span role="status"> ${data && (data.matches || !data.count ? `${int(data.matches)} of ${int(data.count)}` : `None of ${int(data.count)} has “${asked}”. The nearest:`)}</span></p>
    ${error && html`<p class="warn">${error}</p>`}
    ${data && html`<${Table} caption="Entities" hide rows=${data.entities} empty=${data.count ? "No entity has a name like that." : "No row has come yet."} columns=${[
      { name: "Entity", value: e => html`<a href=${link("swarms", swarm.id, "entities", String(e.group))}>${e.name}</a>` }, ...(data.columns.length > 1 ? data.columns.map(c => ({ name: c, value: e => e.key[c] })) : []),
      { name: "Group", number: true, value: e => e.group }, { name: "Shard", number: true, value: e => e.shard },
      { name: "State", value: e => (last(e.shard) ? html`<a href=${link("swarms", swarm.id, "shards", String(e.shard), "at", String(last(e.shard)), "group", String(e.group))}>state of ${e.name}</a>` : "–") },
    ]} />`}`;
}

// Members leads to the page of an agent by its number. The newest answers name some agents.
function Members({ swarm, list }) {
  const at = n => link("swarms", swarm.id, "agents", String(n)), newest = [...new Set(list.flatMap(d => (d.rows || []).map(r => r.agent)))].filter(n => n !== undefined).slice(0, 12);
  const send = e => {
    e.preventDefault();
    location.hash = at(Number(new FormData(e.target).get("agent")));
  };
  return html`<form class="filter" role="search" onSubmit=${send}><label>Find an agent by number <input type="number" name="agent" min="0" max=${swarm.agents - 1} required /></label> <button type="submit">Show</button></form>
    ${newest.length > 0 && html`<p class="filter">In the newest answers: ${newest.map(n => html`<a href=${at(n)}>${n}</a> `)}</p>`}`;
}

// Gone tells of a swarm that ended with its run, and leads to what came after it.
function Gone({ name, state: s }) {
  const run = (s.watches || []).find(w => w.swarm === name), next = (s.watches || []).find(w => run && w.name === run.name && w.swarm !== name && w.state !== "done");
  return html`<${Empty}>${run ? html`This run is over: ${ended(run)}. <${Link} to=${["jobs", run.job]}>Its job, with its result and its report<//>.` : "No such swarm. It may have ended with its job."}
    ${next && html` The next run of ${next.name}: <${Link} to=${["swarms", next.swarm]}>${next.sources?.join(", ") || next.swarm}<//>.`} <${Link} to=${["swarms"]}>All swarms<//><//>`;
}

export function Swarm({ name, state: s }) {
  const w = (s.swarms || []).find(x => x.id === name) || (s.swarms || []).find(x => x.name === name), [shard, choose] = useState(0);
  const path = `swarms/${encodeURIComponent(w?.id ?? name)}`, full = useJSON(w ? path : null, 30), why = useJSON(w && w.state !== "served" ? path + "/explain" : null, 5);
  const tail = useTail(w && w.shards?.length ? path : null, shard, 120);
  const id = w?.id, t = track("swarm " + id, f => {
    const x = (f.swarms || []).find(y => y.id === id);
    return x ? { entries: speed(x), lag: sum(x.shards, lag) } : {};
  });
  if (!w) return html`<h1>Swarm ${name}</h1><${Gone} name=${name} state=${s} />`;
  const [every, setEvery] = useState(true), names = w?.candidates, list = tail.data || [], shown = every ? list : list.filter(d => !/^(\d+ )?normal$/.test(outcome(d, names)));
  return html`<h1>Swarm ${w.title || w.name}</h1><p><${State} of=${w.state} /> ${w.id !== w.name && html`<span class="dim">${w.id}</span>`} ${w.error} ${!w.owner && html`<${SwarmActions} id=${w.id} />`}</p>
    ${w.state !== "served" && html`<section aria-labelledby="why"><h2 id="why">Why it is ${w.state}</h2><${Why} reason=${why.data} error=${why.error} /></section>`}
    <${Facts} of=${[["Cell", w.cell], ["Neural agents", num(w.agents)], ["Groups", num(w.groups)], ["Addressed by", w.addressed], ["Owner", w.owner ? html`<${Link} to=${["jobs", w.owner]}>job ${w.owner}<//>` : "lasts until it is deleted"], ["Created", html`<${Time} at=${w.created} />`], ["Entries", rate(speed(w))], ["Lag", `${num(sum(w.shards, lag))} entries`]]} />
    <section aria-labelledby="shards"><h2 id="shards">Shards</h2><${Strip} swarm=${w} shard=${shard} choose=${choose} /><${Shards} swarm=${w} /></section>
    ${full.data?.spec?.key?.length > 0 && html`<section aria-labelledby="entities"><h2 id="entities">Entities</h2><${Entities} key=${w.id} swarm=${w} /></section>`}
    ${w.addressed === "agent" && html`<section aria-labelledby="members"><h2 id="members">Agents</h2><${Members} swarm=${w} list=${list} /></section>`}
    <section aria-labelledby="heat"><h2 id="heat">Heat map</h2><${HeatMap} key=${w.id} swarm=${w} /></section>
    <section aria-labelledby="rates"><h2 id="rates">The last minutes</h2><div class="charts">
      <${Chart} title="Answered entries" at=${t.at} format=${rate} series=${of(t, { entries: "entries" })} />
      <${Chart} title="Lag: entries without an answer" at=${t.at} series=${of(t, { lag: "lag" })} /></div></section>
    <section aria-labelledby="votes"><h2 id="votes">Votes of shard ${shard}</h2>${tail.error && html`<p class="warn">${tail.error}</p>`}${tail.data && html`<${Votes} swarm=${w} list=${list} shard=${shard} />`}</section>
    <section aria-labelledby="tail"><h2 id="tail">Newest answers of shard ${shard}</h2>
      <p class="filter"><label><input type="checkbox" checked=${!every} onChange=${e => setEvery(!e.target.checked)} /> only answers that are not all normal</label></p>
      ${tail.data && html`<${Table} caption="Newest answers" hide filter="answers" rows=${shown} empty="The shard has answered nothing yet." columns=${[
        { name: "Answer", value: d => html`<a href=${link("swarms", w.id, "shards", String(shard), "decisions", String(d.seq))}>${d.seq}</a>` }, { name: "Entry", number: true, value: d => d.ref },
        { name: "Kind", value: d => d.kind }, { name: "Time", value: d => html`<${Time} at=${d.at} />` }, { name: "Outcome", value: d => outcome(d, names) },
      ]} />`}</section>
    ${full.data?.spec && html`<section aria-labelledby="spec"><h2 id="spec">Specification</h2><details><summary>Show</summary><${JSONText} of=${full.data.spec} label="Specification" /></details></section>`}`;
}
