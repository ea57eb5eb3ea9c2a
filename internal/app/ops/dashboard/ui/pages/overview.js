// Overview: what was found, whether all is well, and what is watched. Numbers: the past of the cluster.
import { html, useState, num, rate, bytes, percent, seconds, sum, count, link, time, ago, Time, State, Tiles, Table, Link, Empty, Cmd } from "../lib.js";
import { useHistory, useShared } from "../data.js";
import { Chart, of } from "../chart.js";
import { IncidentTable, Strip, Find, At, entityLink, open, none } from "./incidents.js";

const pages = { nats: ["nats"], agents: ["agents"], devices: ["agents"], queues: ["queue"], swarms: ["swarms"], detectors: ["detectors"] };
const sentence = text => text[0].toUpperCase() + text.slice(1);

// Faults lists what somebody should look at; the line that explains the others comes first.
function Faults({ all }) {
  return html`<ul class="problems">${all.map(f => html`<li><${State} of=${f.level} /> <a href=${link(...(pages[f.category] || ["doctor"]))}>${sentence(f.summary)}</a> <span class="dim">since <${Time} at=${f.since} /></span>
    ${f.details?.length ? html`<ul>${f.details.slice(0, 5).map(d => html`<li>${d}</li>`)}${f.details.length > 5 && html`<li>and ${f.details.length - 5} more</li>`}</ul>` : null}${f.cure && html`<div class="dim">What to do: ${f.cure}</div>`}</li>`)}</ul>`;
}

// state of a watch in words.
export const ended = w => (w.state === "done" ? `done ${ago(w.since)}: ${num(w.decisions)} decisions, ${count(w.incidents, "incident")}` : w.why || "");

export function Watches({ all, empty }) {
  return html`<${Table} caption="Detectors and runs" hide rows=${all} empty=${empty} columns=${[
    { name: "Name", value: w => html`<${Link} to=${w.detector ? ["detectors", w.name] : ["jobs", w.job]}>${w.name}<//>${w.sources?.length && !w.detector ? html` <span class="dim">${w.sources.join(", ")}</span>` : null}` },
    { name: "State", value: w => html`<${State} of=${w.state} /> ${ended(w)}${w.state === "waiting" || w.state === "failed" ? html` <span class="dim">since <${Time} at=${w.since} /></span>` : ""}` },
    { name: "Time of the data", value: w => html`<${At} of=${w.clock} />` }, { name: "Decisions", number: true, value: w => rate(w.rate) }, { name: "Rows without a decision", number: true, value: w => num(w.pending || 0) },
    { name: "Latency, 99 %", number: true, value: w => (w.latency_p99_ms ? seconds(w.latency_p99_ms / 1000) : "–") }, { name: "Incidents", number: true, value: w => num(w.incidents) },
  ]} />`;
}

// changes are what began and ended in the cluster, the newest first.
function changes(s) {
  const all = [], add = (at, ...what) => time(at) && all.push({ at, what });
  const of = (list, f) => (list || []).forEach(f);
  of(s.agents, a => (a.lost ? add(a.lost.since, html`agent <${Link} to=${["agents", a.name]}>${a.name}<//> was lost`) : add(a.started, html`agent <${Link} to=${["agents", a.name]}>${a.name}<//> started`)));
  of(s.swarms, w => add(w.created, html`swarm <${Link} to=${["swarms", w.id]}>${w.title || w.name}<//> was created`));
  of(s.watches, w => w.state !== "running" && add(w.since, html`<${Link} to=${w.detector ? ["detectors", w.name] : ["jobs", w.job]}>${w.name}<//>: ${w.state}`));
  of(s.incidents, i => (open(i) ? add(i.began, html`incident of <a href=${entityLink(i)}>${i.entity || `group ${i.group}`}</a> began`) : add(i.ended, html`incident of <a href=${entityLink(i)}>${i.entity || `group ${i.group}`}</a> ended`)));
  return all.sort((a, b) => time(b.at) - time(a.at)).slice(0, 8);
}

const some = n => (n === 1 ? "1 detector or run" : `${num(n)} detectors and runs`);
const oldest = s => Math.min(...(s.pools || []).filter(p => p.sources?.some(x => x.waiting)).map(p => time(p.oldest)).filter(Boolean));

export function Overview({ state: s }) {
  const [range, setRange] = useState(890), t = useHistory(range), n = s.numbers || {}, { online } = useShared();
  const all = s.incidents || [], now = all.filter(open), faults = s.faults || [], agents = (s.agents || []).filter(a => a.state !== "lost"), bad = faults.some(f => f.level === "error"), since = oldest(s);
  const clocks = (s.watches || []).filter(w => w.detector && w.clock && !(Math.abs(Date.now() - Date.parse(w.clock)) < 6e5));
  return html`<h1>Overview</h1>
    ${clocks.map(w => html`<p class="clock">${w.name}: the time of its data is <b>${w.clock}</b></p>`)}
    <section aria-labelledby="incidents"><h2 id="incidents">Incidents</h2>
      ${now.length ? html`<p><${State} of="error" text=${`${count(now.length, "incident")} now`} /></p>` : all.length ? html`<p><${State} of="ok" text="none now" /></p>` : null}
      ${all.length > 0 && html`<${IncidentTable} caption="Incidents, the newest first" hide rows=${[...now, ...all.filter(i => !open(i))].slice(0, 8)} /><p><a href="#/incidents">All incidents</a></p>`}
      ${all.length === 0 && ((s.watches || []).length ? html`<${Empty}>None yet. ${some(s.watches.length)} at work: incidents are shown here as they begin.<//>` : html`<${Empty}>${none}<//>`)}
      <${Strip} incidents=${all} range=${range < 900 ? 900 : range} /><${Find} /></section>
    <section aria-labelledby="health"><h2 id="health">Health</h2>
      ${faults.length ? html`<p><${State} of=${bad ? "error" : "warn"} text=${bad ? "Needs attention" : "Works, with warnings"} />: ${faults[0].summary}</p><${Faults} all=${faults} />` : s.error ? null : html`<p class="fine"><${State} of="ok" text="All is well" />: ${count(agents.length, "agent")}, ${some((s.watches || []).filter(w => w.state === "running").length)} at work, ${count((s.swarms || []).length, "swarm")}.</p>`}
      ${agents.length === 0 && !s.error && html`<${Empty}>No agent yet. Start a whole cluster on this machine: <${Cmd}>exoswarm serve<//>, or single agents: <${Cmd}>gpuagent<//> and <${Cmd}>cpuagent<//>.<//>`}
      <${Tiles} of=${[
        { name: "Decisions", value: rate(n.decisions_per_second ?? 0), to: ["detectors"] },
        { name: "Row to decision, median", value: n.latency_p50 ? seconds(n.latency_p50) : "–", to: ["detectors"] }, { name: "Row to decision, 99 %", value: n.latency_p99 ? seconds(n.latency_p99) : "–", to: ["detectors"] },
        { name: "Lag, in batches", value: num(n.entries_waiting), to: ["swarms"] },
        { name: "Oldest waiting job", value: Number.isFinite(since) ? seconds((Date.now() - since) / 1000) : "none", to: ["queue"] },
        { name: "Agents", value: num(agents.length), to: ["agents"] }, { name: "Dead letters", value: num(n.dead_letters || 0), to: ["queue"], kind: n.dead_letters ? "busy" : "" },
      ]} /></section>
    <section aria-labelledby="watched"><h2 id="watched">What is watched</h2><${Watches} all=${s.watches || []} empty=${html`Nothing is watched. <${Cmd}>exoswarm serve --watch-this-machine<//> watches this machine.`} /></section>
    <section aria-labelledby="changed"><h2 id="changed">What changed</h2><${Table} caption="What changed, the newest first" hide rows=${changes(s)} empty="Nothing yet." columns=${[
      { name: "When", value: c => html`<${Time} at=${c.at} />` }, { name: "What", value: c => c.what } ]} /></section>
    <section aria-labelledby="past"><h2 id="past">The past</h2><${Range} range=${range} set=${setRange} />
      <div class="charts"><${Chart} title="Decisions" at=${t.at} series=${of(t, { decisions_per_second: "decisions" })} format=${rate} />
      <${Chart} title="From a row to its decision" at=${t.at} series=${of(t, { latency_p50: "median", latency_p99: "99 %" })} format=${seconds} /></div>
      <p><a href="#/numbers">More numbers of the cluster</a></p></section>`;
}

const Range = ({ range, set }) => html`<p class="filter"><label>Length <select value=${range} onChange=${e => set(Number(e.target.value))}>
  <option value="890">15 minutes</option><option value="3600">1 hour</option><option value="21600">6 hours</option><option value="86400">24 hours</option></select></label></p>`;

export function Numbers({ state: s }) {
  const [range, setRange] = useState(890), t = useHistory(range), n = s.numbers || {};
  const chart = (title, names, more) => html`<${Chart} title=${title} at=${t.at} series=${of(t, names)} ...${more} />`;
  return html`<h1>Numbers</h1><${Tiles} of=${[
      { name: "Jobs waiting", value: num(n.jobs_waiting), to: ["queue"] }, { name: "Jobs running", value: num(n.jobs_running), to: ["queue"] }, { name: "Swarms", value: num((s.swarms || []).length), to: ["swarms"] },
      { name: "Neural agents", value: num(sum(s.swarms, w => w.agents)), to: ["swarms"] }, { name: "Shards without an agent", value: num(n.shards_unserved), to: ["swarms"], kind: n.shards_unserved ? "bad" : "" },
      { name: "Entries waiting", value: num(n.entries_waiting), to: ["swarms"] }, { name: "Devices busy", value: percent(n.device_busy), to: ["agents"] }, { name: "NATS store", value: bytes(n.store_bytes), to: ["nats"] },
    ]} /><${Range} range=${range} set=${setRange} />
    <div class="charts">${chart("Jobs", { jobs_waiting: "waiting", jobs_running: "running" })}${chart("Jobs that ended", { jobs_ended_per_second: "ended" }, { format: rate })}
      ${chart("Observations", { observations_per_second: "observations" }, { format: rate })}${chart("Answered entries of logs", { entries_per_second: "answered" }, { format: rate })}
      ${chart("Entries without an answer", { entries_waiting: "waiting" })}${chart("Devices busy", { device_busy: "busy" }, { format: percent, range: [0, 1] })}
      ${chart("Page moves", { page_moves_per_second: "moves" }, { format: rate })}${chart("NATS store", { store_bytes: "stored" }, { format: bytes })}</div>`;
}
