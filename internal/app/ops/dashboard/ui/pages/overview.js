// Overview: the cluster in numbers, and what needs attention.
import { html, useState, num, rate, bytes, percent, sum, count, link, State, Tiles, Empty, Cmd } from "../lib.js";
import { useHistory } from "../data.js";
import { Chart, of } from "../chart.js";

// problems lists what a person should look at, the worst first: [kind, sentence, page].
export function problems(s) {
  const out = [];
  if (s.error) out.push(["bad", `The last look at the cluster failed: ${s.error}`, ["nats"]]);
  for (const a of s.agents || []) {
    if (a.state === "lost") out.push(["bad", `Agent ${a.name} is lost${a.lost?.shards?.length ? ` with ${count(a.lost.shards.length, "shard")} that nobody serves` : ""}.`, ["agents", a.name]]);
    else if (/host|emergency|reduced/.test(a.state)) out.push(["bad", `Agent ${a.name} is in state ${a.state}.`, ["agents", a.name]]);
    else if (a.fallback) out.push(["busy", `Agent ${a.name} uses the processor: ${a.fallback}`, ["agents", a.name]]);
  }
  for (const w of s.swarms || []) {
    const waits = (w.shards || []).filter(x => x.state === "waiting").length;
    if (w.error) out.push(["bad", `The record of swarm ${w.name} cannot be read: ${w.error}`, ["swarms", w.id]]);
    else if (waits && !w.ending) out.push(["bad", `Swarm ${w.name}: no agent serves ${waits} of ${count(w.shards.length, "shard")}.`, ["swarms", w.id]]);
  }
  for (const p of s.pools || []) {
    for (const k of p.unserved || []) out.push(["bad", `Jobs of kind ${k} wait, and no agent of pool ${p.pool} handles this kind.`, ["queue"]]);
    if (p.paused) out.push(["busy", `Pool ${p.pool} is paused.`, ["queue"]]);
  }
  if (s.numbers?.dead_letters) out.push(["busy", `There is ${count(s.numbers.dead_letters, "dead letter")}.`.replace(/^There is (?!1 )/, "There are "), ["queue"]]);
  if (s.nats?.refuses) out.push(["bad", "The NATS server stores nothing more: its disk is nearly full.", ["nats"]]);
  for (const t of s.nats?.streams || []) {
    if (t.missing) out.push(["bad", `The server does not report stream ${t.name}.`, ["nats"]]);
    if (t.leaderless) out.push(["bad", `Stream ${t.name} has no leader.`, ["nats"]]);
    if (t.behind?.length) out.push(["bad", `Replicas of stream ${t.name} are behind: ${t.behind.join(", ")}.`, ["nats"]]);
  }
  if (s.nats?.store_limit_bytes > 0 && s.nats.store_bytes > 0.85 * s.nats.store_limit_bytes) out.push(["bad", `The store of NATS is ${percent(s.nats.store_bytes / s.nats.store_limit_bytes)} full.`, ["nats"]]);
  return out;
}

export function Overview({ state: s }) {
  const [range, setRange] = useState(890), t = useHistory(range), n = s.numbers || {};
  const found = problems(s), agents = (s.agents || []).filter(a => a.state !== "lost");
  const chart = (title, names, more) => html`<${Chart} title=${title} at=${t.at} series=${of(t, names)} ...${more} />`;
  return html`<h1>Overview</h1>
    <section aria-labelledby="attention"><h2 id="attention">Needs attention</h2>
      ${found.length ? html`<ul class="problems">${found.slice(0, 12).map(([kind, text, to]) => html`<li><${State} of=${kind === "bad" ? "error" : "warn"} /> <a href=${link(...to)}>${text}</a></li>`)}</ul>`
        : html`<p class="fine"><${State} of="ok" /> Nothing. ${count(agents.length, "agent")}, ${count((s.swarms || []).length, "swarm")}.</p>`}
      ${agents.length === 0 && html`<${Empty}>No agent yet. Start a whole cluster on this machine: <${Cmd}>exoswarm serve<//>, or single agents: <${Cmd}>gpuagent<//> and <${Cmd}>cpuagent<//>.<//>`}</section>
    <${Tiles} of=${[
      { name: "Jobs waiting", value: num(n.jobs_waiting), to: ["queue"] },
      { name: "Jobs running", value: num(n.jobs_running), to: ["queue"] },
      { name: "Dead letters", value: num(n.dead_letters), to: ["queue"], kind: n.dead_letters ? "busy" : "" },
      { name: "Agents", value: num(agents.length), to: ["agents"] },
      { name: "Swarms", value: num((s.swarms || []).length), to: ["swarms"] },
      { name: "Neural agents", value: num(sum(s.swarms, w => w.agents)), to: ["swarms"] },
      { name: "Shards without an agent", value: num(n.shards_unserved), to: ["swarms"], kind: n.shards_unserved ? "bad" : "" },
      { name: "Observations", value: rate(n.observations_per_second), to: ["swarms"] },
      { name: "Entries waiting", value: num(n.entries_waiting), to: ["swarms"] },
      { name: "Devices busy", value: percent(n.device_busy), to: ["agents"] },
      { name: "NATS store", value: bytes(n.store_bytes), to: ["nats"] },
    ]} />
    <section aria-labelledby="past"><h2 id="past">The past</h2>
      <p class="filter"><label>Length <select value=${range} onChange=${e => setRange(Number(e.target.value))}>
        <option value="890">15 minutes</option><option value="3600">1 hour</option><option value="21600">6 hours</option><option value="86400">24 hours</option></select></label></p>
      <div class="charts">
      ${chart("Jobs", { jobs_waiting: "waiting", jobs_running: "running" })}
      ${chart("Jobs that ended", { jobs_ended_per_second: "ended" }, { format: rate })}
      ${chart("Observations", { observations_per_second: "observations" }, { format: rate })}
      ${chart("Answered entries of logs", { entries_per_second: "answered" }, { format: rate })}
      ${chart("Entries without an answer", { entries_waiting: "waiting" })}
      ${chart("Devices busy", { device_busy: "busy" }, { format: percent, range: [0, 1] })}
      ${chart("Page moves", { page_moves_per_second: "moves" }, { format: rate })}
      ${chart("NATS store", { store_bytes: "stored" }, { format: bytes })}
      </div></section>`;
}
