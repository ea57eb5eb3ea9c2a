// Detectors that last, and one of them.
import { html, num, rate, seconds, ago, Time, State, Table, Link, Empty, Cmd, Facts, Why, Bar } from "../lib.js";
import { useJSON } from "../data.js";
import { Logs } from "./queue.js";

const none = "–";
const of = (d, f) => (d.counts ? f(d.counts) : none);
const waits = d => d.error || d.counts?.unreachable || d.counts?.waiting || "";

export function Detectors({ state: s }) {
  // The state that everybody sees each second; what a job has reported may be old.
  const { data, error } = useJSON("detectors", 3), seen = d => (s.watches || []).find(w => w.detector && w.name === d.name);
  return html`<h1>Detectors</h1>${error && html`<p class="warn">${error}</p>`}${!data && !error && html`<p class="empty">Asking the cluster.</p>`}
    ${data && html`<${Table} caption="All detectors" filter="detectors" rows=${data}
      empty=${html`No detector yet. Make one: <${Cmd}>exoswarm detect create -f swarm.yaml --sources FILE --sinks FILE<//>.`} columns=${[
        { name: "Detector", value: d => html`<${Link} to=${["detectors", d.name]}>${d.name}<//>` }, { name: "State", value: d => html`<${State} of=${d.state === "pausing" ? d.state : (seen(d)?.state ?? d.state)} />` },
        { name: "Rate", number: true, value: d => of(d, c => rate(seen(d)?.rate ?? c.rows_per_s ?? 0)) }, { name: "Rows without a decision", number: true, value: d => of(d, c => num(c.pending || 0)) },
        { name: "Latency, 99 %", number: true, value: d => of(d, c => seconds(c.latency_p99_ms / 1000)) }, { name: "Last decision", value: d => of(d, c => html`<${Time} at=${c.last_decision} />`) },
        { name: "Keys", number: true, value: d => of(d, c => num(c.entities || 0)) }, { name: "Anomalies", number: true, value: d => of(d, c => num(c.anomalies)) },
        { name: "Rejected", number: true, value: d => of(d, c => num(c.rejected)) }, { name: "Note", value: d => seen(d)?.why || waits(d) },
      ]} />`}`;
}

export function Detector({ name }) {
  const path = `detectors/${encodeURIComponent(name)}`, { data: d, error, status } = useJSON(path, 2), why = useJSON(d ? `${path}/explain` : null, 5);
  if (status === 404) return html`<h1>Detector ${name}</h1><${Empty}>No such detector. <${Link} to=${["detectors"]}>All detectors<//><//>`;
  if (!d) return html`<h1>Detector ${name}</h1><p class="empty">${error || "Asking the cluster."}</p>`;
  const c = d.counts, dropped = c && (c.dropped_late || 0) + (c.dropped_duplicate || 0);
  return html`<h1>Detector ${name}</h1><p><${State} of=${d.state} /> ${waits(d)}</p>${error && html`<p class="warn">${error}</p>`}
    <section aria-labelledby="why"><h2 id="why">What it does</h2><${Why} reason=${why.data} error=${why.error} /></section>
    <section aria-labelledby="counts"><h2 id="counts">Rows and decisions</h2>${c ? html`<${Facts} of=${[
      ["Rows", num(c.rows)], ["Rate", rate(c.rows_per_s || 0)], ["Rejected", num(c.rejected)], ["Last rejected", c.last_reject], ["Decisions", num(c.decisions)], ["Dropped", num(dropped)], ["Anomalies", num(c.anomalies)],
      ["Rows without a decision", num(c.pending || 0)], ["Last decision", html`<${Time} at=${c.last_decision} /> ${c.last_decision ? ago(c.last_decision) : ""}`],
      ["Keys", html`${num(c.entities || 0)} of ${num(d.max_entities)} <${Bar} share=${(c.entities || 0) / Math.max(1, d.max_entities)} label="keys with a group" />`], ["Evicted, returned", c.evicted ? `${num(c.evicted)}, ${num(c.returned || 0)}` : ""],
      ["Latency, median", seconds(c.latency_p50_ms / 1000)], ["Latency, 99 %", seconds(c.latency_p99_ms / 1000)], ["Failures of sources", num(c.source_failures || 0)],
    ]} />` : html`<${Empty}>Its job has not reported yet.<//>`}</section>
    <section aria-labelledby="ends"><h2 id="ends">Sources and sinks</h2><${Facts} of=${[["Sources", (d.sources || []).join(", ")], ["Sinks", (d.sinks || []).join(", ")], ["Created", html`<${Time} at=${d.created} />`], ["Since", html`<${Time} at=${d.since} />`],
      ["Agent", d.worker && html`<${Link} to=${["agents", d.worker]}>${d.worker}<//>`], ["Job", d.job && html`<${Link} to=${["jobs", d.job]}>${d.job}<//>`], ["Swarm", html`<${Link} to=${["swarms", d.name]}>${d.name}<//>, with its entities and decisions`]]} /></section>
    ${d.job && html`<${Logs} id=${d.job} />`}`;
}
